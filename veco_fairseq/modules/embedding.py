# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The look-up of tokens in a table that the LM head uses, too."""

from typing import Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def look_up(table: Tensor, ids: Tensor) -> Tuple[Tensor, Tensor]:
    """The rows of ``ids``, and the table again, for the LM head.

    The gradient of an ordinary look-up is a matrix of the table's size, to be filled with zeros and added to the
    head's, however few tokens there are. Here the head's own gradient arrives in the backward pass, and takes the
    rows' in.

    Args:
        table: (vocabulary, dim).
        ids: any shape.

    Returns:
        (*ids.shape, dim), and (vocabulary, dim), which must have one use, with a gradient that is nobody else's.
    """
    return _LookUp.apply(table, ids)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        return F.embedding(ids, table), table.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, of_rows, of_table):
        (ids,) = ctx.saved_tensors
        return of_table.index_add_(0, ids.flatten(), of_rows.flatten(0, -2).to(of_table.dtype)), None
