# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Mines pairs of translations in two texts, as in BUCC."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines, write_text
from veco_fairseq.retrieval.search import Candidates


class Pair(NamedTuple):
    """A mined pair: the sentences' numbers, and its score."""

    x: int
    y: int
    score: float


def mine(forward: Candidates, backward: Candidates) -> list[Pair]:
    """Return the best candidates of all sentences on both sides, best first, no sentence twice (Artetxe and Schwenk 2019)."""
    scores, ys = forward.best()
    back_scores, xs = backward.best()
    pairs = zip(range(len(ys)), ys.tolist(), scores.tolist())
    back = zip(xs.tolist(), range(len(xs)), back_scores.tolist())
    taken_x: set[int] = set()
    taken_y: set[int] = set()
    mined = []
    for pair in sorted((Pair(*pair) for pair in (*pairs, *back)), key=lambda pair: (-pair.score, pair.x, pair.y)):
        if pair.x not in taken_x and pair.y not in taken_y:
            taken_x.add(pair.x)
            taken_y.add(pair.y)
            mined.append(pair)
    return mined


def figures(kept: Sequence[Pair], gold: set[tuple[int, int]]) -> dict[str, float]:
    """Return precision, recall and F1 of mined pairs; ``gold`` holds pairs of sentence numbers, and is not empty."""
    right = sum((pair.x, pair.y) in gold for pair in kept)
    return {
        "precision": right / max(1, len(kept)),
        "recall": right / len(gold),
        "f1": 2 * right / (len(kept) + len(gold)),
    }


def best_threshold(mined: Sequence[Pair], gold: set[tuple[int, int]]) -> float:
    """Return the threshold with the best F1, for pairs with at least this score; BUCC tunes it on its dev set.

    It lies between the last pair that is kept and the first that is not; ``mined`` is sorted, best first.
    """
    right = np.cumsum([(pair.x, pair.y) in gold for pair in mined])
    scores = np.array([pair.score for pair in mined])
    f1 = 2 * right / (np.arange(1, len(mined) + 1) + len(gold))
    f1[:-1][scores[:-1] == scores[1:]] = -1  # pairs with equal scores are kept or dropped together
    last = int(f1.argmax())
    return float(scores[last : last + 2].mean())


# ---------------------------------------------------------------------------------------------------------------------
# BUCC's files


def read_sentences(path: Path) -> dict[str, str]:
    """Read id -> sentence from lines ``ID<TAB>sentence``.

    Raises:
        UserError: a line has no tab, an id comes twice, or the file is empty.
    """
    sentences: dict[str, str] = {}
    for number, (name, sentence) in _columns(path):
        if name in sentences:
            raise UserError(f"{path}, line {number}: the id {name} is there twice")
        sentences[name] = sentence
    if not sentences:
        raise UserError(f"{path}: is empty")
    return sentences


def read_gold(path: Path, x: Sequence[str], y: Sequence[str]) -> set[tuple[int, int]]:
    """Read pairs from lines ``ID<TAB>ID``, as positions in the ids ``x`` and ``y``.

    Raises:
        UserError: a line has no tab or an unknown id, or the file is empty.
    """
    places = [{name: number for number, name in enumerate(names)} for names in (x, y)]
    gold = set()
    for number, pair in _columns(path):
        for name, side in zip(pair, places):
            if name not in side:
                raise UserError(f"{path}, line {number}: there is no sentence {name}")
        gold.add((places[0][pair[0]], places[1][pair[1]]))
    if not gold:
        raise UserError(f"{path}: is empty")
    return gold


def _columns(path: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield each line's number and two columns; a blank line has none, and stands for nothing, since lines have ids."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        first, tab, second = line.partition("\t")
        if not tab:
            raise UserError(f"{path}, line {number}: has no tab between its two columns")
        yield number, (first, second)


def write_pairs(path: Path, pairs: Sequence[Pair], x: Sequence[str], y: Sequence[str]) -> None:
    """Write lines ``score<TAB>ID<TAB>ID``."""
    write_text(path, "".join(f"{pair.score:.6f}\t{x[pair.x]}\t{y[pair.y]}\n" for pair in pairs))
