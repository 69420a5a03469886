# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Projection to the vocabulary and its cross-entropy in one, for vocabularies whose logits don't fit in memory."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# At most so many logits at a time: 512 MiB in fp32. Half as many took a CPU a tenth longer in bf16.
LOGITS_A_CHUNK = 2**27


def masked_loss(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> Tuple[Tensor, Tensor]:
    """The NLL of each row's token under softmax(rows weight^T + bias), and whether it is the likeliest token.

    Computed for :data:`LOGITS_A_CHUNK` logits at a time. The gradients are made from each chunk's logits while they
    are there, in the forward pass, and scaled in the backward pass: no logit is kept, and none computed twice.
    Under autocast the products are computed in its precision; logits, loss and weight gradient are in fp32.

    Args:
        rows: (n, dim).
        weight: (vocabulary, dim).
        bias: (vocabulary).
        gold: the right tokens, (n).

    Returns:
        NLL in nats, fp32, (n), and boolean (n).
    """
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))
    with torch.autocast(rows.device.type, enabled=False):
        if torch.is_grad_enabled():
            return _MaskedLoss.apply(rows, weight, bias, gold)
        return _by_chunks(rows, weight, bias, gold, needed=(False,) * 3)[:2]


class _MaskedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, bias, gold):
        # In fp16 a gradient has to be scaled (by the loss scale) before it is rounded, so that it is made afterwards.
        needed = ctx.needs_input_grad[:3] if rows.dtype != torch.float16 else (False,) * 3
        nll, correct, gradients = _by_chunks(rows, weight, bias, gold, needed)
        ctx.save_for_backward(rows, weight, bias, gold)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(correct)
        return nll, correct

    @staticmethod
    @once_differentiable
    def backward(ctx, scale, _):
        rows, weight, bias, gold = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or rows.dtype == torch.float16 or not torch.equal(scale, scale[:1].expand_as(scale)):
            *_, gradients = _by_chunks(rows, weight, bias, gold, ctx.needs_input_grad[:3], scale)
        elif len(scale):
            gradients = [gradient if gradient is None else gradient.mul_(scale[0]) for gradient in gradients]
        return *gradients, None


def _by_chunks(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, needed, scale: Optional[Tensor] = None):
    """NLL, correctness, and the gradients of the sum of ``scale`` * NLL that are ``needed``."""
    w, b = weight.to(rows.dtype), bias.to(rows.dtype)
    nll = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
    correct = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    d_rows = torch.empty_like(rows) if needed[0] else None
    d_weight = None
    d_bias = torch.zeros_like(bias, dtype=torch.float32) if needed[2] else None
    size = max(1, LOGITS_A_CHUNK // len(weight))
    # Of few rows, to cast the weight gradient's product to fp32 and add it takes a CPU longer than the product itself.
    accumulate_in_fp32 = rows.device.type == "cpu" and size < 512
    for start in range(0, len(rows), size):
        here = slice(start, start + size)
        x, target = rows[here], gold[here].unsqueeze(1)
        logits = F.linear(x, w, b).float()
        top, likeliest = logits.max(1, keepdim=True)
        correct[here] = likeliest.eq(target).squeeze(1)
        at_target = logits.gather(1, target)
        p = torch.softmax(logits, 1, out=logits)
        # log of the sum of exp(logits), by the likeliest token, whose probability never underflows
        total = top - p.gather(1, likeliest).log()
        nll[here] = (total - at_target).squeeze(1)
        if any(needed):
            # d NLL / d logits = softmax - one-hot
            p.scatter_add_(1, target, -torch.ones_like(top))
            if scale is not None:
                p.mul_(scale[here].unsqueeze(1))
            if d_bias is not None:
                d_bias += p.sum(0)
            rounded = p.to(rows.dtype)
            if not accumulate_in_fp32:
                del logits, p  # or their memory adds to that of the weight gradient's product
            if needed[1]:
                of_weight = (p, x.float()) if accumulate_in_fp32 else (rounded, x)
                if d_weight is None:
                    d_weight = torch.mm(of_weight[0].t(), of_weight[1]).float()
                elif of_weight[0].dtype == d_weight.dtype:
                    torch.addmm(d_weight, of_weight[0].t(), of_weight[1], out=d_weight)
                else:
                    d_weight += torch.mm(of_weight[0].t(), of_weight[1])
            if d_rows is not None:
                torch.mm(rounded, w, out=d_rows[here])
    if needed[1] and d_weight is None:  # there were no rows
        d_weight = torch.zeros_like(weight, dtype=torch.float32)
    gradients = [d_rows, d_weight, d_bias]
    parameters = (rows, weight, bias)
    return nll, correct, [g if g is None else g.to(p.dtype) for g, p in zip(gradients, parameters)]
