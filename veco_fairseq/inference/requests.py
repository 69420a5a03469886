# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Input and output of a translator: sources with prefixes and constraints, and hypotheses with word links."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sentencepiece import SentencePieceProcessor
from torch import Tensor

from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import split_words

SENTENCE_END = re.compile(r"[.!?…。！？؟۔।॥။។།։።]['\")\]»”’」』）]*$")
UNSPACED = re.compile(r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff9f]")  # Chinese and Japanese, without Hangul
WITH_WHAT_IS_BEFORE = re.compile(r"[.,:;!?…%'\")\]»”’。、，：；！？」』）〉》】ーぁぃぅぇぉっゃゅょァィゥェォッャュョ]")
WORD_START = "▁"
HALF = re.compile(r"[\ud800-\udfff]")
UNKNOWN = "<unk>"  # in a translation alone: a source's unknown characters stand for themselves


class Request(NamedTuple):
    """A line to translate.

    Attributes:
        source: its text; an empty one has an empty translation.
        prefix: the beginning of the translation.
        constraints: words or phrases that the translation must contain (Post and Vilar, 2018).
    """

    source: str
    prefix: str = ""
    constraints: tuple[str, ...] = ()


class Hypothesis(NamedTuple):
    """A translation.

    Attributes:
        text: the detokenised translation.
        score: the natural logarithm of its probability, divided by its number of pieces to the power of ``lenpen``.
        links: (word of the source, word of the translation), from 0. Each piece of the translation is linked to the source
            piece that the last decoder layer's cross-attention looks at most, in the mean over the heads.
        length: that number of pieces, with ``</s>``, which each part of a long line has.
    """

    text: str
    score: float
    links: list[tuple[int, int]]
    length: int = 0


def read_requests(lines: Iterable[str], *, prefixes: bool = False, constraints: bool = False) -> Iterator[Request]:
    """Yield requests from lines with the columns ``SOURCE [<tab> PREFIX] [<tab> CONSTRAINT]...``."""
    for line in lines:
        source, *columns = line.split("\t") if prefixes or constraints else [line]
        prefix = columns.pop(0) if prefixes and columns else ""
        yield Request(source, prefix, tuple(filter(None, columns)) if constraints else ())


def checked(requests: Iterable[Request]) -> list[Request]:
    """Return the requests as a list.

    Raises:
        UserError: one is no request, has something else than text, or one text where its constraints are meant; with its place.
    """
    requests = list(requests)
    for number, request in enumerate(requests):
        where = f"line {number} (counted from 0)"
        if not isinstance(request, Request):
            raise UserError(f"{where}: {str(request)[:30]!r} is of type {type(request).__name__}: give Request(TEXT)")
        require_list(request.constraints, f"{where}: constraints")
        for text in (request.source, request.prefix, *request.constraints):
            if not isinstance(text, str):
                raise UserError(f"{where}: {str(text)[:30]!r} is of type {type(text).__name__}, no text: give a str")
            if half := HALF.search(text):
                raise UserError(f"{where}: has {half[0]!a}, half of a character of UTF-16: read the text with its own encoding")
    return requests


def split(pieces: list[str], longest: int) -> Iterator[list[str]]:
    """Cut pieces into parts of at most ``longest``: after the last sentence that fits, otherwise before the last word.

    In Chinese and Japanese, which have no spaces, each piece may begin a word.
    """
    while len(pieces) > longest:
        starts = [i for i in range(1, longest + 1) if begins_word(pieces[i - 1], pieces[i])]
        after_sentences = [i for i in starts if SENTENCE_END.search("".join(pieces[max(0, i - 4) : i]))]
        end = (after_sentences or starts or [longest])[-1]
        yield pieces[:end]
        pieces = pieces[end:]
    if pieces:
        yield pieces


def begins_word(before: str, piece: str) -> bool:
    """Return whether a word begins between a piece and the one before it."""
    if piece.startswith(WORD_START):
        return True
    return bool(UNSPACED.match(before[-1:]) or UNSPACED.match(piece)) and not WITH_WHAT_IS_BEFORE.match(piece)


def word_links(attention: Tensor, source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int]]:
    """Return the links between the words of a translation and those that its pieces look at.

    Args:
        attention: (source tokens, translation tokens); the pieces come first in both.
        source, target: pieces.
    """
    end = max((place for place, piece in enumerate(target, start=1) if piece.strip(WORD_START)), default=0)  # of the last word
    x, y = word_numbers(source), word_numbers(target[:end])
    looked_at = attention[: len(x), : len(y)].argmax(0).tolist() if x and y else []
    return sorted({(x[place], word) for place, word in zip(looked_at, y)})


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """Return the number of each piece's word, from 0; ``<unk>`` is a word, since ⁇ has spaces around it in a text."""
    numbers, number, empty, before = [], -1, True, ""
    for piece in pieces:
        begins = piece.startswith(WORD_START) or UNKNOWN in (piece, before)
        if begins and not (empty and number >= 0) or number < 0:
            number, empty = number + 1, True
        empty, before = empty and not piece.strip(WORD_START), piece
        numbers.append(number)
    return numbers


def join_parts(parts: Sequence[Hypothesis], words: Sequence[int], lenpen: float = 1.0) -> Hypothesis:
    """Join the translations of a line's parts, with a space between them but in Chinese and Japanese.

    The score is that of all their pieces.

    Args:
        parts: the parts' hypotheses of one rank.
        words: the number, in the line, of the word that each part of the source begins with, or in the middle of.
        lenpen: the exponent of the length in the scores.
    """
    links, text = [], ""
    for part, before_x in zip(parts, words):
        unspaced = UNSPACED.match(text[-1:]) or UNSPACED.match(part.text)
        space = " " if text and part.text and not unspaced else ""
        before_y = len(split_words(text)) - bool(text and not space)  # a word may go on
        links += [(i + before_x, j + before_y) for i, j in part.links]
        text += space + part.text
    length = sum(part.length for part in parts)
    score = sum((part.score * (part.length / length) ** lenpen for part in parts), 0.0)
    return Hypothesis(text, score, links, length)


def between_spaces(found: Hypothesis, line: str, pieces: SentencePieceProcessor) -> Hypothesis:
    """Return the hypothesis with the numbers of the line's words, where its links have those of words that begin with a piece.

    SentencePiece makes spaces of other characters, too, such as a no-break space or a part of ´, and nothing of a lone U+200B.
    """
    if not found.links or (line.isascii() and line.isprintable() and not line.endswith(" ")):
        return found
    text, places = pieces.normalize(line, with_offsets=True)
    starts = [word.start() for word in re.finditer("[^ \t]+", line)]  # as split_words
    # Other white space, such as a tab, which a model that does not normalise keeps, has no piece, unless it has one for each byte.
    has_bytes = pieces.is_byte(pieces.piece_to_id("<0x09>"))
    own = [word for word in re.finditer(f"[^{WORD_START}]+", text) if has_bytes or not word[0].isspace()]
    begins = (places[word.end() - len(word[0].lstrip() or word[0])] for word in own)
    words = [max(0, bisect_right(starts, place) - 1) for place in begins] or [0]
    return found._replace(links=sorted({(words[min(i, len(words) - 1)], j) for i, j in found.links if starts}))


def in_lines(number: int, hypotheses: Sequence[Hypothesis], *, nbest: bool, alignment: bool) -> Iterator[str]:
    """Yield lines for hypotheses as Moses and Marian print them, with " ||| " between the columns.

    Args:
        number: of the line, from 0.
        hypotheses: of this line, the best first.
        nbest: print all of them, each with the line's number before it and its score after it; otherwise only the first.
        alignment: also print the links, as ``i-j``.
    """
    for one in hypotheses if nbest else hypotheses[:1]:
        columns = [one.text]
        if alignment:
            columns.append(" ".join(f"{i}-{j}" for i, j in one.links))
        if nbest:
            columns = [str(number), *columns, f"{one.score:.4f}"]
        yield " ||| ".join(columns)
