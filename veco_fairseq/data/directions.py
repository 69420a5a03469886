# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Sentence pairs of many directions of translation: which there are, and how often an epoch has each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import ConcatDataset, Dictionary, LanguagePairDataset, PrependTokenDataset

from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.plan import sampling_probabilities
from veco_fairseq.data.symbols import target_token
from veco_fairseq.errors import UserError


def parse_directions(option: str, text: str) -> list[str]:
    """The directions of ``de-en,en-de``; :func:`~veco_fairseq.data.languages.sides_of` has the languages of each.

    Raises:
        UserError: one of them is no direction, or there twice.
    """
    directions = [part.strip() for part in text.split(",")]
    for number, direction in enumerate(directions):
        source, target = sides_of(direction)
        there_and_back = sides_of(f"{target}-{source}") == [target, source]  # else nobody can tell them apart, as in en-zh-cn
        if not all(direction.split("-")) or not target or source == target or not there_and_back:
            raise UserError(f"{option} {text}: {direction!r} is no direction: give such as de-en or, with a region, en-pt-BR")
        if direction in directions[:number]:
            raise UserError(f"{option} {text}: {direction} is there twice: take one away")
    return directions


def find_directions(folder: Path, split: str) -> list[str]:
    """Both directions of every pair of which ``folder`` has token files of fairseq-preprocess, such as ``train.de-en.de.idx``."""
    names = {path.name.split(".")[-3] for path in folder.glob(f"{split}.*-*.*.idx")}
    pairs = [sides_of(name) for name in sorted(names) if "-" in name]
    return list(dict.fromkeys(f"{one}-{other}" for pair in pairs for one, other in (pair, pair[::-1])))


def the_direction(folder: Path, source: str | None, target: str | None) -> tuple[str, str] | None:
    """The only direction that the names of a folder's files leave, such as ``train.de-en.de.idx`` for de to en.

    Where several do, fairseq takes the first that the file system lists. And where one of the two languages is given, it takes
    both from there.

    Args:
        folder: of fairseq-preprocess.
        source, target: the languages that are given; with one of them, a pair of files serves both directions.

    Returns:
        Source and target; None if no name has a pair of languages.

    Raises:
        UserError: there are several, or none with the language that is given.
    """
    names = sorted({parts[1] for path in folder.glob("*.*-*.*") if len(parts := path.name.split(".")) > 2})
    pairs = [pair for pair in map(sides_of, names) if all((folder / f"dict.{lang}.txt").is_file() for lang in pair)]
    given = "-s" if source else "-t"
    if source or target:
        both_ways = [one for pair in pairs for one in (pair, pair[::-1])]
        pairs = [pair for pair in both_ways if source in (None, pair[0]) and target in (None, pair[1])]
    found = list(dict.fromkeys(map("-".join, pairs)))
    if len(found) > 1:
        raise UserError(f"{folder}: has data of {', '.join(found)}: choose one with -s and -t")
    if not found and (source or target):
        raise UserError(f"{given} {source or target}: {folder} has no data of this language: check the folder, or give -s and -t")
    return (pairs[0][0], pairs[0][1]) if pairs else None


def prepend(pairs: LanguagePairDataset, token: int) -> LanguagePairDataset:
    """Put a token before every source."""
    pairs.src = PrependTokenDataset(pairs.src, token)
    pairs.src_sizes = pairs.src_sizes + 1
    pairs.sizes = pairs.src_sizes if pairs.tgt_sizes is None else np.vstack((pairs.src_sizes, pairs.tgt_sizes)).T
    return pairs


def numbers_of_draws(sizes: Sequence[int], alpha: float) -> list[int]:
    """How many pairs of each direction an epoch has: in proportion to size^alpha, in all as many as there are."""
    exact = sum(sizes) * sampling_probabilities(sizes, alpha)
    draws = np.floor(exact + 1e-9).astype(np.int64)
    most_missing = np.argsort(draws - exact, kind="stable")[: sum(sizes) - draws.sum()]
    draws[most_missing] += 1
    return draws.tolist()


class DirectionsDataset(LanguagePairDataset):
    """The pairs of several directions, one direction after the other.

    To train on (with ``alpha``), an epoch draws :func:`numbers_of_draws` of each direction: every pair so many times, and
    some once more. Which, is a function of the seed and the epoch alone; a batch has pairs of all directions. Else an
    epoch has each pair once, and a batch has pairs of one direction, whose name is its "direction".

    Args:
        directions: by name, in one dictionary.
        alpha: exponent of the sizes; none: not to be trained on.
        seed: of the draws.
    """

    def __init__(self, directions: Mapping[str, LanguagePairDataset], alpha: float | None = None, seed: int = 1):
        parts = list(directions.values())
        first = parts[0]
        super().__init__(
            ConcatDataset([part.src for part in parts]),
            np.concatenate([part.src_sizes for part in parts]),
            first.src_dict,
            ConcatDataset([part.tgt for part in parts]),
            np.concatenate([part.tgt_sizes for part in parts]),
            first.tgt_dict,
            left_pad_source=first.left_pad_source,
            left_pad_target=first.left_pad_target,
            shuffle=first.shuffle,
            pad_to_multiple=first.pad_to_multiple,
        )
        self.names, self.pairs_of = list(directions), [len(part) for part in parts]
        self.ends = np.cumsum(self.pairs_of)
        self.draws = None if alpha is None else numbers_of_draws(self.pairs_of, alpha)
        self.seed, self.epoch = seed, 1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return self.draws is None

    def ordered_indices(self) -> np.ndarray:
        """What an epoch has, (pairs), sorted by length."""
        if self.draws is None:
            return super().ordered_indices()
        rng = np.random.default_rng([self.seed, self.epoch])
        drawn = []
        for end, pairs, count in zip(self.ends, self.pairs_of, self.draws):
            times, more = divmod(count, pairs)
            numbers = np.concatenate([np.tile(np.arange(pairs), times), rng.permutation(pairs)[:more]])
            drawn.append(end - pairs + numbers)
        indices = rng.permutation(np.concatenate(drawn))
        return indices[np.lexsort((self.tgt_sizes[indices], self.src_sizes[indices]))]

    def batch_by_size(self, indices, **limits) -> list[np.ndarray]:
        """Batches of like length; see above for their directions."""
        if self.draws is not None:
            return super().batch_by_size(indices, **limits)
        of, batches = np.searchsorted(self.ends, indices, side="right"), super().batch_by_size
        return [batch for number in range(len(self.names)) for batch in batches(indices[of == number], **limits)]

    def collater(self, samples, pad_to_length=None) -> dict[str, Any]:
        batch = super().collater(samples, pad_to_length)
        if batch and self.draws is None:
            batch["direction"] = self.names[int(np.searchsorted(self.ends, samples[0]["id"], side="right"))]
        return batch


def require_target_tokens(dictionary: Dictionary, langs: Sequence[str], path: Path) -> None:
    """Refuse a dictionary without the token of a language to translate into.

    Raises:
        UserError: with the line to add.
    """
    for lang in langs:
        if target_token(lang) not in dictionary:
            raise UserError(
                f"{path}: has no token {target_token(lang)}: add the line '{target_token(lang)} 1' at its end, in every "
                "dict.LANG.txt of the folder, one for each language to translate into"
            )
