# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Products in the way that AMX is fast at: a number of rows that comes again, and no transposed first factor."""

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from veco_fairseq.modules.device import on_cpu

# Numbers between two rows: rows whose length is a power of two share few places of a processor's cache.
GAP = 32
# With AMX the rows of a product are made a multiple of this.
ROWS = 64


@functools.cache
def has_amx() -> bool:
    """Return whether this processor has AMX."""
    return getattr(torch.cpu, "_is_amx_tile_supported", bool)()


def by_amx(x: Tensor) -> bool:
    """Return whether products of ``x`` are computed by AMX."""
    return x.dtype == torch.bfloat16 and on_cpu(x) and has_amx()


def whole(rows: int, x: Tensor) -> int:
    """Return how many rows a product with ``x`` is to have, if it needs this many.

    oneDNN makes a kernel for every number of rows, and keeps the last 1,024 kernels. With AMX, to make one of the LM head takes
    longer than to run it.
    """
    return math.ceil(rows / ROWS) * ROWS if by_amx(x) else rows


def with_zeros(x: Tensor, rows: int) -> Tensor:
    """Return ``x``, (n, ...), with zeros for the rows that it lacks."""
    return x if len(x) == rows else F.pad(x, (0, 0) * (x.dim() - 1) + (0, rows - len(x)))


def turned(x: Tensor) -> Tensor:
    """Return x^T for :func:`product_of_columns`, in memory of its own with AMX, which is half as fast with a transposed factor."""
    return x.t().contiguous() if by_amx(x) else x.t()


def product_of_columns(a: Tensor, b_turned: Tensor) -> Tensor:
    """Return a^T b, (m, n), as the gradient of every weight is one.

    Where b^T has memory of its own, b^T a is computed, and transposed afterwards.

    Args:
        a: (rows, m).
        b_turned: (n, rows), b as :func:`turned` returns it.
    """
    if not b_turned.is_contiguous():
        return torch.mm(a.t(), b_turned.t())
    product = a.new_empty(len(b_turned), a.shape[1] + GAP)[:, :-GAP]
    return torch.mm(b_turned, a, out=product).t().contiguous()
