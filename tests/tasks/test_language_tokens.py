# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--task veco_translation``: its sets have the language tokens, and know how long that makes them."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary, write_tokens
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import (
    ARCH_MODEL_REGISTRY,
    MODEL_REGISTRY,
    BaseFairseqModel,
    FairseqDecoder,
    FairseqEncoder,
    FairseqEncoderDecoderModel,
)
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_cli.generate import get_symbols_to_strip_from_output

from veco_fairseq.checkpoints.task_state import NOT_FINE_TUNED
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.translation import CheckedTranslationTask, VecoTranslationTask


def options_of(folder) -> SimpleNamespace:
    cfg = TranslationConfig(data=str(folder), source_lang="aa", target_lang="bb", train_subset="train")
    changed = {"dataset_impl": None, "required_seq_len_multiple": 1, "num_batch_buckets": 0}
    return SimpleNamespace(**{**vars(cfg), **changed})


def task_of(folder, langs=("aa", "bb")) -> VecoTranslationTask:
    words = make_dictionary(mask=False)
    for lang in langs:
        words.add_symbol(f"[{lang}]")
    return VecoTranslationTask(options_of(folder), words, words)


@pytest.mark.parametrize("langs, kind, told", [
    ("aa bb", VecoTranslationTask, "the dictionaries have [aa] and [bb]: sources and translations end with them"),
    ("aa", CheckedTranslationTask, "only one of [aa] and [bb] is in the dictionaries: language tokens are not used"),
    ("bb", CheckedTranslationTask, "only one of [aa] and [bb] is in the dictionaries: language tokens are not used"),
    ("", CheckedTranslationTask, None),
])  # fmt: skip
def test_tokens_are_used_where_each_dictionary_has_its_languages_own(tmp_path, caplog, langs, kind, told):
    for lang in ("aa", "bb"):
        words = make_dictionary(mask=False)
        if lang in langs.split():
            words.add_symbol(f"[{lang}]")
        words.save(str(tmp_path / f"dict.{lang}.txt"))
    with caplog.at_level("INFO", logger="veco_fairseq"):
        assert type(CheckedTranslationTask.setup_task(options_of(tmp_path))) is kind
    assert [text for text in caplog.messages if "[aa] and [bb]" in text] == [told] * (told is not None)


@pytest.mark.parametrize("split", ["train", "test"])
def test_sets_end_in_the_tokens_and_are_as_long_as_they_say(tmp_path, split):
    for lang, lines in (("aa", [[5, 6, 7], [8]]), ("bb", [[9], [10, 11]])):
        write_tokens(tmp_path / f"{split}.aa-bb.{lang}", lines)
    task = task_of(tmp_path)
    task.load_dataset(split)
    pairs = task.dataset(split)
    aa, bb = (task.src_dict.index(token) for token in ("[aa]", "[bb]"))
    assert [pairs[row]["source"].tolist() for row in (0, 1)] == [[5, 6, 7, 2, aa], [8, 2, aa]]
    assert [pairs[row]["target"].tolist() for row in (0, 1)] == [[9, 2, bb], [10, 11, 2, bb]]
    assert (pairs.src_sizes.tolist(), pairs.tgt_sizes.tolist()) == ([5, 3], [3, 4])
    assert pairs.sizes.tolist() == [[5, 3], [3, 4]]
    batch = pairs.collater([pairs[0], pairs[1]])
    assert sorted(batch["net_input"]["prev_output_tokens"][:, 0].tolist()) == [bb, bb]


def test_a_text_without_its_translation_is_to_be_translated(tmp_path):
    write_tokens(tmp_path / "test.aa-bb.aa", [[5, 6, 7]])
    task = task_of(tmp_path)
    task.load_dataset("test", task_cfg=task.cfg)
    assert task.dataset("test").src_sizes.tolist() == [5] and task.dataset("test").tgt is None


@pytest.mark.parametrize("missing, there", [("aa", "bb"), ("bb", "aa")])
def test_a_language_without_its_token_is_named(tmp_path, missing, there):
    with pytest.raises(UserError, match=rf"\[{missing}\]: is not in the dictionary: --task veco_translation needs it"):
        task_of(tmp_path, langs=(there,))


def test_sources_to_translate_have_the_token_and_its_length(tmp_path):
    task = task_of(tmp_path)
    constraints = torch.tensor([[1, 9, 0], [0, 0, 0]])  # one word of the first, and none
    made = task.build_dataset_for_inference([torch.tensor([5, 6, 2]), torch.tensor([7, 2])], [3, 2], constraints)
    aa = task.src_dict.index("[aa]")
    assert [item["constraints"].tolist() for item in made] == constraints.tolist()
    assert [item["source"].tolist() for item in made] == [[5, 6, 2, aa], [7, 2, aa]] and made.src_sizes.tolist() == [4, 3]


def test_a_search_has_the_token_beside_what_it_is_given(tmp_path, monkeypatch):
    task, given = task_of(tmp_path), {"lm_weight": 0.3}
    monkeypatch.setattr(TranslationTask, "build_generator", lambda self, *arguments: arguments)
    bb = task.tgt_dict.index("[bb]")
    assert task.build_generator([1], 2, 3, given, 4) == ([1], 2, 3, {"lm_weight": 0.3, "eos": bb}, 4)
    assert task.build_generator([1], 2)[3] == {"eos": bb} and given == {"lm_weight": 0.3}
    made = [[{"tokens": torch.tensor([5, bb])}], [{"tokens": torch.tensor([6, 7, bb])}, {"tokens": torch.tensor([bb])}]]
    monkeypatch.setattr(TranslationTask, "inference_step", lambda self, *arguments, **more: made)
    found = [[one["tokens"].tolist() for one in hypotheses] for hypotheses in task.inference_step(None, [], {})]
    assert found == [[[5, 2]], [[6, 7, 2], [2]]]


@pytest.mark.parametrize("least, prefix, expected", [
    (1, None, [5, 2]), (2, None, [5, 2]), (3, None, [5, 5, 2]), (4, None, [5, 5, 5, 2]), (4, [5, 2], [5, 2, 5, 2]),
])  # fmt: skip
def test_a_translation_is_no_shorter_than_it_must_be(tmp_path, least, prefix, expected):
    """With </s>; it had come too soon, and what came after it until the token was allowed had been printed as text."""
    task = task_of(tmp_path)
    bb = task.tgt_dict.index("[bb]")

    class Likes(FairseqDecoder):
        """5, from then on </s>, and the token from the fourth step on or after </s>."""

        def forward(self, tokens, encoder_out=None, incremental_state=None):
            logits = torch.zeros(*tokens.shape, len(task.tgt_dict))
            for row, given in enumerate(tokens.tolist()):
                likely = [5] if len(given) == 1 else [bb, 5] if given[-1] == 2 or len(given) > 4 else [2, 5]
                for place, token in enumerate(likely):
                    logits[row, -1, token] = 9 - 3 * place
            return logits, {"attn": [None]}

    class Encoder(FairseqEncoder):
        def forward(self, src_tokens, src_lengths):
            return {"encoder_out": [src_tokens]}

        def reorder_encoder_out(self, encoder_out, new_order):
            return encoder_out

    model = FairseqEncoderDecoderModel(Encoder(task.src_dict), Likes(task.tgt_dict))
    generator = task.build_generator([model], GenerationConfig(beam=1, max_len_a=0, max_len_b=9, min_len=least))
    sample = {"net_input": {"src_tokens": torch.tensor([[6, 2]]), "src_lengths": torch.tensor([2])}}
    (found,) = generator.generate([model], sample, prefix_tokens=None if prefix is None else torch.tensor([prefix]))
    assert found[0]["tokens"].tolist() == [*expected, bb]


def test_a_search_of_the_sources_length_is_refused(tmp_path):
    """It had ended in an error about constraints and prefixes that nobody had given."""
    with pytest.raises(UserError, match="^--match-source-len: does not work with language tokens: leave it out$"):
        task_of(tmp_path).build_generator([], GenerationConfig(match_source_len=True))


def test_a_reference_that_is_scored_is_printed_without_the_token(tmp_path):
    """... which had stood in the line T- and in BLEU's references, and not in the hypotheses."""
    task = task_of(tmp_path)
    bb = task.tgt_dict.index("[bb]")
    scorer = task.build_generator([], Namespace(score_reference=True))
    strip = get_symbols_to_strip_from_output(scorer)
    assert task.tgt_dict.string(torch.tensor([5, 6, 2, bb]), extra_symbols_to_ignore=strip) == "w1 w2"


def test_links_are_of_words_alone(tmp_path, monkeypatch):
    """``--print-alignment`` had linked words with ``</s>`` and ``[aa]``, and ``</s>`` with words."""
    task, found = task_of(tmp_path), SimpleNamespace(extract_alignment=utils.extract_hard_alignment)
    monkeypatch.setattr(TranslationTask, "build_generator", lambda self, *arguments: found)
    aa, bb = task.src_dict.index("[aa]"), task.tgt_dict.index("[bb]")
    # 9 looks most at [aa], at </s>, and then at 6; 10 looks most at 5
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.6, 0.4, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0]])
    sentences = torch.tensor([5, 6, 2, aa]), torch.tensor([9, 10, 2, bb])
    assert task.build_generator([1], None).extract_alignment(weights, *sentences, 1, bb) == [(1, 0), (0, 1)]


def test_links_of_a_reference_are_of_words_alone(tmp_path):
    """``--score-reference --print-alignment`` had linked words with ``[aa]``, and ``[bb]`` with words."""
    task = task_of(tmp_path)
    aa, bb = task.src_dict.index("[aa]"), task.tgt_dict.index("[bb]")
    weights = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.6, 0.4, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0]]])

    class Looks(SimpleNamespace):
        def __call__(self, **batch):
            return torch.zeros(1, 4, len(task.tgt_dict)), {"attn": [weights]}

    model = Looks(eval=lambda: None, get_normalized_probs=lambda found, **options: found[0])
    sample = {"net_input": {"src_tokens": torch.tensor([[5, 6, 2, aa]])}, "target": torch.tensor([[9, 10, 2, bb]])}
    for asked, links in (("hard", [(1, 0), (0, 1)]), (None, None)):
        scorer = task.build_generator([model], Namespace(score_reference=True, print_alignment=asked))
        ((one,),) = scorer.generate([model], sample)
        assert one["alignment"] == links


def test_what_the_state_keeps_and_which_states_are_refused(tmp_path, caplog):
    words, others = make_dictionary(mask=False), make_dictionary(41, mask=False)

    def task(source, target, of_target=words):
        return CheckedTranslationTask(
            TranslationConfig(data=str(tmp_path), source_lang=source, target_lang=target), words, of_target
        )

    state = task("aa", "bb").state_dict()
    assert state["languages"] == ["aa", "bb"] and state["symbols"] == words.symbols and "source_symbols" not in state
    equal = task("aa", "bb", make_dictionary(mask=False)).state_dict()
    assert "source_symbols" not in equal  # read from two files, but the same
    apart = task("aa", "bb", others).state_dict()
    assert apart["symbols"] == others.symbols and apart["source_symbols"] == words.symbols
    with pytest.raises(UserError, match="^the checkpoint is of --task camlm, and does not translate: convert a pre-trained one"):
        task("aa", "bb").load_state_dict({"symbols": words.symbols, "task": "camlm"})
    for state, told in (
        ({}, ""),
        ({"symbols": words.symbols}, f"the checkpoint {NOT_FINE_TUNED}"),
    ):  # of fairseq, of veco convert
        task("aa", "bb").load_state_dict(state)
        assert "\n".join(caplog.messages) == told
    same = task("aa", "aa")
    same.load_state_dict(same.state_dict())  # within a language there is no other direction
    with pytest.raises(UserError, match="is one of many directions: add --task veco_multilingual_translation"):
        same.load_state_dict({**same.state_dict(), "lang_pairs": ["aa-bb"]})


@pytest.mark.parametrize("unknown", [{}, {"languages": [None, None]}], ids=["fairseq's", "imported"])
def test_an_ensemble_is_of_one_direction_also_beside_models_that_do_not_say_theirs(tmp_path, unknown):
    words = make_dictionary(mask=False)
    task = CheckedTranslationTask(TranslationConfig(data=str(tmp_path), source_lang="aa", target_lang="bb"), words, words)
    for languages in ({"languages": ["aa", "bb"]}, unknown, {"languages": ["aa", "bb"]}, unknown):
        task.load_state_dict({"symbols": words.symbols, **languages})
    told = "^an ensemble has models of one direction, and these are from aa to bb and from cc to bb$"
    with pytest.raises(UserError, match=told):
        task.load_state_dict({"symbols": words.symbols, "languages": ["cc", "bb"]})


@pytest.mark.parametrize("arch", ["roberta_base", "veco_tiny", "xlme_tiny", "transformer_lm"])
def test_models_that_do_not_translate_are_refused(tmp_path, arch):
    task = CheckedTranslationTask(TranslationConfig(data=str(tmp_path)), make_dictionary(), make_dictionary())
    told = f"^--arch {arch}: is no model of --task translation: give --arch veco_mt_SIZE, or another translation model$"
    with pytest.raises(UserError, match=told):
        task.build_model(Namespace(_name=arch))


def test_a_model_that_extends_fairseqs_base_alone_is_taken(tmp_path, monkeypatch):
    """Another --user-dir may have one with an encoder and a decoder of its own, which fairseq's task trains."""

    class Model(BaseFairseqModel):
        build_model = classmethod(lambda cls, cfg, task: cls())

    monkeypatch.setitem(ARCH_MODEL_REGISTRY, "theirs", Model)
    monkeypatch.setitem(MODEL_REGISTRY, "theirs", Model)
    task = CheckedTranslationTask(TranslationConfig(data=str(tmp_path)), make_dictionary(), make_dictionary())
    assert isinstance(task.build_model(Namespace(_name="theirs", arch="theirs")), Model)
