# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Links set by people, sure and possible ones, and figures of found links against them."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from veco_fairseq.alignment.words import Links
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, read_lines, split_words

LINK = re.compile(r"([0-9]+)([-p])([0-9]+)")
OF_SHARED_TASK = re.compile(r"([0-9]+)\s+([0-9]+)\s+([0-9]+)(?:\s+([SP]))?(?:\s+[0-9]*\.[0-9]+)?")  # a confidence may follow


class Gold(NamedTuple):
    """A sentence's links (word of x, word of y), from 0.

    Attributes:
        sure: S.
        possible: P, with the sure ones among them.
    """

    sure: set[tuple[int, int]]
    possible: set[tuple[int, int]]


class _Link(NamedTuple):
    """A link as it is written.

    Attributes:
        line: its number.
        pair: the number of its pair of sentences, from 0.
        text: the link.
        words: of x and of y, as they are numbered there.
        sure: S, and not P.
    """

    line: int
    pair: int
    text: str
    words: tuple[int, int]
    sure: bool


def read_gold(path: Path_, source: Sequence[str], target: Sequence[str], first: int = 0) -> list[Gold]:
    """Read links from lines of ``i-j`` (sure) and ``ipj`` (possible), with spaces between them; a line may be empty.

    Or from a file of the shared tasks (Mihalcea and Pedersen 2003), which has a line for each link: the number of the pair, ``i``,
    ``j``, and S or P (default: S). It counts from 1, and a word 0 is none.

    Args:
        source, target: the sentences, with spaces between words.
        first: the number of the first word, 0 or 1.

    Raises:
        UserError: the numbers of lines and sentences differ, a text is no link, a sentence has no such word, or no link
            is sure.
    """
    lines = list(read_lines(path))
    if OF_SHARED_TASK.fullmatch(next(filter(None, map(str.strip, lines)), "")):
        first, links = 1, _links_of_shared_task(path, lines, len(source))
    else:
        links = _links(path, lines, len(source))
    golds = [Gold(set(), set()) for _ in source]
    counts = [tuple(len(split_words(sentence)) for sentence in pair) for pair in zip(source, target)]
    for number, pair, text, words, sure in links:
        link = words[0] - first, words[1] - first
        for side, word, count in zip(("source", "target"), link, counts[pair]):
            if not 0 <= word < count:
                has = f"words {first} to {count - 1 + first}" if count else "no words"
                advice = "" if first or not count else " (--gold-from-1 if its words are numbered from 1)"
                raise UserError(f"{path}, line {number}: {text}: the {side} sentence has {has}{advice}")
        golds[pair].possible.add(link)
        if sure:
            golds[pair].sure.add(link)
    if not any(gold.sure for gold in golds):
        raise UserError(f"{path}: has no sure link i-j, and recall needs one")
    return golds


def _links(path: Path_, lines: Sequence[str], pairs: int) -> Iterator[_Link]:
    if len(lines) != pairs:
        advice = "line N must have the links of pair N"
        raise UserError(f"{path}: has {len(lines):,} lines, but there are {pairs:,} pairs of sentences: {advice}")
    for number, line in enumerate(lines, start=1):
        for text in line.split():
            match = LINK.fullmatch(text)
            if not match:
                raise UserError(f"{path}, line {number}: {text} is no link: a sure one is i-j, a possible one ipj")
            yield _Link(number, number - 1, text, (int(match[1]), int(match[3])), match[2] == "-")


def _links_of_shared_task(path: Path_, lines: Sequence[str], pairs: int) -> Iterator[_Link]:
    for number, line in enumerate(map(str.strip, lines), start=1):
        match = OF_SHARED_TASK.fullmatch(line)
        if not match:
            if line:
                raise UserError(f"{path}, line {number}: {line} is no link as those before: PAIR i j S, or P")
            continue
        if not 1 <= int(match[1]) <= pairs:
            raise UserError(
                f"{path}, line {number}: {line}: there are pairs 1 to {pairs:,}: give the texts that these links are of"
            )
        if int(match[2]) and int(match[3]):
            yield _Link(number, int(match[1]) - 1, line, (int(match[2]), int(match[3])), match[4] != "P")


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
