# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which pairs are dropped, and why: a table of rules, of which the first that a pair breaks counts.

A rule is made from the options: a function of a pair's normalised source and target and of their lengths, true for what is
to be dropped. The last rule, against duplicates, needs all pairs before it and so is not in a function.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unicodedata import category, normalize

from veco_fairseq.data.cleaning.punctuation import SACREMOSES
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines


@dataclass(frozen=True)
class Options:
    """How pairs are normalised, and which are dropped.

    Attributes:
        source_lang, target_lang: two letters each, of the punctuation's rules and of language identification.
        punctuation: one of :data:`~veco_fairseq.data.cleaning.punctuation.CHOICES`.
        controls: keep characters that cannot be printed, instead of a space for each.
        sentencepiece: the model whose pieces are counted; none: words between spaces.
        min_length, max_length: words or pieces of a side.
        max_ratio: of the longer side's length to the shorter one's.
        copies, duplicates: keep them.
        language_margin: see :func:`_language`; none: languages are not identified.
        held_out: texts whose lines must not be trained on.
    """

    source_lang: str
    target_lang: str
    punctuation: str = SACREMOSES
    controls: bool = False
    sentencepiece: Path | None = None
    min_length: int = 1
    max_length: int = 250
    max_ratio: float = 3.0
    copies: bool = False
    language_margin: float | None = None
    held_out: tuple[Path, ...] = ()
    duplicates: bool = False


Drops = Callable[[str, str, int, int], bool]


class Rule(NamedTuple):
    """Attributes: its name; why a pair is dropped; what makes it from the options, or none of it."""

    name: str
    reason: str
    make: Callable[[Options], Drops | None]


def _empty(options: Options) -> Drops:
    return lambda source, target, a, b: not (source and target and a and b)


def _short(options: Options) -> Drops:
    least = options.min_length
    return lambda source, target, a, b: a < least or b < least


def _long(options: Options) -> Drops:
    most = options.max_length
    return lambda source, target, a, b: a > most or b > most


def _ratio(options: Options) -> Drops:
    most = options.max_ratio
    return lambda source, target, a, b: a / b > most or b / a > most


def composed(line: str) -> str:
    """A line whose letters and marks are one character where there is one, as SentencePiece makes them for the model."""
    return line if line.isascii() else normalize("NFC", line)


def _copy(options: Options) -> Drops | None:
    def is_copy(source: str, target: str, a: int, b: int) -> bool:
        source, target = composed(source), composed(target)
        return len(source) == len(target) and source.lower() == target.lower()

    return None if options.copies else is_copy


def _language(options: Options) -> Drops | None:
    """A side that is another language's, by more than a margin of its logarithmic probability, as py3langid has it.

    Raises:
        UserError: py3langid is not installed, or does not know a language.
    """
    margin = options.language_margin
    if margin is None:
        return None
    try:
        from py3langid import classify, rank
    except ImportError as error:
        raise UserError("--language-margin: needs py3langid, which is not installed: pip install py3langid") from error
    known = {language for language, _ in rank("")}
    for option, language in (("--source-lang", options.source_lang), ("--target-lang", options.target_lang)):
        if language not in known:
            raise UserError(f"{option} {language}: py3langid knows no such language (it knows {', '.join(sorted(known))})")

    def is_other(line: str, language: str) -> bool:
        if classify(line)[0] == language:
            return False
        ranked = rank(line)
        return ranked[0][1] - dict(ranked)[language] > margin

    return lambda source, target, a, b: is_other(source, options.source_lang) or is_other(target, options.target_lang)


# Marks are parts of words, such as the vowels of Hindi and Thai and the points of Arabic, but \w leaves them out.
MARKS = "".join(letter for letter in map(chr, range(0x300, 0xFE00)) if category(letter) in ("Mn", "Mc"))
WORDS = re.compile(rf"\w[\w{MARKS}]*")
FIRST = 10
FIRST_LETTERS = re.compile(rf"(?:\W*\w){{1,{FIRST}}}")
NO_LETTERS = re.compile(r"\W+")


def _folded(line: str) -> str:
    """A line without case, composed again, since casefold takes some letters apart, as of Μαΐου. Turkish has two letters i, and a
    capital of each: İ i and I ı."""
    folded = normalize("NFC", normalize("NFC", line).casefold())
    return folded.replace("i\u0307", "i").replace("ı", "i")


def letters_of(line: str) -> str:
    """A line's words without the spaces, which texts of Chinese put at will: the same for lines that differ in case,
    punctuation, spaces and composition alone."""
    return "".join(WORDS.findall(_folded(line)))


class HeldOut:
    """Lines that are known again by their letters; the first few of these tell most other lines apart at once."""

    def __init__(self, lines: Iterable[str]):
        self.lines = set(filter(None, map(letters_of, lines)))
        self.beginnings = {NO_LETTERS.sub("", letters)[:FIRST] for letters in self.lines}

    def __contains__(self, line: str) -> bool:
        first = FIRST_LETTERS.match(_folded(line))
        return first is not None and NO_LETTERS.sub("", first[0]) in self.beginnings and letters_of(line) in self.lines


def _held_out(options: Options) -> Drops | None:
    if not options.held_out:
        return None
    held_out = HeldOut(line for path in options.held_out for line in read_lines(path))
    return lambda source, target, a, b: source in held_out or target in held_out


DUPLICATE = "duplicate"
RULES = (
    Rule("empty", "a side has no text", _empty),
    Rule("short", "a side is shorter than --min-length", _short),
    Rule("long", "a side is longer than --max-length", _long),
    Rule("ratio", "one side is longer than --max-ratio times the other", _ratio),
    Rule("copy", "both sides are the same but for case", _copy),
    Rule("language", "a side is in another language (--language-margin)", _language),
    Rule("held-out", "a side is a line of --held-out", _held_out),
    Rule(DUPLICATE, "the same pair was there before", lambda options: None),
)

BY_LENGTH = ("short", "long", "ratio")


def made(options: Options) -> list[tuple[str, Drops]]:
    """The rules that the options ask for, by name, in their order."""
    return [(rule.name, drops) for rule in RULES if (drops := rule.make(options))]
