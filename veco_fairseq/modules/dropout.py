# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Dropout whose random numbers are cheap on a CPU: PyTorch's took 14% of an update there (docs/performance.md)."""

import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

VALUES = 2**16  # that a random number can have

_fairseq_forward = FairseqDropout.forward
_fairseq_attention = MultiheadAttention.forward


def forward(module: FairseqDropout, x: Tensor, inplace: bool = False) -> Tensor:
    """Set a share ``module.p`` of x's elements to 0, and scale the others to keep the mean; in inference return x.

    On a CPU, where PyTorch draws one number for every element, this cuts each number into four 16-bit numbers. The
    probability is exact to 1/65,536.
    """
    dropped = round(module.p * VALUES)
    if x.device.type != "cpu" or not (dropped and (module.training or module.apply_during_inference)):
        return _fairseq_forward(module, x, inplace)
    numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    keep = numbers[: x.numel()].view(x.shape).gt(dropped - 1 - VALUES // 2)
    return x * keep.to(x.dtype).mul_(VALUES / max(1, VALUES - dropped))


def attention(module: MultiheadAttention, query: Tensor, *args, incremental_state=None, static_kv: bool = False, **kwargs):
    """Compute fairseq's attention without PyTorch's, which draws its own numbers, in training with dropout on a CPU.

    With static keys and values fairseq does not call PyTorch's. Without an incremental state they change nothing else.
    """
    if incremental_state is None:
        static_kv = static_kv or without_kernel(module, query)
    return _fairseq_attention(module, query, *args, incremental_state=incremental_state, static_kv=static_kv, **kwargs)


def without_kernel(module: MultiheadAttention, query: Tensor) -> bool:
    """Return whether PyTorch's attention would draw numbers for dropout on a CPU."""
    return query.device.type == "cpu" and module.training and module.dropout_module.p > 0
