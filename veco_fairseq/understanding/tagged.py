# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads tagged sentences: treebanks in CoNLL-U, and files with a word on each line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from veco_fairseq.data.languages import known_as
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines, split_words
from veco_fairseq.understanding.examples import TaggedSentence


def read_conllu(path: Path, lang: str) -> Iterator[TaggedSentence]:
    """Yield sentences with words and universal parts of speech (columns 2 and 4) of a CoNLL-U file.

    Multiword tokens (``1-2``) and empty nodes (``1.1``) are left out, since their words have lines of their own.

    Raises:
        UserError: a line does not have ten columns.
    """
    for place, block in blocks(read_lines(path)):
        name, words, tags = "", [], []
        for number, line in enumerate(block, start=place):
            if line.startswith("#"):
                name = _sentence_id(line) or name
                continue
            cells = line.split("\t")
            if len(cells) != 10:
                raise UserError(f"{path}, line {number}: has {len(cells)} columns, not the 10 of CoNLL-U")
            if cells[0].isdecimal():
                words.append(cells[1])
                tags.append(cells[3].strip())
        if words:
            yield TaggedSentence(name, f"{path}, line {place}", tuple(words), _known(tags))


def read_tagged_lines(path: Path, lang: str) -> Iterator[TaggedSentence]:
    """Yield sentences of a file with a word and its tag on each line, and a blank line after each sentence.

    WikiAnn writes a word as ``de:Haus``, whatever code the file's name has: what all words begin with is no part of them. A test set
    may have only words, and a sentence may begin with ``# sent_id = ...``.

    Raises:
        UserError: a line does not have as many columns as the first, or not one or two.
    """
    columns = 0
    prefix = re.compile("|".join(rf"^{re.escape(code)}:" for code in (lang, known_as(lang), *_shared_code(path))))
    for place, block in blocks(read_lines(path)):
        name, words, tags = "", [], []
        for number, line in enumerate(block, start=place):
            if given := _sentence_id(line):
                name = given
                continue
            cells = line.rstrip(" \t").split("\t") if "\t" in line else re.split(" +", line.strip(" "))  # a word may have U+00A0
            columns = columns or len(cells)
            if len(cells) != columns or columns > 2 or not all(cells):
                wanted = "a word and its tag" if columns != 1 else "only a word, as in the first line"
                raise UserError(f"{path}, line {number}: has {len(cells)} columns, not {wanted}")
            words.append(prefix.sub("", cells[0]) or cells[0])
            tags += [cell.strip() for cell in cells[1:]]
        if words:
            yield TaggedSentence(name, f"{path}, line {place}", tuple(words), _known(tags))


def _shared_code(path: Path) -> list[str]:
    """Return the code that stands before every word of a file, as ``zh-yue`` in ``zh-yue:Haus``, if there is one."""
    lines = (line for _, block in blocks(read_lines(path)) for line in block if not _sentence_id(line))
    found = {code for line in lines for code in re.findall("^(?:([a-z][a-z-]*):)?", line)}
    return [code for code in found if code] if len(found) == 1 else []


def _known(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags with an empty one for ``_``, which stands for an unknown value; none if all of them are unknown."""
    known = tuple("" if tag == "_" else tag for tag in tags)
    return known if any(known) else ()


def _sentence_id(line: str) -> str:
    """Return the id in a line ``# sent_id = ...``, or an empty text."""
    key, equals, value = line.partition("=")
    return value.strip() if equals and key.split() == ["#", "sent_id"] else ""


def blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the blocks between blank lines, of spaces and tabs alone: the number of the first line, and the lines."""
    block: list[str] = []
    number = 0
    for number, line in enumerate(lines, start=1):
        if split_words(line):  # a word may be U+00A0
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []
    if block:
        yield number - len(block) + 1, block
