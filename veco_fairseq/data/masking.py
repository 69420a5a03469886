# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Masks for one sequence, which depend only on its random generator."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor


def masked_places(targets: Tensor, pad: int) -> Tensor:
    """Return where ``targets``, flattened, have no padding: ascending, (masked). On a GPU this waits for it."""
    return targets.flatten().ne(pad).nonzero().squeeze(1)


def positions(places: Tensor, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the indices of ``places`` for each dimension of ``shape``, as torch.unravel_index does.

    That function copies the shape to a GPU, and waits for it.
    """
    found = []
    for size in reversed(shape):
        found.append(places % size)
        places = places // size
    return tuple(reversed(found))


class Corruption(NamedTuple):
    """The shares of the tokens to predict that are masked, and that are replaced at random. The others stay."""

    masked: float
    replaced: float


BERTS = Corruption(0.8, 0.1)
ALL_MASKED = Corruption(1.0, 0.0)


class Masker:
    """Chooses tokens to predict and corrupts them (VECO, Table 8).

    It chooses a share of a sequence's ordinary tokens, rounded at random, and at least one. A share of the chosen tokens
    becomes ``<mask>``, another becomes a random ordinary token, and the others stay. Special tokens, also ``<unk>``, are
    never chosen.

    Args:
        dictionary: with ``<mask>`` as its last symbol; the ordinary tokens lie between the specials and ``<mask>``.
        mask_index: the id of ``<mask>``.
        probability: the share to predict, in (0, 1].
        corruption: of the tokens to predict.
    """

    def __init__(self, dictionary: Dictionary, mask_index: int, probability: float, corruption: Corruption = BERTS):
        self.dictionary, self.mask_index, self.probability = dictionary, mask_index, probability
        self.corruption = corruption

    def __call__(self, tokens: Tensor, rng: np.random.Generator, more: float = 0.0) -> tuple[Tensor, Tensor]:
        """Mask one sequence.

        Args:
            tokens: (length,), with ``<s>`` and ``</s>``.
            rng: the only source of randomness.
            more: added to ``probability`` for this sequence.

        Returns:
            The corrupted tokens, and the targets: the original token where one was chosen, padding elsewhere.
        """
        ids = tokens.numpy()
        (ordinary,) = ((ids >= self.dictionary.nspecial) & (ids != self.mask_index)).nonzero()
        count = min(len(ordinary), max(1, int((self.probability + more) * len(ordinary) + rng.random())))
        chosen = rng.choice(ordinary, count, replace=False) if count else ordinary
        fate = rng.random(count)
        replacement = np.where(
            fate < self.corruption.masked,
            self.mask_index,
            rng.integers(self.dictionary.nspecial, self.mask_index, count),
        )
        corrupted, targets, originals = ids.copy(), np.full(len(ids), self.dictionary.pad()), ids[chosen]
        targets[chosen] = originals
        corrupted[chosen] = np.where(fate < sum(self.corruption), replacement, originals)
        return torch.from_numpy(corrupted), torch.from_numpy(targets)
