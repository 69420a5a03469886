# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Counting without computing: the same operations as with all values, for every kind of model."""

from argparse import Namespace
from contextlib import nullcontext

import pytest
import torch

from veco_fairseq.benchmarks import finetuning, training, understanding
from veco_fairseq.cost.flops import counter
from veco_fairseq.cost.shapes import ShapesAlone


def options(arch, autocast="none"):
    sizes = {"vocabulary": 300, "tokens": 64, "length": 8, "updates": 1, "device": "cpu", "decoder_layers": None}
    return Namespace(arch=arch, autocast=autocast, **sizes)


TRAINERS = {
    "VECO": lambda: training.pretraining("camlm", options("veco_tiny")),
    "VECO in bf16": lambda: training.pretraining("camlm", options("veco_tiny", "bf16")),
    "XLM-E": lambda: training.pretraining("replaced_token", options("xlme_tiny")),
    "translation": lambda: finetuning.translating(finetuning.OURS, options("veco_mt_tiny")),
    "classification": lambda: understanding.classifying(understanding.OURS, options("veco_nlu_tiny", "bf16")),
}


def test_sampled_targets_are_counted_with_all_values():
    """Their vocabulary depends on the embeddings."""
    sampled = training.pretraining("camlm", options("veco_tiny"), knn_targets=2, knn_refresh=5, knn_rest=9)
    assert sampled.criterion.chooses_operations_by_values
    assert not training.pretraining("camlm", options("veco_tiny")).criterion.chooses_operations_by_values


@pytest.mark.parametrize("make", TRAINERS.values(), ids=TRAINERS)
def test_the_operations_are_those_of_a_real_update(make):
    counted = []
    for mode in (ShapesAlone(), nullcontext()):
        trainer = make()
        before = [parameter.clone() for parameter in trainer.model.parameters()]
        with mode, counter() as operations:
            trainer.update(trainer.samples[0])
        counted.append(operations.get_total_flops())
        moved = sum(not torch.equal(*pair) for pair in zip(before, trainer.model.parameters(), strict=True))
        assert moved == 0 if mode.__class__ is ShapesAlone else moved > 0.9 * len(before)
    assert counted[0] == counted[1] > 1e6


def test_values_that_are_no_fractions_are_computed():
    with ShapesAlone():
        scores = torch.ones(3, 4) @ torch.ones(4, 5)
        chosen = torch.arange(6).view(2, 3).t()
        assert scores.shape == (3, 5) and not scores.any() and scores.argmax(1).tolist() == [0, 0, 0]
        assert chosen.tolist() == [[0, 3], [1, 4], [2, 5]] and (chosen * 2).sum() == 30
        scores += 7.0
        torch.gt(torch.arange(15).view(3, 5), 2, out=scores)
        assert not scores.any()


def test_a_result_is_of_the_type_and_layout_of_its_own_call():
    """... and not of an earlier call with the same sizes."""
    with ShapesAlone():
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            ones = torch.ones(3, 4, dtype=dtype)
            assert (ones @ ones.t()).dtype == dtype and torch.zeros_like(torch.ones(3, 4), dtype=dtype).dtype == dtype
        assert (torch.ones(3, 4) * 2).stride() == (4, 1) and (torch.ones(4, 3).t() * 2).stride() == (1, 3)
        assert torch.ones(3, 4).sum(0).shape == (4,) and torch.ones(3, 4).sum(1).shape == (3,)
        values, places = torch.ones(3, 4).topk(2)  # of fractions and whole numbers: both are computed
        assert values.dtype == torch.float32 and places.dtype == torch.int64 and places.shape == (3, 2)
        parts = torch.ones(3, 4).split(1)
        assert [part.shape for part in parts] == [(1, 4)] * 3
        assert torch.ones(3, 4).sum().item() == 0  # has no shape to know without values
        text = torch.ones(3, 4, dtype=torch.int64)
        text += 4
        assert text.unique().tolist() == [5] and text[text.eq(5)].numel() == 12


def test_a_call_that_changes_several_tensors_returns_all_of_them():
    with ShapesAlone():
        normed = torch.native_layer_norm(torch.ones(3, 4), [4], None, None, 1e-5)
        outs = tuple(torch.empty_like(each) for each in normed)
        again = torch.ops.aten.native_layer_norm.out(
            torch.ones(3, 4), [4], None, None, 1e-5, out0=outs[0], out1=outs[1], out2=outs[2]
        )
        assert [each.shape for each in again] == [each.shape for each in normed] == [(3, 4), (3, 1), (3, 1)]
        mean, variance = torch.zeros(4), torch.zeros(4)  # changed beside four results
        result = torch.ops.aten._batch_norm_with_update(torch.ones(3, 4), None, None, mean, variance, 0.1, 1e-5)
        assert len(result) == 4 and result[0].shape == (3, 4)
