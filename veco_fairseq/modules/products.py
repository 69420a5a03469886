# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Products with a transposed first factor, as the gradient of every weight is one."""

import functools

import torch
from torch import Tensor

from veco_fairseq.modules.device import on_cpu

# Numbers between two rows: rows whose length is a power of two share few places of a processor's cache.
GAP = 32


@functools.cache
def has_amx() -> bool:
    """Return whether this processor has AMX, whose products in bf16 are half as fast with a transposed first factor."""
    return getattr(torch.cpu, "_is_amx_tile_supported", bool)()


def turned(x: Tensor) -> Tensor:
    """Return x^T for :func:`product_of_columns`, in memory of its own where that makes the product faster."""
    return x.t().contiguous() if x.dtype == torch.bfloat16 and on_cpu(x) and has_amx() else x.t()


def product_of_columns(a: Tensor, b_turned: Tensor) -> Tensor:
    """Return a^T b, (m, n).

    Where b^T has memory of its own, b^T a is computed, and transposed afterwards.

    Args:
        a: (rows, m).
        b_turned: (n, rows), b as :func:`turned` returns it.
    """
    if not b_turned.is_contiguous():
        return torch.mm(a.t(), b_turned.t())
    product = a.new_empty(len(b_turned), a.shape[1] + GAP)[:, :-GAP]
    return torch.mm(b_turned, a, out=product).t().contiguous()
