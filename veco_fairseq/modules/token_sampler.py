# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tokens drawn from a generator's distribution (XLM-E, equations 2 and 4)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from veco_fairseq.modules.products import with_zeros

# The most probabilities that are added up at a time: 16 MiB in fp32 stay in a CPU's cache; a GPU needs more to be busy.
PROBABILITIES_A_PART = {"cpu": 2**22, "cuda": 2**26}


@dataclass(frozen=True, slots=True)
class Draw:
    """Draws tokens by their probabilities and by given random numbers.

    Each token takes one number, which is looked up in the running total of the probabilities. So the drawn tokens do not
    depend on how the rows are cut into chunks.

    Attributes:
        numbers: uniform in [0, 1), (n).
        first, last: only tokens from ``first`` to before ``last`` are drawn, in proportion to their probabilities.
    """

    numbers: Tensor
    first: int
    last: int

    def __call__(self, probabilities: Tensor, rows: slice) -> Tensor:
        """Return a token for each row.

        Args:
            probabilities: or numbers in proportion to them, (rows, vocabulary), fp32.
            rows: their place in ``numbers``; those beyond it, which were added, take 0.

        Returns:
            (rows), int64.
        """
        limit = PROBABILITIES_A_PART.get(probabilities.device.type, probabilities.numel())
        size = max(1, limit // probabilities.shape[1])
        parts, all_numbers = [], with_zeros(self.numbers[rows], len(probabilities)).unsqueeze(1)
        for of_part, numbers in zip(probabilities.split(size), all_numbers.split(size)):
            totals = of_part[:, self.first : self.last].cumsum(1)
            # The first token whose running total is above the number. If probabilities are not finite, it is the last one:
            # training fails then anyway.
            parts.append(torch.searchsorted(totals, numbers * totals[:, -1:], right=True))
        return torch.cat(parts).squeeze(1).clamp(max=self.last - self.first - 1) + self.first
