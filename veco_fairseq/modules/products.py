# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Products in the way that AMX is fast at: a number of rows that comes again, and no transposed first factor."""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

from veco_fairseq.modules.device import on_cpu

# Numbers between two rows: rows whose length is a power of two share few places of a processor's cache.
GAP = 32
# With AMX the rows of a product are made a multiple of this.
ROWS = 64
# With AMX and two threads oneDNN leaves one of them idle, where a product has about these numbers of rows and columns.
IDLE_FROM, IDLE_TO, IDLE_COLUMNS = 384, 1408, 896
# So such a product is computed by parts of this many rows at most.
ROWS_A_PART = 320
_as_elsewhere = ContextVar("as_elsewhere", default=False)


@functools.cache
def has_amx() -> bool:
    """Return whether this processor has AMX."""
    return getattr(torch.cpu, "_is_amx_tile_supported", bool)()


def by_amx(x: Tensor) -> bool:
    """Return whether products of ``x`` are computed by AMX."""
    return x.dtype == torch.bfloat16 and on_cpu(x) and has_amx() and not _as_elsewhere.get()


@contextmanager
def as_elsewhere() -> Iterator[None]:
    """Compute products as without AMX, without the rows that are added for it, so that operations are counted alike everywhere."""
    token = _as_elsewhere.set(True)
    try:
        yield
    finally:
        _as_elsewhere.reset(token)


def whole(rows: int, x: Tensor) -> int:
    """Return how many rows a product with ``x`` is to have, if it needs this many.

    oneDNN makes a kernel for every number of rows, and keeps the last 1,024 kernels. With AMX, to make one of the LM head takes
    longer than to run it.
    """
    return math.ceil(rows / ROWS) * ROWS if by_amx(x) else rows


def with_zeros(x: Tensor, rows: int) -> Tensor:
    """Return ``x``, (n, ...), with zeros for the rows that it lacks."""
    return x if len(x) == rows else F.pad(x, (0, 0) * (x.dim() - 1) + (0, rows - len(x)))


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a b, (rows, n), by parts of the rows where that keeps both of two threads at work.

    Args:
        a: (rows, m).
        b: (m, n).
    """
    rows, columns = len(a), b.shape[1]
    idle = IDLE_FROM <= rows < IDLE_TO and columns <= IDLE_COLUMNS and torch.get_num_threads() == 2
    if not (idle and by_amx(a)):
        return torch.mm(a, b)
    found, size = a.new_empty(rows, columns), whole(math.ceil(rows / math.ceil(rows / ROWS_A_PART)), a)
    for part, put in zip(a.split(size), found.split(size)):
        torch.mm(part, b, out=put)
    return found


def turned(x: Tensor) -> Tensor:
    """Return x^T for :func:`product_of_columns`.

    AMX is half as fast with a transposed factor, so there x^T has memory of its own. It also has one more row, of ones: the
    product with it is the sums of the other factor's columns, which cost a quarter of the product's time on their own.
    """
    return F.pad(x.t(), (0, 0, 0, 1), value=1.0) if by_amx(x) else x.t()


def product_of_columns(a: Tensor, b_turned: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return a^T b, (m, n), as the gradient of every weight is one, and a^T times the row of ones, (m), or None without AMX.

    With AMX b^T a is computed, and transposed afterwards.

    Args:
        a: (rows, m).
        b_turned: (n, rows), b as :func:`turned` returns it, with one more row for AMX; its columns may have been multiplied.
    """
    if not by_amx(a):
        return torch.mm(a.t(), b_turned.t()), None
    found = a.new_empty(len(b_turned), a.shape[1] + GAP)[:, :-GAP]
    torch.mm(b_turned, a, out=found)
    return found[:-1].t().contiguous(), found[-1]
