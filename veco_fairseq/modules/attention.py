# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Attention as VECO's layers use it, and the faster way to compute it."""

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from veco_fairseq.modules.device import on_cpu

# Up to this length, the backward pass of PyTorch 2.13's fused attention in bf16 on a CPU is slower than the plain one's.
UNFUSED_LENGTH = 128
# In place of a causal mask's minus infinity: with padding on the left (--left-pad-target), some query may look at no key, and
# its softmax would be NaN.
FAR = -1e30

_fairseq_forward = MultiheadAttention.forward


def forward(
    module: MultiheadAttention,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    key_padding_mask: Tensor | None = None,
    *,
    incremental_state=None,
    static_kv: bool = False,
    attn_mask: Tensor | None = None,
    **kwargs,
):
    """Compute fairseq's attention, in training on a CPU without PyTorch's fused kernel where that is the slower one.

    With static keys and values fairseq does not call PyTorch's. Without an incremental state they change nothing else.
    """
    if incremental_state is None and unfused(module, query, key):
        static_kv = True
        if attn_mask is not None:
            attn_mask = attn_mask.clamp(min=FAR)
    return _fairseq_forward(
        module, query, key, value, key_padding_mask, incremental_state,
        static_kv=static_kv, attn_mask=attn_mask, **kwargs,
    )  # fmt: skip


def unfused(module: MultiheadAttention, query: Tensor, key: Tensor | None) -> bool:
    """Return whether attention is faster without PyTorch's kernel.

    The kernel draws a 32-bit random number for each weight where there is dropout, and in bf16 its backward pass takes three
    times as long for sentences as the plain one.

    Args:
        query, key: (length, batch, dim).
    """
    if not on_cpu(query) or not module.training:
        return False
    longest = max(len(query), 0 if key is None else len(key))
    return module.dropout_module.p > 0 or (torch.is_autocast_enabled("cpu") and longest <= UNFUSED_LENGTH)


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
