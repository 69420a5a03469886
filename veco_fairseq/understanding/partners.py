# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Finds each example's translation, which depends only on the data's folder, not on the chosen languages."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

from veco_fairseq.understanding.dataset import Item, Side, paired
from veco_fairseq.understanding.windows import Notes


def asked(sides: Sequence[Side]) -> list[Side]:
    """Return the examples to predict: in training all but those that are only looked at."""
    return [side for side in sides if not side.only_seen]


class Pairing:
    """Puts the examples of a split beside their translations.

    The pivot's file has the translations of all other languages. The pivot's own translations are in the file of the first
    other language in alphabetical order. Both are among all files in the folder.

    Args:
        files: language -> file of the split, for all files in the folder.
        pivot: the language that the others are translations of.
        read: reads the examples of a language's file.
        notes: by language; they receive the examples without a translation.
    """

    def __init__(self, files: dict[str, Path], pivot: str, read: Callable[[str], list[Side]], notes: dict[str, Notes]):
        self.files = files
        self.pivot = pivot
        self.rows = cache(read)  # each language's examples are read once
        self.notes = notes

    def partner(self, lang: str) -> str | None:
        """Return the language whose file has a language's translations; None if the folder has no such file."""
        others = [self.pivot] if lang != self.pivot else sorted(set(self.files) - {self.pivot})
        return next((other for other in others if other in self.files), None)

    def items(self, langs: Collection[str], training: bool) -> Iterator[list[Item]]:
        """Yield every example of the languages with its translation, or alone if there is none.

        In training both sides of a pair are predicted if both languages are chosen. So most of the pivot's examples are in
        the other languages' pairs already.

        Args:
            langs: the languages to predict.
        """
        both = training and self.pivot in langs
        in_pairs: set[int] = set()
        for lang in langs:
            if both and lang == self.pivot:
                continue
            items = self._beside(lang, asked(self.rows(lang)), both)
            in_pairs.update(id(item.y) for item in items)
            yield items
        if both:
            left = [side for side in asked(self.rows(self.pivot)) if id(side) not in in_pairs]
            yield self._beside(self.pivot, left, False, in_pairs_of=langs)

    def _beside(self, lang: str, sides: list[Side], both: bool, *, in_pairs_of: Collection[str] = ()) -> list[Item]:
        """Return a language's examples with their translations.

        Args:
            in_pairs_of: languages that the examples were looked for in: they have no translations but those only looked at.
        """
        if not sides:
            return []
        partner = self.partner(lang)
        if partner is None:
            wanted = f"{self.pivot} (--pivot-lang)" if lang != self.pivot else "another language"
            for side in sides:
                self.notes[lang].add(f"without translation, since there is no file of {wanted}", side.example.where)
            return [Item(side) for side in sides]
        theirs = self._translations(lang, partner)
        if partner in in_pairs_of:
            theirs = [side for side in theirs if side.only_seen]
        return paired(sides, theirs, both, self.notes[lang])

    def _translations(self, lang: str, partner: str) -> list[Side]:
        """Return the partner's examples if rows can be translations of each other: with equal numbers of rows, or ids."""
        mine, theirs = self.rows(lang), self.rows(partner)
        numbered = [side for side in (*mine[:1], *theirs[:1]) if side.example.id.startswith("row ")]
        if numbered and len(mine) != len(theirs):
            what = f"file of {len(mine):,} rows for {len(theirs):,} rows in {partner}: without ids no translations"
            self.notes[lang].add(what, asked(mine)[0].example.where)
            return []
        return theirs
