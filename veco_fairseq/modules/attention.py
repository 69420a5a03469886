# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Attention as VECO's layers use it, with the faster kernel."""

from contextlib import AbstractContextManager, nullcontext

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

# Up to this length, PyTorch 2.13's unfused attention is faster in bf16 on a CPU: see docs/performance.md.
UNFUSED_LENGTH = 128


def kernel(x: Tensor, memory: Tensor | None) -> AbstractContextManager:
    """Return the context in which PyTorch computes attention fused or unfused, whichever is faster.

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
    """Return the attention of ``query`` to ``memory``; nothing is causal.

    Args:
        attention: has the projections and the dropout.
        query: (length, batch, dim).
        memory: keys and values, (memory length, batch, dim).
        padding_mask: (batch, memory length), true where ``memory`` is padding.
        need_weights: also return the weights, as the mean over the heads, (batch, length, memory length).
    """
    if torch.is_autocast_enabled(query.device.type):
        # Once, and not before each of the three projections.
        precision = torch.get_autocast_dtype(query.device.type)
        query, memory = (query.to(precision),) * 2 if memory is query else (query.to(precision), memory.to(precision))
    return attention(query, memory, memory, key_padding_mask=padding_mask, need_weights=need_weights)
