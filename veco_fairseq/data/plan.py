# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Plans the batches: a batch's pairs depend only on seed, epoch and number, and planning reads no token."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from fairseq.data import data_utils

from veco_fairseq.data.permutation import permuted
from veco_fairseq.errors import UserError

# A sampled pair: its source, how often it was sampled before (its masks depend on that), and its number in the source.
EXAMPLE = np.dtype([("source", np.int32), ("epoch", np.int32), ("index", np.int64)])

# Pairs that are sorted by length together: 16 MiB at a time, however many pairs there are.
MEGABATCH = 2**20

KINDS = ("mono", "bitext")


def sampling_probabilities(sentences: Sequence[int], alpha: float) -> np.ndarray:
    """Return p_l ~ (D_l / sum D)^alpha, with D in sentences (VECO, section 4, after XLM)."""
    shares = np.asarray(sentences, dtype=np.float64)
    weights = (shares / shares.sum()) ** alpha
    return weights / weights.sum()


@dataclass
class StreamPlan:
    """The batches of one kind (monolingual or bitext).

    Pairs are sampled in *megabatches*, from each source in proportion to its probability. Pairs of similar length in a
    megabatch form batches. Each source goes through its own permutations from megabatch to megabatch, so every pair is
    sampled once before any pair of the same source is sampled again. A megabatch depends only on its number: neither
    megabatches nor permutations are kept.

    Args:
        kind: "mono" or "bitext".
        sources: see :mod:`veco_fairseq.data.pairs`.
        alpha: of :func:`sampling_probabilities`.
        max_tokens: the most padded tokens in a batch, x and y together.
        batch_size: the most pairs in a batch, or None.
        seed: of all random numbers.
        option: gives ``max_tokens``, for the error.

    Attributes:
        probabilities: of sampling each source.
        batches_per_pass: the number of batches with as many pairs as the sources have together.

    Raises:
        UserError: a pair does not fit ``max_tokens``.
    """

    kind: str
    sources: Sequence
    alpha: float
    max_tokens: int
    batch_size: int | None
    seed: int
    option: str = "--max-tokens"

    def __post_init__(self):
        self.probabilities = sampling_probabilities([source.sentences for source in self.sources], self.alpha)
        self.pairs = sum(len(source) for source in self.sources)
        longest = max(int(source.lengths.max()) for source in self.sources)
        if 2 * longest > self.max_tokens:
            raise UserError(
                f"{self.option} {self.max_tokens} cannot hold a {self.kind} pair of twice {longest} tokens: "
                f"raise it to {2 * longest}, or lower --{self.kind}-max-length"
            )
        size = min(self.pairs, MEGABATCH)
        self.batches_per_pass = max(1, round(len(self._megabatch(0, 0, size)) * self.pairs / size))

    def __str__(self) -> str:
        shares = ", ".join(f"{s.name} {p:.4f}" for s, p in zip(self.sources, self.probabilities))
        return f"{self.kind}: {self.pairs:,} pairs in {self.batches_per_pass:,} batches a pass; sampled: {shares}"

    def _key(self, *key: int) -> tuple[int, ...]:
        return (self.seed, KINDS.index(self.kind), *key)

    def _examples(self, begin: float, end: float) -> np.ndarray:
        """Sample the pairs from place ``begin`` to place ``end`` of the endless sequence of all sources."""
        parts = []
        for identity, (source, probability) in enumerate(zip(self.sources, self.probabilities)):
            positions = np.arange(int(begin * probability), int(end * probability))
            examples = np.empty(len(positions), dtype=EXAMPLE)
            examples["source"] = identity
            examples["epoch"] = positions // len(source)
            epochs, starts = np.unique(examples["epoch"], return_index=True)
            for epoch, here in zip(epochs, map(slice, starts, [*starts[1:], None])):  # a small source has thousands
                key = self._key(identity, int(epoch))
                examples["index"][here] = permuted(positions[here] % len(source), len(source), key)
            parts.append(examples)
        return np.concatenate(parts)

    def _megabatch(self, number: int, begin: float, end: float) -> list[np.ndarray]:
        """Return the batches of megabatch ``number``, each with pairs of similar length, in random order."""
        examples = self._examples(begin, end)
        rng = np.random.default_rng(self._key(len(self.sources), number))
        batches = self.cut(examples[rng.permutation(len(examples))])
        return [batches[i] for i in rng.permutation(len(batches))]

    def cut(self, examples: np.ndarray) -> list[np.ndarray]:
        """Cut pairs into batches within both limits, from the shortest pairs to the longest."""
        lengths = self._lengths(examples)
        order = np.argsort(lengths, kind="stable")
        batches = data_utils.batch_by_size(
            order, None, 2 * lengths[order], max_tokens=self.max_tokens, max_sentences=self.batch_size
        )
        return [examples[batch] for batch in batches]

    def _lengths(self, examples: np.ndarray) -> np.ndarray:
        """Return the length of each pair's longer side."""
        lengths = np.empty(len(examples), dtype=np.int64)
        for identity in np.unique(examples["source"]):
            here = examples["source"] == identity
            lengths[here] = self.sources[identity].lengths[examples["index"][here]].max(axis=1)
        return lengths

    def longest(self, examples: np.ndarray) -> int:
        """Return the length, in tokens, to which a batch of these pairs is padded."""
        return int(self._lengths(examples).max())

    def passes(self, count: int) -> Fraction:
        """Return how far an epoch of this many batches goes: 1 for as many pairs as the sources have together."""
        # At least a pair a source and one more, so that rounding leaves no megabatch empty.
        least = math.ceil((len(self.sources) + 1) * self.batches_per_pass / self.pairs)
        return Fraction(max(count, least), self.batches_per_pass)

    def epoch(self, count: int, before: Sequence[Fraction] = (), start: int = 0) -> Iterator[np.ndarray]:
        """Yield exactly ``count`` batches, each an array of :data:`EXAMPLE`, or those of them from number ``start`` on.

        The epoch goes on where the ones before it ended, which went as far as ``before`` says (:meth:`passes`). It has equal
        megabatches, with as many pairs as make its batches on average. Surplus batches of a megabatch are dropped; missing
        ones are made by halving batches. A megabatch that ends before ``start`` is not made.
        """
        begin, passes = sum(before, Fraction(0)), self.passes(count)
        megabatches = max(1, math.ceil(passes * self.pairs / MEGABATCH))
        # Fractions: where an epoch ends, the next one begins, to the last digit.
        places = [float((begin + passes * number / megabatches) * self.pairs) for number in range(megabatches + 1)]
        for megabatch in range(megabatches):
            first, end = (part * count // megabatches for part in (megabatch, megabatch + 1))
            if start < end:
                number = len(before) * megabatches + megabatch
                batches = _make_exactly(end - first, self._megabatch(number, *places[megabatch : megabatch + 2]))
                yield from batches[max(0, start - first) :]


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
