# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tokens drawn from a generator's distribution (XLM-E, equations 2 and 4)."""

from typing import NamedTuple

import torch
from torch import Tensor

# At most so many probabilities are added up at a time: 16 MiB in fp32 stay in a CPU's cache; a GPU is to be kept busy.
PROBABILITIES_A_PART = {"cpu": 2**22, "cuda": 2**26}


class Draw(NamedTuple):
    """What decides which tokens are drawn, besides their probabilities.

    One number a token is enough: it is looked up in the running total of the probabilities. Which tokens come out does
    not depend on how the rows are cut into chunks.

    Attributes:
        numbers: uniform in [0, 1), (n).
        first, last: tokens are drawn from ``first`` on and before ``last`` alone, in proportion to their probabilities.
    """

    numbers: Tensor
    first: int
    last: int

    def __call__(self, probabilities: Tensor, rows: slice) -> Tensor:
        """A token for each row.

        Args:
            probabilities: (rows, vocabulary), fp32.
            rows: their place in ``numbers``.

        Returns:
            (rows), int64.
        """
        limit = PROBABILITIES_A_PART.get(probabilities.device.type, probabilities.numel())
        size = max(1, limit // probabilities.shape[1])
        parts = []
        for of_part, numbers in zip(probabilities.split(size), self.numbers[rows].unsqueeze(1).split(size)):
            totals = of_part[:, self.first : self.last].cumsum(1)
            # The first token whose running total is above; of numbers that are not finite, which training has no use
            # for any more, it is the last one.
            parts.append(torch.searchsorted(totals, numbers * totals[:, -1:], right=True))
        return torch.cat(parts).squeeze(1).clamp(max=self.last - self.first - 1) + self.first
