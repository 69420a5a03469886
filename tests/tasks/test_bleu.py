# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""BLEU in validation: what is said of its options before a training begins, and its figure where nothing is translated yet."""

import logging
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from veco_fairseq.errors import UserError
from veco_fairseq.tasks import bleu, translation
from veco_fairseq.tasks.multilingual_translation import _log_direction
from veco_fairseq.tasks.translation import CheckedTranslationTask

WORDS, PIECES = ("<s>", "the", "cat"), ("<s>", "\u2581the", "cat")


@pytest.mark.parametrize("name, value, message", [
    ("args", '{"beams": 4}', "--eval-bleu-args: beams has no effect: did you mean beam[?]"),
    ("args", '{"x": 4}', "--eval-bleu-args: x has no effect: it takes beam, max_len_a, "),
    ("args", '{"max-len-b": 4}', "--eval-bleu-args: max-len-b has no effect: did you mean max_len_b[?]"),
    ("args", '{"beam": 4.0}', "--eval-bleu-args: beam 4.0: must be a whole number"),
    ("args", '{"beam": true}', "--eval-bleu-args: beam True: must be a whole number"),
    ("args", '{"sampling": 1}', "--eval-bleu-args: sampling 1: must be true or false"),
    ("args", '{"lenpen": "1"}', "--eval-bleu-args: lenpen 1: must be a number"),
    ("args", '{"beam": 0}', "--eval-bleu-args: --beam 0: must be at least 1"),
    ("args", '{"diverse_beam_groups": 2}', "--eval-bleu-args: --diverse-beam-groups 2: must be left out: fairseq's search for it adds more"),
    ("detok", "mooses", "--eval-bleu-detok mooses: must be one of moses, nltk, space"),
    ("remove_bpe", "x", "--eval-bleu-remove-bpe x: fairseq does not know such pieces: give sentencepiece"),
])  # fmt: skip
def test_what_validation_would_fail_with_or_pass_over_is_told_at_the_start(name, value, message):
    """fairseq trains an epoch before it finds it, or never does."""
    with pytest.raises(UserError, match=f"^{message}"):
        bleu.check_bleu(TranslationConfig(**{f"eval_bleu_{name}": value}), WORDS)


def test_a_detokenizer_that_is_not_installed(monkeypatch):
    def build(options):
        raise ImportError("Please install nltk with: pip install nltk")

    monkeypatch.setattr(bleu.encoders, "build_tokenizer", build)
    with pytest.raises(
        UserError, match="^--eval-bleu-detok nltk: a package is missing: Please install nltk with: pip install nltk$"
    ):
        bleu.check_bleu(TranslationConfig(eval_bleu_detok="nltk"), WORDS)


@pytest.mark.parametrize("remove, symbols, told", [
    (None, PIECES, True), ("@@ ", PIECES, True), ("@@ ", ("\u2581", "th@@", "e"), False), (None, ("\u2581", "th@@", "e"), True), ("sentencepiece", PIECES, False), (None, WORDS, False), ("subword_nmt", WORDS, False),
])  # fmt: skip
def test_bleu_of_pieces_is_told(caplog, remove, symbols, told):
    args = '{"beam": 4, "max_len_a": 1, "max_len_b": 10, "lenpen": 0.6, "sampling": false}'
    with caplog.at_level(logging.WARNING, bleu.__name__):
        bleu.check_bleu(TranslationConfig(eval_bleu_args=args, eval_bleu_remove_bpe=remove), symbols)
    line = "--eval-bleu: BLEU is of pieces, not of words: give --eval-bleu-remove-bpe sentencepiece"
    assert [record.getMessage() for record in caplog.records] == [line] * told


@pytest.mark.parametrize("lang, langs, told", [
    ("ja_XX", None, ["ja is of characters"]), ("zh", None, []), (None, None, []),
    ("de", ["kor", "jpn", "th"], ["ja is of characters", "ko is of what is between spaces"]),
])  # fmt: skip
def test_a_bleu_that_is_not_that_of_veco_score_is_told(monkeypatch, caplog, lang, langs, told):
    monkeypatch.setattr(translation, "model_class", lambda cfg: None)
    monkeypatch.setattr(TranslationTask, "build_model", lambda *given: "built")
    task = object.__new__(CheckedTranslationTask)
    task.cfg, task.tgt_dict = TranslationConfig(eval_bleu=True, target_lang=lang), Dictionary()
    if langs:
        task.targets = langs
    assert task.build_model(task.cfg) == "built"
    assert caplog.messages == [
        f"--eval-bleu: BLEU of {words}, and that of veco score of the words of {words[:2]}-mecab: the figures differ, and must not be "
        "compared"
        for words in told
    ]


def test_empty_arguments_are_none():
    cfg = TranslationConfig(eval_bleu_args="", eval_bleu_detok_args="")
    bleu.check_bleu(cfg, WORDS)
    assert (cfg.eval_bleu_args, cfg.eval_bleu_detok_args) == ("{}", "{}")  # as fairseq reads them next


def sums(right: int, words: int) -> dict[str, int]:
    """Of a validation whose hypotheses have so many words, with as many n-grams that are right; the reference has 10."""
    orders = {f"_bleu_{part}_{order}": max(0, number - order) for order in range(4)
              for part, number in (("counts", right), ("totals", words))}  # fmt: skip
    return {"_bleu_sys_len": words, "_bleu_ref_len": 10, "loss": 8.0, "sample_size": 4, "ntokens": 4, **orders}


@pytest.mark.parametrize("batches, figure", [
    ([(0, 0)], 0.0), ([(10, 10)], 100.0), ([(0, 0), (10, 10)], 36.79), ([(10, 10), (0, 0)], 36.79), ([(None, None)], None),
])  # fmt: skip
def test_every_validation_has_a_bleu(monkeypatch, batches, figure):
    """... for --best-checkpoint-metric, also while no translation has a word; a batch of training has none.

    10 right words for 20 of the references have the penalty e^(1 - 20 / 10). A batch without words had counted for nothing.
    """
    criterion = SimpleNamespace(reduce_metrics=lambda logs: None)
    monkeypatch.setattr(TranslationTask.__base__, "reduce_metrics", lambda *given: None)
    task = object.__new__(CheckedTranslationTask)
    task.cfg = TranslationConfig(eval_bleu=True)
    with metrics.aggregate(new_root=True) as found:
        for right, words in batches:
            log = {"loss": 1.0} if right is None else sums(right, words)
            task.reduce_metrics([log], criterion)
            if right is not None:
                _log_direction("de-en", log)
    values = found.get_smoothed_values()
    assert values.get("bleu") == values.get("de-en_bleu") == figure


@pytest.mark.parametrize("lang, direction, pair, counts, totals", [
    ("zh_CN", None, ("他爱吃苹果。", "她爱吃苹果。"), [5, 4, 3, 2], [6, 5, 4, 3]),
    ("ja", None, ("犬が走る。", "猫が走る。"), [4, 3, 2, 1], [5, 4, 3, 2]),
    (None, "en-tha", ("กขคงจ", "กขคงฉ"), [4, 3, 2, 1], [5, 4, 3, 2]),
    ("zh", "zh-de", ("Er isst Äpfel.", "Sie isst Äpfel."), [3, 2, 1, 0], [4, 3, 2, 1]),
    (None, None, ("Er isst Äpfel.", "Sie isst Äpfel."), [3, 2, 1, 0], [4, 3, 2, 1]),
])  # fmt: skip
def test_a_language_without_spaces_is_counted_by_its_characters(monkeypatch, lang, direction, pair, counts, totals):
    """A sentence would be one word, and every BLEU 0, of which --best-checkpoint-metric bleu keeps the first."""
    task, dictionary, plain = object.__new__(CheckedTranslationTask), Dictionary(), sacrebleu.corpus_bleu
    task.cfg, task.tokenizer, task.tgt_dict = TranslationConfig(target_lang=lang), None, dictionary
    hypothesis, reference = (torch.tensor([*map(dictionary.add_symbol, text.split(" ")), dictionary.eos()]) for text in pair)
    monkeypatch.setattr(task, "inference_step", lambda *given, **more: [[{"tokens": hypothesis}]], raising=False)
    sample = {"target": reference[None], **({"direction": direction} if direction else {})}
    found = task._inference_with_bleu(None, sample, None)
    assert (found.counts, found.totals) == (counts, totals)
    assert sacrebleu.corpus_bleu is plain


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "metric, option", [("bleu", "--eval-bleu"), ("de-en_bleu", "--eval-bleu"), ("accuracy", "--report-accuracy")]
)
def test_a_metric_needs_the_option_that_computes_it(metric, option):
    words = ["data", "--task", "translation", "--arch", "transformer_tiny", "--criterion", "label_smoothed_cross_entropy",
             "--best-checkpoint-metric", metric, "--maximize-best-checkpoint-metric"]  # fmt: skip

    def parse(*more):
        return options.parse_args_and_arch(options.get_training_parser("translation"), [*words, *more])

    with pytest.raises(
        UserError, match=f"^--best-checkpoint-metric {metric}: validation has it with {option} alone: give that, too$"
    ):
        parse()
    parse(option)
