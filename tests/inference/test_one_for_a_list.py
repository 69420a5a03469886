# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""One text, or one file, where a function takes several: Python would go through its characters."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from veco_fairseq.alignment.words import _sentences
from veco_fairseq.checkpoints import average_checkpoints
from veco_fairseq.data.sentencepiece import trim
from veco_fairseq.errors import UserError, require_list
from veco_fairseq.inference.evaluation import label
from veco_fairseq.inference.pretrained import PretrainedModel
from veco_fairseq.inference.scoring import score
from veco_fairseq.inference.translator import Translator

TAGGER = SimpleNamespace(task=SimpleNamespace(nlu_task="tagging"))
CALLS = (
    ("checkpoints", lambda one: Translator(one)),
    ("lines", lambda one: Translator.__new__(Translator).translate(one)),
    ("lines", lambda one: PretrainedModel(None, None, None).sequences(one)),
    ("hypotheses", lambda one: score(one, ["a"], lang="de")),
    ("references", lambda one: score(["a"], one, lang="de")),
    ("baseline", lambda one: score(["a"], ["a"], lang="de", baseline=one)),
    ("x", lambda one: _sentences(None, one, "x")),
    ("sentences", lambda one: label(TAGGER, one)),
    ("the words of a sentence", lambda one: label(TAGGER, [["a"], one])),
    ("checkpoints", lambda one: average_checkpoints(one, "mean.pt")),
    ("corpora", lambda one: trim(None, one, keep=1, workers=1)),
)


@pytest.mark.parametrize("what, call", CALLS)
@pytest.mark.parametrize("one", ["a.b", Path("a.b")])
def test_one_alone_is_refused(what, call, one):
    with pytest.raises(UserError, match=rf"^{what}: 'a\.b' is one alone, where a list is needed: put it into \[ \]$"):
        call(one)


@pytest.mark.parametrize("call", [lambda none: Translator(none), lambda none: average_checkpoints(none, "mean.pt")])
@pytest.mark.parametrize("none", [[], (), {}.keys()])
def test_none_is_refused_where_one_is_needed(call, none):
    with pytest.raises(UserError, match="^checkpoints: the list is empty: give at least one$"):
        call(none)


@pytest.mark.parametrize("several", [[], ["a"], ("a", "b"), {"a": 1}.keys(), None])
def test_several_are_not(several):
    assert require_list(several, "lines") is None
