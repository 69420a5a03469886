# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The task of many directions without a training: its directions, targets and sets, and the figures of a direction."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq import utils
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationTask

from veco_fairseq.errors import UserError
from veco_fairseq.tasks.multilingual_translation import VecoMultilingualTranslationConfig as Config
from veco_fairseq.tasks.multilingual_translation import VecoMultilingualTranslationTask as Task
from veco_fairseq.tasks.multilingual_translation import _log_direction


@pytest.fixture
def make_task(directions):
    def make(**options):
        options = {"train_subset": "train", "seed": 1, "dataset_impl": None, "required_seq_len_multiple": 1, **options}
        return Task.setup_task(Config(**{"data": str(directions), **options}))

    return make


def test_a_set_of_no_direction_is_told(make_task):
    task = make_task(lang_pairs="bb-aa,cc-aa")
    task.load_dataset("valid")
    with pytest.raises(UserError, match="has no test2 data of bb-aa: check --lang-pairs, or make it with fairseq-preprocess"):
        task.load_dataset("test2")


@pytest.mark.parametrize("given", [{"source_lang": "aa"}, {"target_lang": "aa"}])
def test_one_language_alone_is_no_direction_to_train(make_task, given):
    task = make_task(**given)
    task.load_dataset("valid")
    with pytest.raises(
        UserError, match="-s and -t: give both to train one direction, or neither for all: --lang-pairs names some"
    ):
        task.load_dataset("train")


def test_a_checkpoint_tells_the_targets(make_task):
    state = {"lang_pairs": ["cc-bb", "cc-aa", "bb-aa"]}
    task = make_task(lang_pairs="aa-cc,cc-aa")
    assert task.targets == ["aa", "cc"] and task.state_dict()["lang_pairs"] == ["aa-cc", "cc-aa"]
    symbols = {"symbols": task.tgt_dict.symbols}
    task.load_state_dict({**state, **symbols})
    assert task.targets == ["aa", "bb"]
    one = make_task(source_lang="aa", target_lang="cc")
    assert one.directions == ["aa-cc"] and one.targets == ["cc"]
    with pytest.raises(UserError, match="cc: the model does not translate into it, but into aa, bb: choose one"):
        one.load_state_dict({**state, **symbols})
    with pytest.raises(UserError, match="token 4 is "):
        task.load_state_dict({**state, "symbols": task.tgt_dict.symbols[:4] + task.tgt_dict.symbols[:3:-1]})


def test_an_ensemble_translates_into_what_all_of_its_models_do(make_task):
    task = make_task(source_lang="aa", target_lang="bb")
    for directions, targets in (
        (["aa-bb", "aa-cc"], ["bb", "cc"]),
        (["bb-cc", "aa-bb", "bb-aa"], ["bb", "cc"]),
        (["cc-bb"], ["bb"]),
    ):
        task.load_state_dict({"symbols": task.tgt_dict.symbols, "languages": [None, None], "lang_pairs": directions})
        assert task.targets == targets
    with pytest.raises(UserError, match="cc: the model does not translate into it, but into bb"):
        task.choose_target("cc")


def test_directions_are_those_of_the_set_to_train_on(make_task):
    assert make_task().directions == ["aa-bb", "bb-aa", "aa-cc", "cc-aa"]
    assert make_task(train_subset="test").directions == ["aa-bb", "bb-aa", "bb-cc", "cc-bb"]


def test_languages_may_have_hyphens(make_task, directions, tmp_path):
    """... and none is left out in silence."""
    for file in directions.iterdir():
        name, content = file.name, file.read_bytes()
        for old, new in (("bb", "pt-BR"), ("cc", "zh-CN")):
            name, content = name.replace(old, new), content.replace(f"<2{old}>".encode(), f"<2{new}>".encode())
        (tmp_path / name).write_bytes(content)
    task = make_task(data=str(tmp_path))
    assert task.directions == ["aa-pt-BR", "pt-BR-aa", "aa-zh-CN", "zh-CN-aa"] and task.targets == ["aa", "pt-BR", "zh-CN"]
    task.load_dataset("train")
    assert task.dataset("train").pairs_of == [90, 90, 25, 25]
    one = make_task(data=str(tmp_path), source_lang="pt-BR", target_lang="zh-CN")
    one.load_dataset("test")
    assert one.targets == ["zh-CN"] and one.dataset("test")[0]["source"][0] == one.tgt_dict.index("<2zh-CN>")
    (tmp_path / "train.aa-zh-cn.aa.idx").touch()
    for options in ({}, {"source_lang": "aa", "target_lang": "zh-cn"}):
        with pytest.raises(UserError, match="'aa-zh-cn' is no direction: give such as de-en or, with a region, en-pt-BR"):
            make_task(data=str(tmp_path), **options)


def test_dictionaries_of_the_same_words_may_have_other_counts(make_task, directions, tmp_path):
    for file in directions.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "dict.cc.txt").unlink()
    (tmp_path / "dict.cc.txt").write_text((directions / "dict.cc.txt").read_text().replace(" 1\n", " 7\n"))
    assert make_task(data=str(tmp_path)).directions == ["aa-bb", "bb-aa", "aa-cc", "cc-aa"]


def test_a_target_must_be_chosen_to_translate(make_task):
    task = make_task(lang_pairs="aa-cc,cc-aa")
    with pytest.raises(UserError, match=r"the language to translate into is missing: choose one of aa, cc \(-t\)"):
        task.build_dataset_for_inference([torch.tensor([7, 2])], [2])
    task.choose_target("cc")
    made = task.build_dataset_for_inference([torch.tensor([7, 2])], [2], constraints=torch.tensor([[1, 9, 0]]))
    (item,) = made
    assert item["constraints"].tolist() == [1, 9, 0]
    assert made.src_sizes.tolist() == [3] and item["source"].tolist() == [task.tgt_dict.index("<2cc>"), 7, 2]


BATCHES = [  # bits of loss, sample size; bits of NLL, tokens; right n-grams, n-grams, lengths of ours and of the reference
    (20, 4, 17, 8, (5, 2, 1, 0), (6, 5, 4, 3), 6, 9),
    (3, 3, 3, 4, (3, 2, 1, 0), (4, 3, 2, 1), 4, 3),
]


@pytest.mark.parametrize("has_nll, perplexity", [(False, 3.78), (True, 3.17)])  # 2^(23 / 12) and 2^(20 / 12)
def test_figures_of_a_direction_are_of_all_its_batches(has_nll, perplexity):
    """Perplexity is of the loss where there is no NLL, and of a token also where the loss is of a sentence (7 for 12 tokens).

    BLEU is of 8/10, 4/8, 2/6 and half a 4-gram of 4 for none; and of 10 tokens for 12.
    """
    with metrics.aggregate(new_root=True) as found:
        for loss, size, nll, tokens, counts, totals, sys_len, ref_len in BATCHES:
            log = {
                "loss": loss * math.log(2),
                "sample_size": size,
                "ntokens": tokens,
                "_bleu_sys_len": sys_len,
                "_bleu_ref_len": ref_len,
            }
            log |= {"nll_loss": nll * math.log(2)} if has_nll else {}
            for part, numbers in (("counts", counts), ("totals", totals)):
                log |= {f"_bleu_{part}_{order}": number for order, number in enumerate(numbers)}
            _log_direction("aa-bb", log)
    bleu = 100 * math.exp(1 - 12 / 10) * (8 / 10 * 4 / 8 * 2 / 6 * 0.5 / 4) ** (1 / 4)
    assert found.get_smoothed_values() == {"aa-bb_loss": round(23 / 7, 3), "aa-bb_ppl": perplexity, "aa-bb_bleu": round(bleu, 2)}


def test_links_are_of_words_alone_and_count_the_token_before_the_source(make_task, monkeypatch):
    """``--print-alignment`` had linked words with ``<2aa>``; the line S- has it, and so the first word is 1."""
    task, found = make_task(source_lang="bb", target_lang="aa"), SimpleNamespace(extract_alignment=utils.extract_hard_alignment)
    monkeypatch.setattr(TranslationTask, "build_generator", lambda self, *arguments: found)
    token = task.tgt_dict.index("<2aa>")
    # 9 looks most at <2aa>, and then at 6; 10 looks most at 5
    weights = torch.tensor([[0.5, 0.1, 0.3, 0.1], [0.2, 0.6, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]])
    sentences = torch.tensor([token, 5, 6, 2]), torch.tensor([9, 10, 2])
    assert task.build_generator([1], None).extract_alignment(weights, *sentences, 1, 2) == [(2, 0), (1, 1)]
    found.extract_alignment = utils.extract_soft_alignment
    assert task.build_generator([1], None).extract_alignment is utils.extract_soft_alignment


def test_workers_have_figures_of_the_same_kinds_to_add_up(make_task, monkeypatch):
    """Of the directions that a batch is not of, too."""
    task = make_task(lang_pairs="bb-aa,cc-aa")
    log = {"loss": torch.tensor(2.5), "ntokens": 7, "_bleu_counts": torch.tensor([3, 1])}
    monkeypatch.setattr(TranslationTask, "valid_step", lambda *_: (log["loss"], 7, log))
    *_, found = task.valid_step({"direction": "cc-aa"}, None, None)
    for key, value in log.items():
        here, other = found[f"cc-aa:{key}"], found[f"bb-aa:{key}"]
        assert here is found[key] is value
        assert type(other) is type(value) and torch.equal(torch.as_tensor(other), torch.zeros_like(torch.as_tensor(value)))


def test_a_direction_whose_name_begins_as_anothers_has_figures_of_its_own(monkeypatch):
    """Of Portuguese 6 bits for 3 tokens in two workers' batches, and of Brazilian Portuguese 10 bits for 2."""
    task = Task.__new__(Task)
    task.directions = ["en-pt", "en-pt-BR"]
    monkeypatch.setattr(TranslationTask, "reduce_metrics", lambda *_: None)
    logs = [
        {f"{name}:{key}": value for name, of in figures.items() for key, value in zip(("loss", "sample_size", "ntokens"), of)}
        for figures in (
            {"en-pt": (4 * math.log(2), 1, 1), "en-pt-BR": (0.0, 0, 0)},
            {"en-pt": (2 * math.log(2), 2, 2), "en-pt-BR": (10 * math.log(2), 2, 2)},
        )
    ]
    with metrics.aggregate(new_root=True) as found:
        task.reduce_metrics(logs, None)
    assert found.get_smoothed_values() == {"en-pt_loss": 2, "en-pt-BR_loss": 5, "en-pt_ppl": 4, "en-pt-BR_ppl": 32}
