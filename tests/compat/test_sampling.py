# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Chance in translations: draws of the next token, and dropout."""

from math import inf
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.models import BaseFairseqModel
from fairseq.modules import FairseqDropout
from fairseq.search import Sampling

from veco_fairseq.errors import UserError

END = 2


@pytest.mark.parametrize("options", [{}, {"sampling_topk": 3}, {"sampling_topp": 0.9}])
def test_a_translation_that_must_end_does_so_however_unlikely_it_is(options):
    """The greatest length is reached; with a temperature of 0.05, an end of e^-10 has become one of e^-200."""
    lprobs = torch.full((2, 1, 6), -inf)
    lprobs[0, 0, END] = -200.0
    lprobs[1, 0, END], lprobs[1, 0, 4] = -1.5, -0.5
    scores, tokens, beams = Sampling(make_dictionary(), **options).step(3, lprobs, torch.zeros(2, 1, 4) - 2.5)
    assert tokens[0, 0] == END and tokens[1, 0] in (END, 4) and beams.tolist() == [[0], [0]]
    assert scores.tolist() == [[-202.5], [pytest.approx(-4.0 if tokens[1, 0] == END else -3.0)]]


def test_more_tokens_than_there_are_are_all_of_them():
    torch.manual_seed(1)
    lprobs = torch.zeros(400, 1, 6)
    tokens = [Sampling(make_dictionary(), sampling_topk=most).step(1, lprobs, torch.zeros(400, 1, 2))[1] for most in (6, 5000)]
    assert [set(drawn.unique().tolist()) for drawn in tokens] == [{*range(6)}] * 2


def test_unlikely_tokens_keep_their_proportions():
    torch.manual_seed(1)
    lprobs = torch.full((4000, 1, 6), -inf)
    lprobs[:, 0, END], lprobs[:, 0, 5] = -300.0, -300.0 + torch.tensor(0.25).log()
    tokens = Sampling(make_dictionary()).step(1, lprobs, torch.zeros(4000, 1, 2))[1]
    assert tokens.eq(END).float().mean() == pytest.approx(0.8, abs=0.03) and set(tokens.unique().tolist()) == {END, 5}


@pytest.mark.parametrize("chosen, kept", [(None, [0.1, 0.2, 0.3]), ("Encoder", [0.1]), (["Encoder", "Decoder"], [0.1, 0.2])])
def test_dropout_of_some_modules_is_kept(chosen, kept):
    """... and a name of none of them is told; fairseq had translated without dropout."""
    model = BaseFairseqModel()
    model.parts = torch.nn.ModuleList(map(FairseqDropout, (0.1, 0.2, 0.3), ("Encoder", "Decoder", None)))
    generation = SimpleNamespace(retain_dropout=True, retain_dropout_modules="Encodr")
    with pytest.raises(
        UserError, match="^--retain-dropout-modules Encodr: .*: the model has Decoder, Encoder: give one of them$"
    ):
        model.prepare_for_inference_(SimpleNamespace(generation=generation))
    generation.retain_dropout_modules = chosen
    model.prepare_for_inference_(SimpleNamespace(generation=generation))
    assert [part.p for part in model.parts if part.apply_during_inference] == kept
