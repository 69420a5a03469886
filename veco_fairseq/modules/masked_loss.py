# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Projection to the vocabulary and cross-entropy in one, for vocabularies whose logits do not fit into memory."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from veco_fairseq.modules import liger

# The most logits at a time: 512 MiB in fp32.
LOGITS_A_CHUNK = 2**27
# The most tokens whose logits a CPU multiplies at a time: the products stay small, and copies of them stay in its cache.
TOKENS_A_BLOCK = 8192


def masked_loss(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Return the NLL of each row's token under softmax(rows weight^T + bias), and whether it is the likeliest token.

    :data:`LOGITS_A_CHUNK` logits are computed at a time. The forward pass makes the gradients from each chunk's logits,
    and the backward pass scales them. So no logit is kept, and none is computed twice. Under autocast the products are
    computed in its precision; logits, loss and weight gradient are in fp32. On a GPU with ``liger-kernel`` its kernels do
    this (:mod:`veco_fairseq.modules.liger`).

    Args:
        rows: (n, dim).
        weight: (vocabulary, dim).
        bias: (vocabulary).
        gold: the right tokens, (n).

    Returns:
        NLL in nats, fp32, (n), and boolean (n).
    """
    return drawn_loss(rows, weight, bias, gold, draw=None)[:2]


def drawn_loss(
    rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, draw: Callable[[Tensor, slice], Tensor] | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return :func:`masked_loss`, and a token for each row, drawn while its softmax is in memory.

    Args:
        rows, weight, bias, gold: as in :func:`masked_loss`.
        draw: returns a token for each row of a chunk. It gets the chunk's probabilities, fp32, (rows of the chunk,
            vocabulary), which it must not change, and its place in ``rows``. See
            :class:`veco_fairseq.modules.token_sampler.Draw`.

    Returns:
        NLL, boolean and tokens, each (n); no tokens without ``draw``. There is no gradient through the tokens.
    """
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))
    with torch.autocast(rows.device.type, enabled=False):
        if torch.is_grad_enabled():
            return _MaskedLoss.apply(rows, weight, bias, gold, draw)
        return _computed(rows, weight, bias, gold, needed=(False,) * 3, draw=draw)[:3]


class _MaskedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, bias, gold, draw):
        # In fp16 a gradient must be scaled (by the loss scale) before it is rounded, so it is made in the backward pass.
        needed = ctx.needs_input_grad[:3] if rows.dtype != torch.float16 else (False,) * 3
        nll, correct, drawn, gradients = _computed(rows, weight, bias, gold, needed=needed, draw=draw)
        ctx.save_for_backward(rows, weight, bias, gold)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(correct, *([] if drawn is None else [drawn]))
        return nll, correct, drawn

    @staticmethod
    @once_differentiable
    def backward(ctx, scale, *_):
        rows, weight, bias, gold = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or rows.dtype == torch.float16 or not torch.equal(scale, scale[:1].expand_as(scale)):
            *_, gradients = _computed(rows, weight, bias, gold, needed=ctx.needs_input_grad[:3], scale=scale)
        elif len(scale):
            gradients = [gradient if gradient is None else gradient.mul_(scale[0]) for gradient in gradients]
        return *gradients, None, None


def _computed(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, needed, scale: Tensor | None = None, draw=None):
    """Return NLL, correctness, the tokens of ``draw``, and the ``needed`` gradients of the sum of ``scale`` * NLL."""
    if draw is None and liger.serves(rows):
        nll, correct, gradients = liger.fused_loss(
            rows, weight, bias, gold, needed=needed, scale=scale, logits_a_chunk=LOGITS_A_CHUNK
        )
        return nll, correct, None, gradients
    return _by_chunks(rows, weight, bias, gold, needed=needed, scale=scale, draw=draw)


def _by_chunks(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, needed, scale: Tensor | None, draw):
    """Compute the same by chunks, without Liger's kernels."""
    w, b = weight.to(rows.dtype), bias.to(rows.dtype)
    block = TOKENS_A_BLOCK if rows.device.type == "cpu" else len(weight)
    weights, biases = w.split(block), b.split(block)
    of_rows = {"dtype": rows.dtype, "device": rows.device}
    in_fp32 = {"dtype": torch.float32, "device": rows.device}
    nll = torch.empty(len(rows), **in_fp32)
    correct = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    drawn = None if draw is None else torch.empty_like(gold)
    d_rows = torch.empty_like(rows) if needed[0] else None
    d_weight = torch.zeros(weight.shape, **in_fp32) if needed[1] else None
    d_bias = torch.zeros(bias.shape, **in_fp32) if needed[2] else None
    size = max(1, LOGITS_A_CHUNK // len(weight))
    # All chunks share memory: on a CPU, new memory costs as much time as the computation in it.
    chunk = (min(size, len(rows)), len(weight))
    logits_of_chunk = torch.empty(chunk, **in_fp32)
    rounded_of_chunk = None if rows.dtype == torch.float32 else torch.empty(chunk, **of_rows)
    for start in range(0, len(rows), size):
        here = slice(start, start + size)
        x, target = rows[here], gold[here].unsqueeze(1)
        logits = logits_of_chunk[: len(x)]
        rounded = logits if rounded_of_chunk is None else rounded_of_chunk[: len(x)]
        for of_block, bias_of_block, w_of_block in zip(logits.split(block, 1), biases, weights):
            of_block.copy_(torch.addmm(bias_of_block, x, w_of_block.t()))
        top, likeliest = logits.max(1, keepdim=True)
        correct[here] = likeliest.eq(target).squeeze(1)
        at_target = logits.gather(1, target)
        p = torch.softmax(logits, 1, out=logits)
        # log of the sum of exp(logits), by the likeliest token, whose probability never underflows
        total = top - p.gather(1, likeliest).log()
        nll[here] = (total - at_target).squeeze(1)
        if draw is not None:
            drawn[here] = draw(p, here)
        if any(needed):
            # d NLL / d logits = softmax - one-hot
            p.scatter_add_(1, target, -torch.ones_like(top))
            if scale is not None:
                p.mul_(scale[here].unsqueeze(1))
            rounded.copy_(p)
            if d_rows is not None:
                torch.mm(rounded, w, out=d_rows[here])
            if d_weight is not None:
                for of_block, columns in zip(d_weight.split(block), rounded.split(block, 1)):
                    of_block += torch.mm(columns.t().contiguous(), x)
            if d_bias is not None:
                d_bias += p.sum(0)
    gradients = [d_rows, d_weight, d_bias]
    parameters = (rows, weight, bias)
    return nll, correct, drawn, [g if g is None else g.to(p.dtype) for g, p in zip(gradients, parameters)]
