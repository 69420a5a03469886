# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Links set by people, sure and possible ones, and figures of found links against them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from veco_fairseq.alignment.words import Links
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, read_lines, split_words

LINK = re.compile(r"([0-9]+)([-p])([0-9]+)")


class Gold(NamedTuple):
    """A sentence's links (word of x, word of y), from 0.

    Attributes:
        sure: S.
        possible: P, with the sure ones among them.
    """

    sure: set[tuple[int, int]]
    possible: set[tuple[int, int]]


def read_gold(path: Path_, source: Sequence[str], target: Sequence[str], first: int = 0) -> list[Gold]:
    """Read links from lines of ``i-j`` (sure) and ``ipj`` (possible), with spaces between them; a line may be empty.

    Args:
        source, target: the sentences, with spaces between words.
        first: the number of the first word, 0 or 1.

    Raises:
        UserError: the numbers of lines and sentences differ, a text is no link, a sentence has no such word, or no link
            is sure.
    """
    lines = list(read_lines(path))
    if len(lines) != len(source):
        advice = "line N must have the links of pair N"
        raise UserError(f"{path}: has {len(lines):,} lines, but there are {len(source):,} pairs of sentences: {advice}")
    golds = []
    for number, (line, *sentences) in enumerate(zip(lines, source, target), start=1):
        words = [len(split_words(sentence)) for sentence in sentences]
        gold = Gold(set(), set())
        for text in line.split():
            match = LINK.fullmatch(text)
            if not match:
                raise UserError(f"{path}, line {number}: {text} is no link: a sure one is i-j, a possible one ipj")
            link = int(match[1]) - first, int(match[3]) - first
            for side, word, count in zip(("source", "target"), link, words):
                if not 0 <= word < count:
                    has = f"words {first} to {count - 1 + first}" if count else "no words"
                    advice = "" if first or not count else " (--gold-from-1 if its words are numbered from 1)"
                    raise UserError(f"{path}, line {number}: {text}: the {side} sentence has {has}{advice}")
            gold.possible.add(link)
            if match[2] == "-":
                gold.sure.add(link)
        golds.append(gold)
    if not any(gold.sure for gold in golds):
        raise UserError(f"{path}: has no sure link i-j, and recall needs one")
    return golds


def figures(found: Sequence[Links], golds: Sequence[Gold]) -> dict[str, float]:
    """Return alignment error rate, precision and recall over all links (XLM-E, equation 10; Och and Ney 2003).

    With the found links A, the sure ones S and the possible ones P, which include S:
    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), precision = |A & P| / |A|, recall = |A & S| / |S|.

    Args:
        found: the links of each sentence, none twice.
        golds: of the same sentences, with at least one sure link.
    """
    a, s = sum(map(len, found)), sum(len(gold.sure) for gold in golds)
    in_s = sum(len(gold.sure.intersection(links)) for links, gold in zip(found, golds, strict=True))
    in_p = sum(len(gold.possible.intersection(links)) for links, gold in zip(found, golds, strict=True))
    return {"AER": 1 - (in_s + in_p) / (a + s), "precision": in_p / max(1, a), "recall": in_s / s}
