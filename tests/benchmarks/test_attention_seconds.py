# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the benchmark of attention computes, and which of its times it takes, by a clock that the test turns on."""

import itertools
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout

from veco_fairseq.benchmarks import kernels
from veco_fairseq.compat import patching
from veco_fairseq.models.base import architecture
from veco_fairseq.modules import attention, dropout


def test_attention_is_the_best_of_the_rounds_and_one_more(monkeypatch):
    """Ours and fairseq's in turn, forward and backward, in both types, for as many sequences as there are tokens for."""
    seen = []

    def noted(forward):
        def attend(module, query, *others, key_padding_mask, **more):
            h, weights = forward(module, query, *others, key_padding_mask=key_padding_mask, **more)
            of_fairseq = MultiheadAttention.forward is FAIRSEQS and FairseqDropout.forward is not dropout.forward
            seen.append((of_fairseq, tuple(query.shape), tuple(key_padding_mask.shape), h.dtype, module.dropout_module.p))
            h.register_hook(lambda gradient: seen.append("backward"))
            return h, weights

        return attend

    FAIRSEQS = noted(attention._fairseq_forward)
    monkeypatch.setattr(attention, "forward", noted(attention.forward))
    monkeypatch.setattr(MultiheadAttention, "forward", attention.forward)
    monkeypatch.setitem(patching._originals, "fairseq.modules:MultiheadAttention.forward", FAIRSEQS)
    # of each round, what ours takes, and then fairseq's
    takes = [(2.1, 3.2), (0.1, 1.2), (1.1, 0.2), (2.3, 3.4), (0.3, 1.4), (1.3, 0.4)]
    times = itertools.accumulate(part for pair in takes for one in pair for part in (5, one))
    monkeypatch.setattr(kernels, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    options = Namespace(arch="veco_tiny", tokens=70, rounds=2, device="cpu", attention_dropout=0.3)
    found = kernels.attention_seconds(8, options)
    names = ["ours, fp32", "fairseq, fp32", "ours, bf16", "fairseq, bf16"]
    assert list(found) == names and list(found.values()) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert MultiheadAttention.forward is attention.forward and FairseqDropout.forward is dropout.forward
    dim = architecture("veco_tiny").encoder_embed_dim
    expected = [
        (of_fairseq, (8, 8, dim), (8, 8), dtype, 0.3)
        for dtype in (torch.float32, torch.bfloat16) for _ in range(3) for of_fairseq in (False, True)
    ]  # fmt: skip
    assert seen == [step for one in expected for step in (one, "backward")]


def test_attention_has_the_architectures_dropout(monkeypatch):
    seen = set()
    forward = attention.forward

    def attend(module, *inputs, **more):
        seen.add(module.dropout_module.p)
        return forward(module, *inputs, **more)

    monkeypatch.setattr(attention, "forward", attend)
    monkeypatch.setattr(MultiheadAttention, "forward", attend)
    kernels.attention_seconds(9, Namespace(arch="veco_tiny", tokens=8, rounds=1, device="cpu", attention_dropout=None))
    assert seen == {architecture("veco_tiny").attention_dropout} and seen != {0.0}
