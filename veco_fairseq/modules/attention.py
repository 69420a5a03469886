# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Attention as VECO's layers use it, and the faster way to compute it."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Linear, Module

from veco_fairseq.modules.device import on_cpu

# Up to this length, PyTorch 2.13's fused kernel in bf16 on a CPU is the slower one. Longer ones take less memory with it.
UNFUSED_LENGTH = 256
# In place of a mask's minus infinity: with padding on the left (--left-pad-target), some query may look at no key, and its
# softmax would be NaN.
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
    need_weights: bool = True,
    static_kv: bool = False,
    attn_mask: Tensor | None = None,
    before_softmax: bool = False,
    need_head_weights: bool = False,
):
    """Compute fairseq's attention, with :func:`plain` where PyTorch's fused kernel is slower or leaves something out.

    Args:
        attn_mask: added to the scores, (length, memory length), or (batch * heads, length, memory length); a boolean one is
            true where nothing is looked at.
    """
    if incremental_state is None:  # else the memory's projections are there already
        query, key, value = rounded_once(query, key, value)
    at_once = incremental_state is None and not (need_head_weights or before_softmax)
    if at_once and key is not None and value is not None and is_usual(module, query, key) and unfused(module, query, key):
        h, weights = plain(module, query, key, value, padding_mask=key_padding_mask, mask=attn_mask)
        return h, weights.float().mean(dim=1) if need_weights else None
    return _fairseq_forward(
        module, query, key, value, key_padding_mask, incremental_state, need_weights=need_weights, static_kv=static_kv,
        attn_mask=attn_mask, before_softmax=before_softmax, need_head_weights=need_head_weights,
    )  # fmt: skip


def is_usual(module: MultiheadAttention, query: Tensor, key: Tensor) -> bool:
    """Return whether softmax(q k^T / sqrt(d) + mask) v is all that the module computes between its projections."""
    sparse = type(module).apply_sparse_mask is not MultiheadAttention.apply_sparse_mask
    return query.shape[1] == key.shape[1] and not (
        sparse or module.use_xformers or module.add_zero_attn or module.bias_k is not None
    )


def plain(
    module: MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute attention with a product, a softmax and a product, all in the precision of the projections.

    The heads lie one after another in memory, so that no product copies its transposed factor number by number.

    Args:
        query: (length, batch, dim).
        key, value: (memory length, batch, dim).
        padding_mask: (batch, memory length), true where the memory is padding.
        mask: as ``attn_mask`` in :func:`forward`.

    Returns:
        The output, (length, batch, dim), and the weights before dropout, (batch, heads, length, memory length).
    """
    q, k, v = (
        projection(x).unflatten(2, (module.num_heads, -1)).permute(1, 2, 0, 3).contiguous()  # (batch, heads, length, head's dim)
        for projection, x in ((module.q_proj, query), (module.k_proj, key), (module.v_proj, value))
    )
    scores = _Scores.apply(q.mul_(module.scaling), k)
    far = max(FAR, torch.finfo(scores.dtype).min / 4)  # fp16 ends before
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(mask, far)
        mask = mask.clamp(min=far).to(scores.dtype)
        scores = scores + (mask if mask.dim() == 2 else mask.view(scores.shape))
    if padding_mask is not None:
        padding = torch.zeros_like(padding_mask, dtype=scores.dtype).masked_fill_(padding_mask.bool(), far)
        scores = scores + padding[:, None, None]
    weights = scores.softmax(dim=-1)
    h = module.dropout_module(weights) @ v
    return module.out_proj(h.permute(2, 0, 1, 3).flatten(2)), weights


class _Scores(torch.autograd.Function):
    """q k^T, whose gradient of k is made as k lies in memory. PyTorch makes that of k^T, which is then copied number by number."""

    @staticmethod
    def forward(ctx, q, k):
        ctx.save_for_backward(q, k)
        return q @ k.transpose(2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_scores):
        q, k = ctx.saved_tensors
        return d_scores @ k, d_scores.transpose(2, 3) @ q


def is_linear(projection: Module) -> bool:
    """Return whether a projection's weight and bias are all that it computes with; a hook may change what comes out of it."""
    return type(projection) is Linear and not projection._forward_hooks


def unfused(module: MultiheadAttention, query: Tensor, key: Tensor | None) -> bool:
    """Return whether :func:`plain` is faster than PyTorch's kernel, or has what the kernel passes over.

    The kernel takes the projections' weights. So it has neither ``--quant-noise-pq`` nor projections of one's own, such as LoRA's.
    The kernel draws a 32-bit random number for each weight where there is dropout, and in bf16 its backward pass takes three
    times as long for sentences as the plain one.

    Args:
        query, key: (length, batch, dim).
    """
    if not all(map(is_linear, (module.q_proj, module.k_proj, module.v_proj, module.out_proj))):
        return True
    if not module.training:
        return False
    if module.q_proj._forward_pre_hooks:
        return True
    if not on_cpu(query):
        return False
    longest = max(len(query), 0 if key is None else len(key))
    return module.dropout_module.p > 0 or (torch.is_autocast_enabled("cpu") and longest <= UNFUSED_LENGTH)


def rounded_once(query: Tensor, *others: Tensor | None) -> list[Any]:
    """Return an attention's inputs in autocast's precision; a tensor that is several of them is still one.

    Each of the three projections would round it for itself, and the gradients would be added up in fp32.
    """
    device, inputs = query.device.type, [query, *others]
    if not torch.is_autocast_enabled(device):
        return inputs
    each = {id(x): x for x in inputs}
    rounded = {key: x if x is None else x.to(torch.get_autocast_dtype(device)) for key, x in each.items()}
    return [rounded[id(x)] for x in inputs]


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
    query, memory = rounded_once(query, memory)
    return attention(query, memory, memory, key_padding_mask=padding_mask, need_weights=need_weights)
