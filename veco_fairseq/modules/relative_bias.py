# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Gated relative position bias (XLM-E, section 3.3), and self-attention with it."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from veco_fairseq.modules.attention import is_linear

# The paper does not give the number of d. These are T5's numbers (section 2.1), which it cites for the bias.
BUCKETS = 32
FARTHEST = 128


def buckets(distances: Tensor) -> Tensor:
    """Return T5's bucket of each distance i - j, from query i back to key j.

    Half of the buckets are for keys after the query. In each half, the first buckets hold one distance each, and the
    others grow with the logarithm of the distance. All distances from FARTHEST on share one bucket.
    """
    of_side, exact = BUCKETS // 2, BUCKETS // 4
    far = distances.abs()
    share = torch.log2(far.clamp(min=exact) / exact) / math.log2(FARTHEST / exact)
    grown = (exact + share * (of_side - exact)).long().clamp(max=of_side - 1)
    return torch.where(far < exact, far, grown) + of_side * (distances < 0)


class GatedRelativePositionBias(nn.Module):
    """The bias that is added to the scaled q_i . k_j before the softmax (XLM-E, section 3.3, equation 7)::

        g_update, g_reset = sigmoid(q_i . u), sigmoid(q_i . v)
        r~_{i-j} = w g_reset d_{i-j}
        r_{i-j} = d_{i-j} + g_update d_{i-j} + (1 - g_update) r~_{i-j}

    This is d_{i-j} times a factor that depends on query i. The paper writes it for one head; here every head has its own
    d, u, v and w. d, u and v start from 0, so that there is no bias, and w from 1. No random number is drawn.

    Args:
        heads: of the attention.
        head_dim: d_k.
    """

    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        self.d = nn.Parameter(torch.zeros(heads, BUCKETS))
        self.uv = nn.Parameter(torch.zeros(2, heads, head_dim))
        self.w = nn.Parameter(torch.ones(heads))

    def forward(self, h: Tensor, q_proj: nn.Linear) -> Tensor:
        """Return r, (batch, heads, length, length), for the states ``h``, (length, batch, dim), and W^Q of all heads."""
        gates = torch.sigmoid(self._products(h, q_proj))  # (length, batch, 2 * heads)
        update, reset = gates.permute(1, 2, 0).unsqueeze(-1).chunk(2, dim=1)  # (batch, heads, length, 1) each
        factor = 1 + update + (1 - update) * self.w[:, None, None] * reset
        length = len(h)
        d = self.d[:, buckets(torch.arange(1 - length, length, device=h.device))]  # of i - j, ascending
        d = d.unfold(1, length, 1).flip(2)  # (heads, i, j)
        return factor.type_as(gates).contiguous() * d.type_as(gates)

    def _products(self, h: Tensor, q_proj: nn.Linear) -> Tensor:
        """Return q_i . u of all heads, then q_i . v: (length, batch, 2 * heads)."""
        if not is_linear(q_proj) or q_proj.bias is None:  # somebody's own, such as LoRA's
            q = q_proj(h).unflatten(-1, self.uv.shape[1:])
            return torch.einsum("ghk,ibhk->ibgh", self.uv, q).flatten(2)
        # q_i . u is linear in h_i, so u is multiplied with W^Q once, instead of all states again.
        weight, bias = (part.unflatten(0, self.uv.shape[1:]) for part in (q_proj.weight, q_proj.bias))
        weight, bias = torch.einsum("ghk,hkd->ghd", self.uv, weight), (self.uv * bias).sum(-1)
        return F.linear(h, weight.flatten(0, 1), bias.flatten())


class BiasedSelfAttention(MultiheadAttention):
    """Self-attention with the bias, given to PyTorch's scaled_dot_product_attention as an additive mask.

    PyTorch's fused kernel for GPUs takes a mask with a gradient; its fused kernel for CPUs takes only one without.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, self_attention=True, **kwargs)
        self.relative_bias = GatedRelativePositionBias(self.num_heads, self.head_dim)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute fairseq's attention with the bias, for the arguments of :class:`veco_fairseq.modules.layer.VecoLayer`."""
        bias = self.relative_bias(query, self.q_proj)
        if key_padding_mask is not None:
            bias.masked_fill_(key_padding_mask[:, None, None], -math.inf)  # in place: one mask for both, not three
        return super().forward(query, key, value, need_weights=need_weights, attn_mask=bias.flatten(0, 1))
