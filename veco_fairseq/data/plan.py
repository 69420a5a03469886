# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which pairs make up which batch: a function of (seed, epoch, number) alone, planned without reading a token."""

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence

import numpy as np
from fairseq.data import data_utils

from veco_fairseq.errors import UserError

# One drawn pair: of which source, the how-manieth time it is drawn (its masks depend on that), and its number.
DRAW = np.dtype([("source", np.int32), ("epoch", np.int32), ("index", np.int64)])


KINDS = ("mono", "bitext")


def sampling_probabilities(sentences: Sequence[int], alpha: float) -> np.ndarray:
    """p_l ~ (D_l / sum D)^alpha (VECO, section 4, after XLM), D in sentences."""
    shares = np.asarray(sentences, dtype=np.float64)
    weights = (shares / shares.sum()) ** alpha
    return weights / weights.sum()


@dataclass
class HalfPlan:
    """The batches of one kind (monolingual or bitext).

    A *pass* draws as many pairs as the sources have together, from each in proportion to its probability. A source's
    draws continue from pass to pass through its own permutations, so that every pair is drawn once before any
    of the same source is drawn again.

    Args:
        kind: "mono" or "bitext".
        sources: see :mod:`veco_fairseq.data.pairs`.
        alpha: of :func:`sampling_probabilities`.
        max_tokens: cap on a batch's padded tokens, x and y together.
        batch_size: cap on a batch's pairs, or None.
        seed: of everything.

    Attributes:
        probabilities: of each source, by which it is sampled.
        batches_per_pass: the number of batches in the first pass.

    Raises:
        UserError: a pair does not fit ``max_tokens``.
    """

    kind: str
    sources: Sequence
    alpha: float
    max_tokens: int
    batch_size: Optional[int]
    seed: int

    def __post_init__(self):
        self.probabilities = sampling_probabilities([source.sentences for source in self.sources], self.alpha)
        self.pairs = sum(len(source) for source in self.sources)
        longest = max(int(source.lengths.max()) for source in self.sources)
        if 2 * longest > self.max_tokens:
            raise UserError(
                f"--max-tokens {self.max_tokens} cannot hold a {self.kind} pair of twice {longest} tokens: "
                f"raise it to {2 * longest}, or lower --{self.kind}-max-length"
            )
        self.batches_per_pass = len(self._batches(0, 1.0))

    def __str__(self) -> str:
        shares = ", ".join(f"{s.name} {p:.4f}" for s, p in zip(self.sources, self.probabilities))
        return f"{self.kind}: {self.pairs:,} pairs in {self.batches_per_pass:,} batches a pass; sampled: {shares}"

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, KINDS.index(self.kind), *key))

    def _draws(self, number: int, share: float) -> np.ndarray:
        """The draws of pass ``number`` when each pass is ``share`` of a whole one."""
        parts = []
        for identity, (source, probability) in enumerate(zip(self.sources, self.probabilities)):
            quota = probability * self.pairs * share
            positions = np.arange(int(number * quota), int((number + 1) * quota))
            draws = np.empty(len(positions), dtype=DRAW)
            draws["source"] = identity
            draws["epoch"] = positions // len(source)
            for epoch in np.unique(draws["epoch"]):
                rng = self._rng(identity, int(epoch))
                here = draws["epoch"] == epoch
                draws["index"][here] = rng.permutation(len(source))[positions[here] % len(source)]
            parts.append(draws)
        return np.concatenate(parts)

    def _batches(self, number: int, share: float) -> List[np.ndarray]:
        """The batches of a pass: pairs of like length together, in random order."""
        draws = self._draws(number, share)
        rng = self._rng(len(self.sources), number)
        draws = draws[rng.permutation(len(draws))]
        lengths = np.empty(len(draws), dtype=np.int64)
        for identity, source in enumerate(self.sources):
            here = draws["source"] == identity
            lengths[here] = source.lengths[draws["index"][here]].max(axis=1)
        order = np.argsort(lengths, kind="stable")
        batches = data_utils.batch_by_size(
            order, None, 2 * lengths[order], max_tokens=self.max_tokens, max_sentences=self.batch_size
        )
        return [draws[batches[i]] for i in rng.permutation(len(batches))]

    def epoch(self, epoch: int, count: int) -> Iterator[np.ndarray]:
        """Exactly ``count`` batches for epoch ``epoch`` (from 1 on), each an array of :data:`DRAW`.

        The half starts again, reshuffled, as often as it takes. So that every epoch has the same number of batches,
        a pass is shortened to an equal share of the epoch; what its batching leaves over is not drawn,
        and what is short is made up by halving batches.
        """
        passes = -(-count // self.batches_per_pass)
        # At least a pair a source and one more, so that rounding leaves no pass empty.
        share = min(1.0, max(count / (passes * self.batches_per_pass), (len(self.sources) + 1) / self.pairs))
        for number in range(passes):
            batches = self._batches((epoch - 1) * passes + number, share)
            if number == passes - 1:
                batches = _make_exactly(count, batches)
            batches = batches[:count]
            count -= len(batches)
            yield from batches


def _make_exactly(count: int, batches: List[np.ndarray]) -> List[np.ndarray]:
    """Drop batches from the end, or halve the largest, until there are ``count``; repeat some as a last resort."""
    batches = batches[:count]
    planned = len(batches)
    while len(batches) < count:
        largest = max(range(len(batches)), key=lambda i: len(batches[i]))
        batch = batches[largest]
        if len(batch) > 1:
            batches[largest] = batch[::2]
            batches.append(batch[1::2])
        else:
            batches.append(batches[len(batches) - planned])
    return batches
