# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options of fairseq's translation that ended in a traceback, or did nothing, where the data or a model does not fit."""

from types import SimpleNamespace

import pytest
from conftest import make_dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from veco_fairseq.errors import UserError
from veco_fairseq.tasks.camlm import CamlmTask
from veco_fairseq.tasks.nlu import NluTask
from veco_fairseq.tasks.translation import CheckedTranslationTask


@pytest.fixture
def task():
    """One that has read a set without translations."""
    found = object.__new__(CheckedTranslationTask)
    found.cfg = SimpleNamespace(data="data", source_lang="xx", target_lang="yy", load_alignments=True, train_subset="train")
    found.datasets = {"test": SimpleNamespace(tgt=None)}
    return found


def test_prefixes_of_translations_that_are_not_there(task):
    with pytest.raises(UserError, match="--prefix-size: data has no yy to take prefixes of"):
        task.build_generator([], SimpleNamespace(prefix_size=1))


def test_a_language_model_that_is_none(task):
    with pytest.raises(UserError, match="--lm-path lm.pt: is no language model"):
        task.build_generator([], SimpleNamespace(prefix_size=0, lm_path="lm.pt"), extra_gen_cls_kwargs={"lm_model": object()})


def test_alignments_that_are_not_there(task, monkeypatch):
    pairs = SimpleNamespace(tgt="some", align_dataset=None)
    monkeypatch.setattr(TranslationTask, "load_dataset", lambda self, split, *args, **more: self.datasets.update({split: pairs}))
    task.load_dataset("valid")
    with pytest.raises(UserError, match=r"--load-alignments: data has no train\.align\.xx-yy"):
        task.load_dataset("train")
    pairs.align_dataset = "some"
    task.load_dataset("train")


@pytest.mark.parametrize("kind, message", [
    (CamlmTask, r"--task camlm: its models do not translate: convert one \(veco convert\) and fine-tune it with --task translation"),
    (NluTask, "--task veco_nlu: its models do not translate: veco evaluate predicts with them"),
])  # fmt: skip
def test_models_that_do_not_translate(kind, message):
    """fairseq-generate and fairseq-interactive ended in tracebacks, of which one told of a division by zero."""
    with pytest.raises(UserError, match=f"^{message}$"):
        object.__new__(kind).build_generator([], SimpleNamespace(), extra_gen_cls_kwargs={})


@pytest.mark.parametrize("given", [{"source_lang": "bb"}, {"target_lang": "aa"}])
def test_one_language_alone_tells_the_direction(tmp_path, given):
    """fairseq passed it over, and translated from aa to bb."""
    for lang in ("aa", "bb"):
        make_dictionary(mask=False).save(str(tmp_path / f"dict.{lang}.txt"))
    (tmp_path / "train.aa-bb.aa.idx").touch()
    task = CheckedTranslationTask.setup_task(TranslationConfig(data=str(tmp_path), **given))
    assert (task.cfg.source_lang, task.cfg.target_lang) == ("bb", "aa")
    (tmp_path / "valid.bb-cc.bb.idx").touch()
    make_dictionary(mask=False).save(str(tmp_path / "dict.cc.txt"))
    with pytest.raises(UserError, match="has data of aa-bb, bb-cc: choose one with -s and -t"):
        CheckedTranslationTask.setup_task(TranslationConfig(data=str(tmp_path)))
