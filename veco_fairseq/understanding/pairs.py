# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads sentence pairs: XNLI, PAWS-X, SICK and XTREME's own files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from veco_fairseq.data.languages import known_as
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines
from veco_fairseq.understanding.examples import SentencePair

# Names of the columns in the releases of PAWS-X, XNLI and SICK. A file without a row of names has the columns sentence,
# sentence, label, as XTREME's files.
INFERENCE = ("contradiction", "entailment", "neutral")  # SICK writes these in capitals
INFERENCE_LABELS = {**{label: label for label in INFERENCE}, "contradictory": "contradiction"}  # the last: XNLI's training
COLUMNS = {
    "first": ("sentence1", "sentence_a", "premise"),
    "second": ("sentence2", "sentence_b", "hypothesis", "hypo"),
    "label": ("label", "gold_label", "entailment_label"),
    "id": ("id", "pair_id", "pairid"),
    "lang": ("language",),
}


def read_sentence_pairs(path: Path, lang: str) -> Iterator[SentencePair]:
    """Yield the rows of a .tsv file, with or without a row of column names.

    In a column gold_label, as SNLI's, - stands for no label: the annotators did not agree. Where there is a column language,
    as in XNLI's file of all languages, only the rows of ``lang`` are read.

    Raises:
        UserError: a row has another number of columns, the columns have other names, or no row is of the language.
    """
    places: dict[str, int] = {}
    width = row = 0
    none = ""
    own: set[str] = set()  # what the column language calls this one
    others: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if number == 1:
            places = _named_columns(cells)
            width = len(cells)
            if places:
                own = _codes_of(lang, path, places["lang"]) if "lang" in places else own
                none = "-" if "label" in places and cells[places["label"]].lower() == "gold_label" else ""
                continue
            if any(cell.lower() in COLUMNS["label"] for cell in cells):
                raise UserError(f"{path}, line 1: has names of columns, but not those of sentences: sentence1 and sentence2")
            places = dict(zip(("first", "second", "label"), range(width)))
            if width not in (2, 3):
                raise UserError(f"{path}, line 1: has {width} columns, not 2 sentences and a label, tabs between them")
        if len(cells) != width:
            raise UserError(f"{path}, line {number}: has {len(cells)} columns, but line 1 has {width}")
        if "lang" in places and cells[places["lang"]] not in own:
            others.add(cells[places["lang"]])
            continue
        label = cells[places["label"]] if "label" in places else ""
        row += 1
        name = cells[places["id"]] if "id" in places else f"row {row}"
        where = f"{path}, line {number}"
        known = None if label in ("", none) else INFERENCE_LABELS.get(label.lower(), label)
        yield SentencePair(name, where, cells[places["first"]], cells[places["second"]], known)
    if others and not row:
        raise UserError(f"{path}: has no row of {lang}; its column language has {', '.join(sorted(others))}")


def _codes_of(lang: str, path: Path, place: int) -> set[str]:
    """Return what a column calls a language: the same, or else a code with the same two letters, such as zh for zho.

    zh-Hans and zh-Hant are two languages where the column has both.
    """
    found = {cells[place].strip() for line in read_lines(path) if len(cells := line.split("\t")) > place}
    return {code for code in found if code.lower() == lang.lower()} or {
        code for code in found if known_as(code) == known_as(lang)
    }


def _named_columns(cells: Sequence[str]) -> dict[str, int]:
    """Return the positions of :data:`COLUMNS`, if these cells are names of columns."""
    found = {}
    for column, names in COLUMNS.items():
        for place, cell in enumerate(cells):
            if cell.lower() in names:
                found[column] = place
    return found if {"first", "second"} <= found.keys() else {}
