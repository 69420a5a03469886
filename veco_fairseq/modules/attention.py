# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which kernel computes an attention, and whose numbers its dropout draws: the same function at another speed."""

from contextlib import AbstractContextManager, nullcontext

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

# Up to this length the attention of PyTorch 2.13 is faster unfused, in bf16 on a CPU: see docs/performance.md.
UNFUSED_LENGTH = 128


def kernel(x: Tensor, memory: Tensor | None) -> AbstractContextManager:
    """The context in which PyTorch computes attention fused or unfused, whichever is faster.

    Args:
        x, memory: (length, batch, dim), as in :meth:`veco_fairseq.modules.layer.VecoLayer.forward`.
    """
    longest = max(len(x), 0 if memory is None else len(memory))
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and longest <= UNFUSED_LENGTH:
        return sdpa_kernel(SDPBackend.MATH)
    return nullcontext()


def attend(
    attention: MultiheadAttention, query: Tensor, memory: Tensor, padding_mask: Tensor | None, *, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Attention of ``query`` over ``memory``; nothing is causal.

    Args:
        attention: with its projections and its dropout.
        query: (length, batch, dim).
        memory: keys and values, (memory length, batch, dim).
        padding_mask: (batch, memory length), true where ``memory`` is padding.
        need_weights: also return them, the mean over the heads, (batch, length, memory length).
    """
    # PyTorch's attention draws its own numbers for dropout, which are dear on a CPU. Where keys and values are said to be
    # static, fairseq's MultiheadAttention does without PyTorch's, and asks its dropout_module, whose numbers are cheap.
    without_kernel = query.device.type == "cpu" and attention.training and attention.dropout_module.p > 0
    return attention(query, memory, memory, key_padding_mask=padding_mask, need_weights=need_weights, static_kv=without_kernel)
