# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The text that a data root is made from: its files, and the lines that are held out or left out."""

import operator
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from veco_fairseq.errors import UserError
from veco_fairseq.files import lines_of, read_blocks, read_lines, require_equal_lengths, require_file
from veco_fairseq.parallel import default_workers

LINES_A_BLOCK = 8192  # that are read at a time
LEAST_COVERAGE = 0.98  # of characters that SentencePiece's trainer takes

LANGUAGE = re.compile(r"[A-Za-z0-9_]+")
# What is no space, and nothing that SentencePiece's normalisation drops or makes a space.
_KEPT = re.compile(r"[^\s\x01-\x1f\x7f\x8f\x9f\u061c\u200b\u200c\u200e\u200f\u2581\ufeff\ufffd]")


def has_text(line: str) -> bool:
    """Return whether SentencePiece leaves anything of a line; of U+200B, a space without width, alone it does not."""
    return _KEPT.search(line) is not None


@dataclass
class Part:
    """One folder of the root: a language (one side) or a pair of them (two sides)."""

    languages: tuple[str, ...]
    train: tuple[Path, ...]
    valid: tuple[Path, ...] = ()

    @property
    def is_pair(self) -> bool:
        return len(self.languages) == 2

    @property
    def name(self) -> str:
        """The folder below the root."""
        return f"{'bitext' if self.is_pair else 'mono'}/{'-'.join(self.languages)}"

    def prefix(self, split: str, side: int) -> str:
        """Return the token file of one side, below the root, without .bin and .idx."""
        if not self.is_pair:
            return f"{self.name}/{split}"
        return f"{self.name}/{split}.{'-'.join(self.languages)}.{self.languages[side]}"


@dataclass
class Options:
    """The options of ``veco prepare``."""

    output: Path
    parts: list[Part]
    valid_lines: int
    vocab_size: int | None = None
    sentencepiece: Path | None = None
    dictionary: Path | None = None
    character_coverage: float = 0.9998
    vocab_lines: int = 500_000
    soft_vocab_limit: bool = False
    workers: int = field(default_factory=default_workers)

    def __post_init__(self) -> None:
        given = (self.sentencepiece is not None, self.dictionary is not None)
        if self.vocab_size is None and not all(given):
            raise UserError("the vocabulary: give --vocab-size N, or --sentencepiece MODEL and --dict DICT together")
        if self.vocab_size is not None and any(given):
            raise UserError("the vocabulary: give --vocab-size, or --sentencepiece and --dict, not both")
        if not self.parts:
            raise UserError("nothing to prepare: give --mono LANG=FILE or --bitext SRC-TGT=FILE,FILE")
        if not LEAST_COVERAGE <= self.character_coverage <= 1:
            raise UserError(f"--character-coverage {self.character_coverage}: must be from {LEAST_COVERAGE} to 1")

    @property
    def given(self) -> list[Path]:
        """The SentencePiece model and the dictionary; neither where they are to be made."""
        return [path for path in (self.sentencepiece, self.dictionary) if path is not None]


def parse_parts(
    mono: Sequence[str], bitext: Sequence[str], mono_valid: Sequence[str] = (), bitext_valid: Sequence[str] = ()
) -> list[Part]:
    """Return the parts in ``LANG=FILE`` and ``SRC-TGT=FILE,FILE`` arguments, monolingual ones first.

    Raises:
        UserError: an argument has another form, a language has strange characters, something is named twice, a
            validation file has no training file, or a file does not exist.
    """
    parts = {}
    for option, arguments, sides in (("--mono", mono, 1), ("--bitext", bitext, 2)):
        for languages, files in _parse_files(option, arguments, sides).items():
            parts[frozenset(languages)] = Part(languages, files)
    for option, arguments, sides in (("--mono-valid", mono_valid, 1), ("--bitext-valid", bitext_valid, 2)):
        for languages, files in _parse_files(option, arguments, sides).items():
            part = parts.get(frozenset(languages))
            if part is None:
                raise UserError(f"{option} {'-'.join(languages)}: {option[:-6]} names no training file for it")
            part.valid = files if languages == part.languages else files[::-1]
    return list(parts.values())


def _parse_files(option: str, arguments: Sequence[str], sides: int) -> dict[tuple[str, ...], tuple[Path, ...]]:
    wanted = "LANG=FILE" if sides == 1 else "SRC-TGT=FILE,FILE"
    parsed: dict[tuple[str, ...], tuple[Path, ...]] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        languages = tuple(key.split("-", sides - 1))
        # A single file may have a comma in its name; between two files must be the only comma.
        names = value.split(",") if sides == 2 else [value]
        if equals and len(languages) == sides < len(names):
            raise UserError(f"{option} {argument}: has {len(names) - 1} commas, not 1: rename the files, or link to them")
        if not equals or len(languages) != sides or len(names) != sides or not all(names):
            raise UserError(f"{option} {argument}: must have the form {wanted}")
        for language in languages:
            if not LANGUAGE.fullmatch(language):
                raise UserError(f"{option} {argument}: '{language}' is not a language code: use letters, digits and _")
        if len(set(languages)) < sides:
            raise UserError(f"{option} {argument}: both sides are {languages[0]}")
        if any(set(languages) == set(other) for other in parsed):
            raise UserError(f"{option} {argument}: {key} is given twice: join its files into one")
        parsed[languages] = tuple(map(Path, names))
        for path in parsed[languages]:
            require_file(path, told=f" ({option} {key})")
    return parsed


def is_drawn(index: Any, chosen: int, total: int) -> Any:
    """Return whether ``index``, a number or an array, is one of ``chosen`` numbers of ``total``, the same in every call.

    There is one in each of ``chosen`` stretches of equal length, at a place that a hash of the stretch's number draws. Equal
    distances would fall in with the text's own rhythm, such as short and long captions in turn.
    """
    if not chosen:
        return index < 0
    stretch = index * chosen // total
    start, end = (-(-number * total // chosen) for number in (stretch, stretch + 1))
    drawn = (stretch + 1) * 0x9E3779B1 % 2**32
    drawn = (drawn ^ drawn >> 15) * 0x7FEB352D % 2**32 >> 8  # 24 bits: no product needs more than 63
    return index == start + (drawn * (end - start) >> 24)


@dataclass
class Survey:
    """The result of one pass over a part's training files, before anything is written.

    Attributes:
        rows: lines (of each side) in the file, blank ones included.
        kept: lines of text; for a pair, the pairs without an empty side.
        valid_start: for a language, the row where the held-out documents start (``rows`` if there are none).
        cut: whether the held-out lines are part of a document, because there is no second one.
        dropped: rows of a pair with an empty side, in the training files and in the validation files.
    """

    rows: int
    kept: int
    valid_start: int
    cut: bool = False
    dropped: int = 0


def survey_mono(path: Path, valid_lines: int) -> Survey:
    """Count the lines, and find the start of the last whole documents that have ``valid_lines`` lines or more in all.

    If no line would be left for training, the document is cut before the last ``valid_lines`` lines.

    Raises:
        UserError: there is no text, or not more lines of text than are to be held out.
    """
    rows = kept = in_documents = 0
    documents: deque[list[int]] = deque()  # [first row, lines] of the last documents, just enough of them for valid_lines
    last_rows: deque[int] = deque(maxlen=max(valid_lines, 1))
    blank_before = True
    for row, line in enumerate(read_lines(path)):
        rows = row + 1
        blank = not has_text(line)
        if not blank:
            if blank_before:
                while documents and in_documents - documents[0][1] >= valid_lines:
                    in_documents -= documents.popleft()[1]
                documents.append([row, 0])
            documents[-1][1] += 1
            in_documents += 1
            kept += 1
            last_rows.append(row)
        blank_before = blank
    while len(documents) > 1 and in_documents - documents[0][1] >= valid_lines:
        in_documents -= documents.popleft()[1]
    _require_lines(path, kept, valid_lines)
    if not valid_lines:
        return Survey(rows, kept, rows)
    if in_documents == kept:
        return Survey(rows, kept, last_rows[0], cut=True)
    return Survey(rows, kept, documents[0][0])


def survey_bitext(paths: tuple[Path, ...], valid_lines: int) -> Survey:
    """Count the pairs, and those that have text on both sides.

    Raises:
        UserError: the numbers of lines differ, there is no text, or not more pairs than are to be held out.
    """
    counts = [0, 0]
    kept = 0
    for lines in zip_longest(*map(read_lines, paths)):
        for side, line in enumerate(lines):
            counts[side] += line is not None
        kept += all(line and has_text(line) for line in lines)
    require_equal_lengths(paths, counts)
    _require_lines(paths[0], kept, valid_lines)
    return Survey(counts[0], kept, counts[0], dropped=counts[0] - kept)


def _require_lines(path: Path, kept: int, valid_lines: int) -> None:
    if not kept:
        raise UserError(f"{path}: holds no text")
    if valid_lines >= kept:
        raise UserError(f"{path}: has {kept:,} usable lines, too few to hold out --valid-lines {valid_lines:,}")


def held_out(part: Part, valid_lines: int) -> int:
    """Return how many lines to hold out of the training files: none if there are validation files."""
    return 0 if part.valid else valid_lines


def is_valid(part: Part, survey: Survey, valid_lines: int) -> Callable[[Any], Any]:
    """Return what tells of the number of a row of the training files, or of an array of them, whether it is held out.

    Rows that are left out have no number. Of a pair, those that are held out are drawn from all of the text; of a language, they
    are the last ones.
    """
    if part.is_pair:
        return partial(is_drawn, chosen=held_out(part, valid_lines), total=survey.kept)
    return partial(operator.le, survey.valid_start)


def split_rows(part: Part, survey: Survey, valid_lines: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the rows of a part with their split: ``("train", (line,))`` or ``("valid", (line, line))``.

    Pairs with an empty side are left out. Blank lines of a language end documents, and stay.
    """
    held = is_valid(part, survey, valid_lines)
    for number, lines in enumerate(_kept_rows(part, part.train)):
        yield "valid" if held(number) else "train", lines
    for lines in _kept_rows(part, part.valid) if part.valid else ():
        yield "valid", lines


def _kept_rows(part: Part, paths: tuple[Path, ...]) -> Iterator[tuple[str, ...]]:
    for blocks in zip(*(read_blocks(path, LINES_A_BLOCK) for path in paths)):
        rows = zip(*map(lines_of, blocks))
        yield from (lines for lines in rows if all(map(has_text, lines))) if part.is_pair else rows
