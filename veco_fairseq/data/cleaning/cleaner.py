# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A chunk of pairs cleaned, by one of several processes; and which pairs were there before."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from veco_fairseq.data.cleaning.punctuation import KEEP, PERL, Punctuation, without_controls
from veco_fairseq.data.cleaning.rules import Options, composed, made
from veco_fairseq.data.sentencepiece import load_sentencepiece

BYTES_A_HASH = 8
EXAMPLES = 3  # of each rule, in the report
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # an odd number, which spreads what it is multiplied with over all bits

Example = tuple[int, str, str]  # the pair's line, from 1; source and target


@dataclass
class Cleaned:
    """What became of a chunk.

    Attributes:
        pairs: how many it had.
        sides: what is left of each side, one line after the other, with their ends.
        hashes: a number of 64 bits for each pair that is left.
        dropped: by rule.
        changed: lines of each side that normalising changed.
        examples: of what was dropped, by rule; their lines are counted from the chunk's first.
    """

    pairs: int
    sides: tuple[str, str]
    hashes: np.ndarray
    dropped: Counter[str]
    changed: tuple[int, int]
    examples: dict[str, list[Example]] = field(default_factory=dict)


class Cleaner:
    """The options, made ready.

    Raises:
        UserError: a file of theirs cannot be read, or a package is missing.
    """

    def __init__(self, options: Options):
        languages = options.source_lang, options.target_lang
        self.normalisers = [normaliser(language, options) for language in languages]
        self.model = None if options.sentencepiece is None else load_sentencepiece(options.sentencepiece)
        self.rules = made(options)

    def __call__(self, chunk: tuple[str, str]) -> Cleaned:
        """Clean a chunk: the lines of its two sides, joined by their ends."""
        before = [side.split("\n") for side in chunk]
        sides = [list(map(normalise, lines)) for normalise, lines in zip(self.normalisers, before)]
        changed = [sum(map(str.__ne__, *both)) for both in zip(before, sides)]
        kept: list[tuple[str, str]] = []
        dropped: Counter[str] = Counter()
        examples: dict[str, list[Example]] = {}
        for number, (source, target, a, b) in enumerate(zip(*sides, *map(self.lengths, sides)), start=1):
            for name, drops in self.rules:
                if drops(source, target, a, b):
                    dropped[name] += 1
                    if dropped[name] <= EXAMPLES:
                        examples.setdefault(name, []).append((number, before[0][number - 1], before[1][number - 1]))
                    break
            else:
                kept.append((source, target))
        pairs = (composed(f"{source}\n{target}").encode() for source, target in kept)
        hashes = b"".join(blake2b(pair, digest_size=BYTES_A_HASH).digest() for pair in pairs)
        texts = ["".join(f"{line}\n" for line in lines) for lines in zip(*kept)] if kept else ["", ""]
        return Cleaned(
            len(before[0]), (texts[0], texts[1]), np.frombuffer(hashes, dtype="<u8"), dropped, (changed[0], changed[1]), examples
        )

    def lengths(self, lines: Sequence[str]) -> list[int]:
        """Words or pieces of each line."""
        if self.model is None:
            return [len(line.split()) for line in lines]
        return list(map(len, self.model.encode(lines, return_type="numpy", num_threads=1)))


def normaliser(language: str, options: Options) -> Callable[[str], str]:
    """What is done to each line of a language."""
    first = str.strip if options.punctuation == KEEP else Punctuation(language, perl=options.punctuation == PERL)
    return first if options.controls else lambda line: without_controls(first(line))


class Seen:
    """Numbers of 64 bits that were there before, in 11 to 22 bytes each: a table with open places.

    A number's place follows from the number; where another one stands there, it is the next one that is free.
    """

    def __init__(self) -> None:
        self.table = np.zeros(2**16, dtype=np.uint64)  # 0: a free place
        self.count = 0

    def add(self, numbers: np.ndarray) -> np.ndarray:
        """Which of these numbers are new (bool), each the first time that it comes."""
        is_new = np.zeros(len(numbers), dtype=bool)
        unique, first = np.unique(numbers, return_index=True)
        unique[unique == 0] = 1  # shares its place with 1: one collision more in 2**64
        while (self.count + len(unique)) * 4 > len(self.table) * 3:
            old = self.table[self.table != 0]
            self.table = np.zeros(2 * len(self.table), dtype=np.uint64)
            self._place(old)
        is_new[first[self._place(unique)]] = True
        self.count += int(is_new.sum())
        return is_new

    def _place(self, numbers: np.ndarray) -> np.ndarray:
        """Put numbers, each of them once, into the table; which of them were not there."""
        places = ((numbers * SPREAD) >> np.uint64(65 - len(self.table).bit_length())).astype(np.int64)
        left = np.arange(len(numbers))
        is_new = np.zeros(len(numbers), dtype=bool)
        while len(left):
            wanted, at = numbers[left], places[left]
            free = self.table[at] == 0
            self.table[at[free]] = wanted[free]  # of several that want one place the last gets it
            there = self.table[at] == wanted
            is_new[left[there & free]] = True
            left = left[~there]
            places[left] = (places[left] + 1) % len(self.table)
        return is_new
