# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which pairs make up which batch: a function of (seed, epoch, number) alone, planned without reading a token."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from fairseq.data import data_utils

from veco_fairseq.data.permutation import permuted
from veco_fairseq.errors import UserError

# One drawn pair: of which source, the how-manieth time it is drawn (its masks depend on that), and its number.
DRAW = np.dtype([("source", np.int32), ("epoch", np.int32), ("index", np.int64)])

# Pairs that are sorted by length together: 16 MiB of draws at a time, however many pairs there are.
POOL = 2**20

KINDS = ("mono", "bitext")


def sampling_probabilities(sentences: Sequence[int], alpha: float) -> np.ndarray:
    """p_l ~ (D_l / sum D)^alpha (VECO, section 4, after XLM), D in sentences."""
    shares = np.asarray(sentences, dtype=np.float64)
    weights = (shares / shares.sum()) ** alpha
    return weights / weights.sum()


@dataclass
class StreamPlan:
    """The batches of one kind (monolingual or bitext).

    Pairs are drawn in *pools*, from each source in proportion to its probability, and a pool's pairs of like length
    make up batches. A source's draws continue from pool to pool through its own permutations, so that every pair is
    drawn once before any of the same source is drawn again. A pool is a function of its number: nothing is kept of
    it, nor of a permutation.

    Args:
        kind: "mono" or "bitext".
        sources: see :mod:`veco_fairseq.data.pairs`.
        alpha: of :func:`sampling_probabilities`.
        max_tokens: cap on a batch's padded tokens, x and y together.
        batch_size: cap on a batch's pairs, or None.
        seed: of everything.

    Attributes:
        probabilities: of each source, by which it is sampled.
        batches_per_pass: the number of batches in which as many pairs are drawn as the sources have together.

    Raises:
        UserError: a pair does not fit ``max_tokens``.
    """

    kind: str
    sources: Sequence
    alpha: float
    max_tokens: int
    batch_size: int | None
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
        size = min(self.pairs, POOL)
        self.batches_per_pass = max(1, round(len(self._pool(0, size)) * self.pairs / size))

    def __str__(self) -> str:
        shares = ", ".join(f"{s.name} {p:.4f}" for s, p in zip(self.sources, self.probabilities))
        return f"{self.kind}: {self.pairs:,} pairs in {self.batches_per_pass:,} batches a pass; sampled: {shares}"

    def _key(self, *key: int) -> tuple[int, ...]:
        return (self.seed, KINDS.index(self.kind), *key)

    def _draws(self, number: int, size: float) -> np.ndarray:
        """The draws of pool ``number``, when each has ``size`` pairs on average."""
        parts = []
        for identity, (source, probability) in enumerate(zip(self.sources, self.probabilities)):
            quota = probability * size
            positions = np.arange(int(number * quota), int((number + 1) * quota))
            draws = np.empty(len(positions), dtype=DRAW)
            draws["source"] = identity
            draws["epoch"] = positions // len(source)
            for epoch in np.unique(draws["epoch"]):
                here = draws["epoch"] == epoch
                key = self._key(identity, int(epoch))
                draws["index"][here] = permuted(positions[here] % len(source), len(source), key)
            parts.append(draws)
        return np.concatenate(parts)

    def _pool(self, number: int, size: float) -> list[np.ndarray]:
        """The batches of a pool: pairs of like length together, in random order."""
        draws = self._draws(number, size)
        rng = np.random.default_rng(self._key(len(self.sources), number))
        batches = self.cut(draws[rng.permutation(len(draws))])
        return [batches[i] for i in rng.permutation(len(batches))]

    def cut(self, draws: np.ndarray) -> list[np.ndarray]:
        """Batches of ``draws`` within both caps, from the shortest pairs to the longest."""
        lengths = self._lengths(draws)
        order = np.argsort(lengths, kind="stable")
        batches = data_utils.batch_by_size(
            order, None, 2 * lengths[order], max_tokens=self.max_tokens, max_sentences=self.batch_size
        )
        return [draws[batch] for batch in batches]

    def _lengths(self, draws: np.ndarray) -> np.ndarray:
        """Of each pair's longer side."""
        lengths = np.empty(len(draws), dtype=np.int64)
        for identity in np.unique(draws["source"]):
            here = draws["source"] == identity
            lengths[here] = self.sources[identity].lengths[draws["index"][here]].max(axis=1)
        return lengths

    def longest(self, draws: np.ndarray) -> int:
        """The length, in tokens, to which a batch of these draws is padded."""
        return int(self._lengths(draws).max())

    def epoch(self, epoch: int, count: int) -> Iterator[np.ndarray]:
        """Exactly ``count`` batches for epoch ``epoch`` (from 1 on), each an array of :data:`DRAW`.

        Every epoch has the same number of equal pools, with as many pairs as make ``count`` batches on average; what
        a pool's batching leaves over is not drawn, and what is short is made up by halving batches.
        """
        pairs = count * self.pairs / self.batches_per_pass
        pools = max(1, math.ceil(pairs / POOL))
        # At least a pair a source and one more, so that rounding leaves no pool empty.
        size = max(pairs / pools, len(self.sources) + 1)
        for pool in range(pools):
            wanted = (pool + 1) * count // pools - pool * count // pools
            yield from _make_exactly(wanted, self._pool((epoch - 1) * pools + pool, size))


def _make_exactly(count: int, batches: list[np.ndarray]) -> list[np.ndarray]:
    """Drop batches from the end, or halve the largest, until there are ``count``; repeat some as a last resort."""
    batches = batches[:count]
    while len(batches) < count:
        largest = sorted(range(len(batches)), key=lambda i: -len(batches[i]))[: count - len(batches)]
        halved = [i for i in largest if len(batches[i]) > 1]
        if not halved:
            return (batches * math.ceil(count / len(batches)))[:count]
        batches += [batches[i][1::2] for i in halved]
        for i in halved:
            batches[i] = batches[i][::2]
    return batches
