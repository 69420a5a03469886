# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Gives each translation of a batch the length that it would have alone."""

import math
from collections.abc import Sequence

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor


class OwnLengths:
    """Ends each translation at the length that its own source allows.

    fairseq's search lets all go on to what the longest source of the batch allows, and lets one without a prefix be empty in
    a batch with prefixes. And it fails where a sentence's constraints do not fit; with this, it finds nothing of it.

    Args:
        generator: whose search is changed.
    """

    def __init__(self, generator: SequenceGenerator):
        self.generator, self.fairseq_step = generator, generator.search.step
        self.most, self.least = torch.empty(0), 0
        generator.search.step = self.step
        generator.search.stop_on_max_len = True

    def begin(self, sizes: Sequence[int]) -> list[int]:
        """Return the most pieces of each sentence's translation.

        Args:
            sizes: of the sources, by the "id" that they have in the batches to come.
        """
        own = self.generator
        most = [min(int(own.max_len_a * size + own.max_len_b), own.max_len - 1) for size in sizes]
        self.most, self.least = torch.tensor(most), min(most, default=0)
        return most

    def step(self, step: int, lprobs: Tensor, scores: Tensor, tokens: Tensor, numbers: Tensor):
        """Do a step of the search, in which only ``</s>`` may follow what is long enough, and not what is too short."""
        eos = self.generator.eos
        if step < self.generator.min_len:
            lprobs[..., eos] = -math.inf
        if step >= self.least:
            self.most = self.most.to(numbers.device)
            ended, last = self.most[numbers] <= step, lprobs[..., eos].clone()
            lprobs.masked_fill_(ended[:, None, None], -math.inf)
            lprobs[..., eos] = last
        return self.fairseq_step(step, lprobs, scores, tokens, numbers)
