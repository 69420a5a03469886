# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The look-up whose gradient is added to the LM head's, against torch's two separate uses of a table."""

import pytest
import torch
import torch.nn.functional as F

from veco_fairseq.modules.embedding import look_up

IDS = torch.tensor([[3, 1, 3], [0, 3, 4]])


def loss(rows, table, head):
    logits = F.linear(rows.tanh(), table) if head else rows
    return (logits * torch.arange(logits.numel(), dtype=logits.dtype).view_as(logits)).sum()


@pytest.mark.parametrize("head", [True, False], ids=["with a head", "rows alone"])
def test_gradient_is_that_of_both_uses(head):
    torch.manual_seed(1)
    table = torch.randn(6, 4, dtype=torch.double, requires_grad=True)
    rows, again = look_up(table, IDS)
    assert torch.equal(rows, F.embedding(IDS, table)) and torch.equal(again, table)
    (actual,) = torch.autograd.grad(loss(rows, again, head), table)
    (expected,) = torch.autograd.grad(loss(F.embedding(IDS, table), table, head), table)
    assert torch.allclose(actual, expected)


def test_one_matrix_of_the_tables_size_is_made_in_the_backward_pass():
    """The head's gradient becomes the parameter's: no other one is made, and nothing is copied."""
    table = torch.randn(6, 4, requires_grad=True)
    rows, again = look_up(table, IDS)
    made = []

    class Head(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, table):
            return rows.sum() + table.sum()

        @staticmethod
        def backward(ctx, gradient):
            made.append(torch.ones(6, 4))
            return gradient.expand(*IDS.shape, 4), made[0]

    Head.apply(rows, again).backward()
    assert table.grad[:, 0].tolist() == [2, 2, 1, 4, 2, 1]
    assert made[0].data_ptr() == made.pop().data_ptr() and made == []


def test_a_frozen_table_has_no_gradient():
    rows, again = look_up(torch.randn(6, 4), IDS)
    assert not rows.requires_grad and not again.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_token_that_is_everywhere_is_added_up_before_it_is_rounded(dtype):
    """2048 + 1 is 2048 in 16 bits, however often it is done."""
    table = torch.zeros(3, 2, dtype=dtype, requires_grad=True)
    rows, again = look_up(table, torch.tensor([[1] * 2048]))
    (rows.sum() + 2048 * again.sum()).backward()
    assert table.grad.tolist() == [[2048, 2048], [4096, 4096], [2048, 2048]] and table.grad.dtype == dtype
