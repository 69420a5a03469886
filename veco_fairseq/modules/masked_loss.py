# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Projection to the vocabulary and cross-entropy in one, for vocabularies whose logits do not fit into memory."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from veco_fairseq.modules import liger
from veco_fairseq.modules.device import on_cpu
from veco_fairseq.modules.logits import Block, add_up
from veco_fairseq.modules.products import product, product_of_columns, turned, whole, with_zeros

# The most logits at a time: 512 MiB in fp32.
LOGITS_A_CHUNK = 2**27
# A CPU keeps them in the precision of the rows, and without a copy of the weight in 16 bits.
TIMES_IN_16_BITS = 3
# A GPU has four times as many: every chunk reads the whole weight and its gradient again.
TIMES_ON_A_GPU = 4
# Products of 16-bit numbers on a GPU take the fast kernels if their sides are multiples of this.
ALIGNED = 64
# The bias of the rows that are added for this: no softmax sees them.
NEVER = -1e30
# The most rows at a time on a CPU, where more make no product faster.
ROWS_A_CHUNK = 1536
# The most tokens whose logits a CPU multiplies at a time: the products stay small, and copies of them stay in its cache.
TOKENS_A_BLOCK = 4096
# The most of these logits that a CPU adds up at a time: 2 MiB in fp32, which stay in its cache.
LOGITS_A_STRIP = 2**19
# The least share of a block's tokens in the probabilities: its inverse and its product with a row are within bf16's range.
LEAST_SHARE = 1e-30


class Losses(NamedTuple):
    """What :func:`_computed` returns, one entry a row.

    Attributes:
        loss: nats, fp32; the NLL without label smoothing.
        nll: nats, fp32.
        correct: whether no token is likelier than the right one.
        drawn: tokens, or None.
        gradients: of the sum of the losses, or of their products with a scale.
    """

    loss: Tensor
    nll: Tensor
    correct: Tensor
    drawn: Tensor | None
    gradients: list[Tensor | None]


def masked_loss(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Return the NLL of each row's token under softmax(rows weight^T + bias), and whether it is the likeliest token.

    :data:`LOGITS_A_CHUNK` logits are computed at a time. The forward pass makes the gradients from each chunk's logits,
    and the backward pass scales them. So no logit is kept, and none is computed twice. Under autocast the products are
    computed in its precision; loss and weight gradient are in fp32. On a GPU with ``liger-kernel`` its kernels do
    this (:mod:`veco_fairseq.modules.liger`).

    Args:
        rows: (n, dim).
        weight: (vocabulary, dim).
        bias: (vocabulary).
        gold: the right tokens, (n).

    Returns:
        NLL in nats, fp32, (n), and boolean (n).
    """
    found = _losses(rows, weight, bias, gold)
    return found.loss, found.correct


def drawn_loss(
    rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, draw: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return :func:`masked_loss`, and a token for each row, drawn while its softmax is in memory.

    Args:
        rows, weight, bias, gold: as in :func:`masked_loss`.
        draw: returns a token for each row of a chunk. It gets numbers in proportion to the chunk's probabilities, fp32,
            (rows of the chunk, vocabulary), and its place in ``rows``. See
            :class:`veco_fairseq.modules.token_sampler.Draw`.

    Returns:
        NLL, boolean and tokens, each (n). There is no gradient through the tokens.
    """
    found = _losses(rows, weight, bias, gold, draw=draw)
    assert found.drawn is not None
    return found.loss, found.correct, found.drawn


def smoothed_loss(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the label-smoothed loss of each row, as in PyTorch's cross_entropy, and its NLL, which has no gradient.

    Args:
        rows, weight, bias, gold: as in :func:`masked_loss`.
        smoothing: the share of the target that all tokens share, the right one included.

    Returns:
        (1 - smoothing) NLL + smoothing * mean over all tokens of -log P(token), and the NLL: nats, fp32, (n).
    """
    found = _losses(rows, weight, bias, gold, smoothing=smoothing)
    return found.loss, found.nll


def _losses(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, draw=None, smoothing: float = 0.0) -> Losses:
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))
    with torch.autocast(rows.device.type, enabled=False):
        if torch.is_grad_enabled():
            return Losses._make((*_MaskedLoss.apply(rows, weight, bias, gold, draw, smoothing), []))
        return _computed(rows, weight, bias, gold, needed=(False,) * 3, draw=draw, smoothing=smoothing)


class _MaskedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, bias, gold, draw, smoothing):
        # In fp16 a gradient must be scaled (by the loss scale) before it is rounded, so it is made in the backward pass.
        needed = ctx.needs_input_grad[:3] if rows.dtype != torch.float16 else (False,) * 3
        *found, gradients = _computed(rows, weight, bias, gold, needed=needed, draw=draw, smoothing=smoothing)
        ctx.save_for_backward(rows, weight, bias, gold)
        ctx.gradients, ctx.smoothing = gradients, smoothing
        ctx.mark_non_differentiable(*(tensor for tensor in found[1:] if tensor is not None))
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx, scale, *_):
        rows, weight, bias, gold = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or rows.dtype == torch.float16 or not _all_equal(scale):
            needed = ctx.needs_input_grad[:3]
            *_, gradients = _computed(rows, weight, bias, gold, needed=needed, scale=scale, smoothing=ctx.smoothing)
        elif len(scale) and not (on_cpu(scale) and scale[0] == 1):  # a GPU is not waited for
            gradients = [gradient if gradient is None else gradient.mul_(scale[0]) for gradient in gradients]
        return *gradients, None, None, None


def _all_equal(scale: Tensor) -> bool:
    """Return whether all entries are the same; a GPU is not waited for if all are one, as in the gradient of a sum."""
    return scale.stride(0) == 0 or torch.equal(scale, scale[:1].expand_as(scale))


def _computed(
    rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, needed, scale=None, draw=None, smoothing: float = 0.0
) -> Losses:
    """Compute everything, and the ``needed`` gradients of the sum of ``scale`` * loss."""
    fused, parameters = draw is None and not smoothing and liger.serves(rows), (rows, weight, bias)
    if (count := whole(len(rows), rows)) > len(rows):
        scale = with_zeros(torch.ones(len(rows)) if scale is None else scale, count)
        rows, gold = with_zeros(rows, count), with_zeros(gold, count)
    if (fused or not on_cpu(rows)) and rows.dtype != torch.float32:
        weight, bias = aligned(weight, bias, rows.dtype)
    if fused:
        nll, correct, gradients = liger.fused_loss(
            rows, weight, bias, gold, needed=needed, scale=scale, logits_a_chunk=TIMES_ON_A_GPU * LOGITS_A_CHUNK
        )
        found = Losses(nll, nll.detach().clone(), correct, None, gradients)
    else:
        found = _by_chunks(
            rows, weight, bias, gold, tokens=len(parameters[1]), needed=needed, scale=scale, draw=draw, smoothing=smoothing
        )
    # ... without the rows that were added
    gradients = [g if g is None else g[: len(p)].to(p.dtype) for g, p in zip(found.gradients, parameters)]
    here = slice(len(parameters[0]))
    drawn = None if found.drawn is None else found.drawn[here]
    return Losses(found.loss[here], found.nll[here], found.correct[here], drawn, gradients)


def rows_a_chunk(rows: int, vocabulary: int, dtype: torch.dtype, *, for_cpu: bool) -> int:
    """Return how many of the rows have their logits computed at a time. The chunks are equal: each multiplies the whole weight."""
    most = LOGITS_A_CHUNK // max(1, vocabulary)  # none, of a batch without targets whose vocabulary is its targets
    if for_cpu:
        most = min(most if dtype == torch.float32 else TIMES_IN_16_BITS * most, ROWS_A_CHUNK)
    else:
        most *= TIMES_ON_A_GPU
    return max(1, math.ceil(rows / max(1, math.ceil(rows / max(1, most)))))


def _by_chunks(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, *, tokens, needed, scale, draw, smoothing) -> Losses:
    """Compute the same by chunks of rows and, in each, by blocks of tokens, without Liger's kernels; gradients in fp32.

    Weight and bias may have more rows than the ``tokens`` of the vocabulary (see :func:`aligned`).

    The first pass makes the logits of each block and their softmax, which it keeps: reading costs less than multiplying again.
    A row's probabilities are this softmax times the block's share of all, one number. The second pass multiplies the other
    factor of a product by this number, and not the softmax.
    """
    for_cpu, vocabulary = on_cpu(rows), len(weight)
    block = TOKENS_A_BLOCK if for_cpu and draw is None else vocabulary
    size = whole(rows_a_chunk(len(rows), vocabulary, rows.dtype, for_cpu=for_cpu), rows)
    in_fp32: dict[str, Any] = {"dtype": torch.float32, "device": rows.device}
    nll, loss = torch.empty(len(rows), **in_fp32), torch.empty(len(rows), **in_fp32)
    correct = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    drawn = torch.empty_like(gold)
    of_rows = torch.zeros(rows.shape, **in_fp32) if needed[0] else None
    made = torch.empty if len(rows) else torch.zeros
    d_weight = made(weight.shape, **in_fp32) if needed[1] else None
    d_bias = torch.zeros(bias.shape, **in_fp32) if needed[2] else None
    # All chunks share memory: on a CPU, new memory costs as much time as the computation in it.
    memory = rows.new_empty(size * vocabulary)
    scratch = torch.empty(max(vocabulary, LOGITS_A_STRIP) if for_cpu else size * vocabulary, **in_fp32)
    kept = any(needed) or draw is not None
    for start in range(0, len(rows), size):
        here = slice(start, start + size)
        x, target = rows[here], gold[here].unsqueeze(1)
        columns = turned(x) if needed[1] else x
        blocks = [
            Block(slice(first, min(first + block, vocabulary)), len(x), target, bias, memory=memory, scratch=scratch)
            for first in range(0, vocabulary, block)
        ]
        sums = add_up(blocks, x, weight, tokens=tokens, kept=kept, smoothing=bool(smoothing))
        correct[here] = sums.right.ge(sums.top).squeeze(1)
        nll[here] = (sums.total - sums.right).squeeze(1)
        loss[here] = nll[here]
        if smoothing:
            loss[here] += smoothing * (sums.right - sums.of_all / tokens).squeeze(1)
        for part in blocks if kept else ():
            if draw is not None:
                for at, softmax in part.strips(part.softmax):
                    place = slice(start + at.start, start + at.stop)
                    drawn[place] = draw(softmax[:, :tokens], place)
            if not any(needed):
                continue
            share = (part.total - sums.total).exp_().clamp_(min=LEAST_SHARE)
            gradient = part.gradient(share, smoothing=smoothing, tokens=tokens)
            if scale is not None:
                share.mul_(scale[here].unsqueeze(1))
            if rows.dtype == torch.float16:  # whose range the softmax does not have
                for at, numbers in part.strips(gradient):
                    part.logits[at] = numbers.mul_(share[at])
                gradient = part.logits
                share.fill_(1)
            summed = None
            if of_rows is not None:
                of_rows[here].addcmul_(product(gradient, weight[part.tokens].to(x.dtype)), share)
            if d_weight is not None:  # the first chunk writes it, and the others add to it
                put = torch.Tensor.add_ if start else torch.Tensor.copy_
                found, summed = product_of_columns(gradient, (columns * share.t()).to(x.dtype))
                put(d_weight[part.tokens], found)
            if d_bias is not None:
                d_bias[part.tokens] += torch.mv(gradient.t(), share.squeeze(1).to(x.dtype)) if summed is None else summed
    return Losses(loss, nll, correct, None if draw is None else drawn, [of_rows, d_weight, d_bias])


def aligned(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a copy of the weight in ``dtype``, and the bias, with as many rows as makes a multiple of :data:`ALIGNED`.

    The logits of 250,002 tokens would lie two numbers beside the borders at which a GPU reads fast. The rows that are added
    have a probability of 0, and no gradient.
    """
    size = math.ceil(len(weight) / ALIGNED) * ALIGNED
    table, biases = weight.new_zeros((size, weight.shape[1]), dtype=dtype), bias.new_full((size,), NEVER, dtype=torch.float32)
    table[: len(weight)], biases[: len(bias)] = weight, bias
    return table, biases
