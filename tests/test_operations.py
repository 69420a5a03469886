# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Counted operations against formulas."""

import torch

from veco_fairseq.operations import counter


def counted(function) -> int:
    with counter() as operations:
        function()
    return operations.get_total_flops()


def test_attention_is_counted_on_a_cpu_too():
    """With and without dropout PyTorch takes different paths; the operations are q k^T, p v, and twice that back."""
    batch, heads, length, dim = 2, 3, 16, 8
    q = torch.randn(batch, heads, length, dim, requires_grad=True)
    product = 2 * batch * heads * length * length * dim
    attention = torch.nn.functional.scaled_dot_product_attention
    assert counted(lambda: attention(q, q, q)) == 2 * product
    assert counted(lambda: attention(q, q, q, dropout_p=0.1).sum().backward()) == 6 * product
    # The fused kernel keeps no attention weights and computes q k^T again.
    assert counted(lambda: attention(q, q, q).sum().backward()) == 7 * product
