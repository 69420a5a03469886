# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Dropout whose random numbers are cheap on a CPU."""

import torch
import torch.nn as nn
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

VALUES = 2**16  # that a random number can have


class Dropout(FairseqDropout):
    """Dropout that, on a CPU, cuts each of the generator's numbers into four 16-bit numbers.

    PyTorch draws one number for every element, which took 14% of an update on a CPU (docs/performance.md). The
    probability is exact to 1/65,536.
    """

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Set a share ``p`` of x's elements to 0, and scale the others to keep the mean; in inference return x."""
        dropped = round(self.p * VALUES)
        if x.device.type != "cpu" or not (dropped and (self.training or self.apply_during_inference)):
            return super().forward(x, inplace)
        numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        keep = numbers[: x.numel()].view(x.shape).gt(dropped - 1 - VALUES // 2)
        return x * keep.to(x.dtype).mul_(VALUES / max(1, VALUES - dropped))


def with_cheap_dropout(model: nn.Module) -> None:
    """Replace every :class:`FairseqDropout` in a model by :class:`Dropout`."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is FairseqDropout:
                setattr(module, name, Dropout(child.p, child.module_name))
