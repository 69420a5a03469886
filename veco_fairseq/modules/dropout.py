# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Dropout whose random numbers are cheap on a CPU: 16 bits for each number, where PyTorch takes 32 (docs/performance.md)."""

import numpy as np
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from veco_fairseq.modules.device import on_cpu

VALUES = 2**16  # that a random number can have

_fairseq_forward = FairseqDropout.forward


# An operator of PyTorch, so that a model can also run on tensors without data. torch.library.custom_op would import PyTorch's
# compiler when it is first called, which takes a second.
OPERATORS = torch.library.Library("veco", "FRAGMENT")
OPERATORS.define("random_numbers(int count) -> Tensor", tags=torch.Tag.nondeterministic_seeded)


@torch.library.impl(OPERATORS, "random_numbers", "CompositeExplicitAutograd")
def random_numbers(count: int) -> Tensor:
    """Return ``count`` random 64-bit numbers of NumPy's SFC64, in half the time of PyTorch's generator, which gives the seed."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    return torch.from_numpy(np.random.SFC64(seed).random_raw(count).view(np.int64))


@torch.library.register_fake("veco::random_numbers", lib=OPERATORS)
def _(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.int64)


def forward(module: FairseqDropout, x: Tensor, inplace: bool = False) -> Tensor:
    """Set a share ``module.p`` of x's elements to 0, and scale the others to keep the mean; in inference return x.

    On a CPU, where PyTorch draws one number for every element, this cuts each of :func:`random_numbers` into four 16-bit
    numbers. The probability is exact to 1/65,536.
    """
    dropped = round(module.p * VALUES)
    if not on_cpu(x) or not (dropped and (module.training or module.apply_during_inference)):
        return _fairseq_forward(module, x, inplace)
    numbers = torch.ops.veco.random_numbers((x.numel() + 3) // 4).view(torch.int16)
    # PyTorch compares into the type of x in a third of the time that a conversion from boolean takes.
    keep = torch.empty(x.shape, dtype=x.dtype)
    torch.gt(numbers[: x.numel()].view(x.shape), dropped - 1 - VALUES // 2, out=keep)
    return x * keep.mul_(VALUES / max(1, VALUES - dropped))
