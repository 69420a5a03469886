# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The logits of some rows and some tokens, their softmax, and its gradients (:mod:`veco_fairseq.modules.masked_loss`)."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Block:
    """A chunk's logits of some tokens, and what becomes of them in the same memory.

    Attributes:
        tokens: their place in the vocabulary.
        target: each row's right token, counted from the first of these; any one where it is none of these, (rows, 1).
        has_target: 1.0 or 0.0, (rows, 1).
        bias: of these tokens, fp32.
        logits: without the bias, (rows, tokens).
        softmax: after the first pass, that of these tokens alone, in the same memory; in 16 bits with the range of fp32.
        total: the log of the sum of exp(logits + bias), fp32, (rows, 1).
    """

    def __init__(self, tokens: slice, rows: int, target: Tensor, bias: Tensor, *, memory: Tensor, scratch: Tensor):
        width = tokens.stop - tokens.start
        self.tokens, self.bias = tokens, bias[tokens].float()
        self.target = (target - tokens.start).clamp(0, width - 1)
        self.has_target = target.eq(self.target + tokens.start).float()
        self.logits = memory[tokens.start * rows : tokens.stop * rows].view(rows, width)
        self.softmax = self.logits.view(torch.bfloat16) if self.logits.dtype == torch.float16 else self.logits
        self.total = torch.empty(rows, 1, dtype=torch.float32, device=memory.device)
        self.scratch = scratch

    def strips(self, numbers: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield some rows at a time, and a copy of their numbers in fp32, in memory that the next one takes."""
        height = len(self.scratch) // numbers.shape[1]
        for first in range(0, len(numbers), height):
            at = slice(first, min(first + height, len(numbers)))
            yield at, self.scratch[: numbers[at].numel()].view(numbers[at].shape).copy_(numbers[at])

    def gradient(self, share: Tensor, *, smoothing: float, tokens: int) -> Tensor:
        """Turn the softmax into the gradient of the loss with respect to the logits, divided by ``share``, and return it.

        The gradient is p - (1 - smoothing) one-hot - smoothing / tokens, and the probabilities p are share * softmax. So
        without smoothing one number of each row changes.

        Args:
            share: of these tokens in the probabilities of all, above 0, fp32, (rows, 1).
            smoothing, tokens: the share of the target that all tokens share, and their number.
        """
        right = torch.arange(len(share), device=share.device), self.target.squeeze(1)
        one_hot = self.has_target * ((1 - smoothing) / share)
        self.softmax[right] = (self.softmax[right].unsqueeze(1) - one_hot).squeeze(1).to(self.softmax.dtype)
        if smoothing:
            self.softmax.sub_((smoothing / tokens / share).to(self.softmax.dtype))
        return self.softmax


class Sums(NamedTuple):
    """What :func:`add_up` finds of each row, fp32, (rows, 1).

    Attributes:
        total: the log of the sum of exp(logits).
        right: the right token's logit.
        top: the largest logit.
        of_all: the sum of the logits.
    """

    total: Tensor
    right: Tensor
    top: Tensor
    of_all: Tensor


def add_up(blocks: list[Block], x: Tensor, weight: Tensor, *, tokens: int, kept: bool, smoothing: bool) -> Sums:
    """Make the logits of all blocks, and add up their exp.

    On a CPU, PyTorch's softmax takes 0.7 of the time of its exp alone. The log of a row's sum is its largest logit less the log
    of that one's probability.

    Args:
        blocks: of these rows, one after another through the vocabulary; each gets its logits.
        x: (rows, dim).
        weight: (vocabulary, dim), perhaps with more rows than there are ``tokens``, whose logits are in no ``of_all``.
        kept: whether each block also gets its softmax.
        smoothing: whether ``of_all`` is needed; it is 0 elsewhere.
    """
    top = torch.full((len(x), 1), -torch.inf, dtype=torch.float32, device=x.device)
    of_all, right = torch.zeros_like(top), torch.zeros_like(top)
    for part in blocks:
        torch.mm(x, weight[part.tokens].to(x.dtype).t(), out=part.logits)
        for at, logits in part.strips(part.logits):
            logits.add_(part.bias)
            right[at] += logits.gather(1, part.target[at]).mul_(part.has_target[at])
            if smoothing:
                of_all[at] += logits[:, : max(0, tokens - part.tokens.start)].sum(1, keepdim=True)
            highest = logits.amax(1, keepdim=True)
            top[at] = torch.maximum(top[at], highest)
            torch.softmax(logits, 1, out=logits)
            part.total[at] = highest - logits.amax(1, keepdim=True).log_()
            if kept:
                part.softmax[at] = logits
    return Sums(torch.cat([part.total for part in blocks], 1).logsumexp(1, keepdim=True), right, top, of_all)
