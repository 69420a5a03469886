# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Batches of like length, worked out by hand."""

import pytest
import torch
from fairseq.data import Dictionary

from veco_fairseq.inference.batches import by_length
from veco_fairseq.inference.pretrained import PretrainedModel


@pytest.mark.parametrize("limits, batches", [
    ((1,), [[3], [2], [0], [1]]),  # longer than a batch may be: alone
    ((5,), [[3], [2], [0, 1]]),
    ((8,), [[3], [2, 0], [1]]),
    ((9,), [[3], [2, 0, 1]]),  # 3 of 3
    ((100,), [[3, 2, 0, 1]]),
    ((100, 3), [[3, 2, 0], [1]]),
])  # fmt: skip
def test_a_batch_holds_so_many_tokens_with_padding_the_longest_first(limits, batches):
    assert list(by_length([2, 1, 3, 7], *limits)) == batches
    assert list(by_length([], *limits)) == []


def test_both_limits_at_once():
    assert list(by_length([3, 9, 4, 30, 2, 2, 5, 10], 20, 3)) == [[3], [7, 1], [6, 2, 0], [4, 5]]


def test_sequences_are_padded_on_the_right():
    batch = PretrainedModel(torch.nn.Linear(1, 1), Dictionary(), encoder=None).batch([[5, 6], [7]])
    assert batch.tolist() == [[5, 6], [7, 1]] and batch.dtype == torch.long
