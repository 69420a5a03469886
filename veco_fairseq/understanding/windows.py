# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Turns examples into the model's input: windows of tokens with their targets."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import sentencepiece
from fairseq.data import Dictionary

from veco_fairseq.data.reserved import without_symbols
from veco_fairseq.data.sentencepiece import Encoder
from veco_fairseq.understanding.examples import Question, SentencePair, TaggedSentence

IGNORE = -100  # torch's target for positions without one
MAX_QUESTION = 64  # the most tokens of a question, as in XTREME


@dataclass(slots=True)
class Window:
    """A sequence ``<s> ... </s>`` that fits the model; arrays with an entry for each token have 32 bits.

    Attributes:
        tokens: (length).
        target: a sentence pair's label, (1); the tags of the window's words, (words); or the first and the last token of
            a question's answer, (2), both 0, the position of ``<s>``, if the answer is not in this window.
        words: for tags: the number in the window of each token's word, or -1, (length).
        offsets: for questions: each token's first character in the context and the one after its last, or -1 for tokens
            that are not of the context, (length, 2).
    """

    tokens: np.ndarray
    target: np.ndarray
    words: np.ndarray | None = None
    offsets: np.ndarray | None = None

    def predict_nothing(self) -> None:
        """Leave the window out of the loss."""
        self.target = np.full_like(self.target, IGNORE)


@dataclass
class Notes:
    """Counts of what happened to the data, and where it happened first."""

    counts: Counter = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, where: str) -> None:
        """Count ``what`` once more."""
        self.counts[what] += 1
        self.first.setdefault(what, where)

    def lines(self) -> list[str]:
        """Return a line for each kind."""
        return [f"{count:,} {what} (first: {self.first[what]})" for what, count in self.counts.items()]


class Windows:
    """Makes windows from examples.

    Args:
        dictionary: of the model.
        pieces: its SentencePiece model.
        labels: the classes or tags, in the order of the model's outputs.
        max_length: most tokens of a window, with ``<s>`` and ``</s>``.
        stride: tokens from the start of one window of a long context to the start of the next.
        word_pooling: "first": a word's tag is predicted from its first token; "mean": from the mean of its tokens.
        notes: receives what is cut and what does not fit.
    """

    def __init__(
        self, dictionary: Dictionary, pieces: sentencepiece.SentencePieceProcessor, labels: Sequence[str],
        *, max_length: int, stride: int, word_pooling: str, notes: Notes,
    ):  # fmt: skip
        self.pieces = pieces
        self.encoder = Encoder(pieces, dictionary.symbols, workers=1)
        self.ids = self.encoder.ids
        self.bos, self.eos = dictionary.bos(), dictionary.eos()
        self.classes = {label: number for number, label in enumerate(labels)}
        self.targets: dict[int, np.ndarray] = {}  # for pairs: one for all examples of a class
        self.max_length = max_length
        self.stride = stride
        self.word_pooling = word_pooling
        self.notes = notes

    def __call__(self, example) -> list[Window]:
        """Return the windows of an example: one for a sentence pair, one or more for others."""
        make: dict[type, Callable[[Any], list[Window]]] = {
            SentencePair: self.of_pair, TaggedSentence: self.of_words, Question: self.of_question
        }  # fmt: skip
        return make[type(example)](example)

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of a text, without ``<s>`` and ``</s>``."""
        pieces = np.array(self.pieces.encode(text), dtype=np.int64)
        if self.encoder.apart[pieces].any():  # which takes longer, and is rare
            return self.encoder([text])[0][:-1]
        return self.ids[pieces]

    def join(self, *parts: np.ndarray) -> np.ndarray:
        """Return ``<s> a </s>``, or ``<s> a </s> </s> b </s>`` as in XLM-R."""
        first, *others = parts
        tokens: list[Sequence[int] | np.ndarray] = [[self.bos], first, [self.eos]]
        for part in others:
            tokens += [[self.eos], part, [self.eos]]
        return np.concatenate(tokens).astype(np.int32)

    def class_of(self, label: str | None, where: str) -> int:
        """Return the number of a label; note a label that training did not have, which is never predicted."""
        if label is not None and label not in self.classes:
            self.notes.add(f"of label {label}, which training did not have: they count as wrong", where)
        return IGNORE if label is None else self.classes.get(label, IGNORE)

    def of_pair(self, pair: SentencePair) -> list[Window]:
        """Return ``<s> first </s> </s> second </s>``; cut the longer one if they do not fit."""
        first, second = self.encode(pair.first), self.encode(pair.second)
        if not len(first) or not len(second):
            self.notes.add("with an empty sentence", pair.where)
        room = self.max_length - 4
        if len(first) + len(second) > room:
            self.notes.add("longer than --max-length, cut", pair.where)
            half = room // 2
            shorter = min(len(first), len(second), half)
            first, second = (side[: 2 * half - shorter] for side in (first, second))
        number = self.class_of(pair.label, pair.where)
        target = self.targets.setdefault(number, np.array([number]))
        return [Window(self.join(first, second), target)]

    def of_words(self, sentence: TaggedSentence) -> list[Window]:
        """Return windows with as many whole words as fit; every word is in one window."""
        room = self.max_length - 2
        pieces = self.encoder.words(sentence.words)
        for number, piece in enumerate(pieces):
            if len(piece) > room:
                self.notes.add("with a word longer than --max-length, cut", sentence.where)
                pieces[number] = piece[:room]
        tags = sentence.tags or (None,) * len(pieces)
        windows, start, length = [], 0, 0
        for number, piece in enumerate(pieces):
            if length + len(piece) > room:
                windows.append(self._of_words(pieces[start:number], tags[start:number], sentence.where))
                start, length = number, 0
            length += len(piece)
        windows.append(self._of_words(pieces[start:], tags[start:], sentence.where))
        if len(windows) > 1:
            self.notes.add("longer than --max-length, in several windows", sentence.where)
        return windows

    def _of_words(self, pieces: Sequence[np.ndarray], tags: Sequence[str | None], where: str) -> Window:
        words = []
        for number, piece in enumerate(pieces):
            words += [number] + [number if self.word_pooling == "mean" else -1] * (len(piece) - 1)
        target = np.array([self.class_of(tag or None, where) for tag in tags])
        return Window(self.join(np.concatenate(pieces)), target, words=np.array([-1, *words, -1], dtype=np.int32))

    def of_question(self, question: Question) -> list[Window]:
        """Return windows ``<s> question </s> </s> part of the context </s>``, with parts :attr:`stride` tokens apart."""
        asked = self.encode(question.question)[:MAX_QUESTION]
        context, offsets = self._with_offsets(question.context)
        room = self.max_length - 4 - len(asked)
        answer = self._answer_tokens(question, offsets)
        windows: list[Window] = []
        start = 0
        while not windows or start + room - self.stride < len(context):
            part = slice(start, start + room)
            before = len(asked) + 3
            here = np.full((before + len(context[part]) + 1, 2), -1, dtype=np.int32)
            here[before:-1] = offsets[part]
            target = np.zeros(2, dtype=np.int64)
            if answer and start <= answer[0] and answer[1] < start + room:
                target = np.array(answer) - start + before
            windows.append(Window(self.join(asked, context[part]), target, offsets=here))
            start += self.stride
        return windows

    def _with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a text's ids, and the characters that each stands for, without the space before them."""
        pieces = self.pieces.encode(text, return_type="proto").pieces
        numbers = np.array([piece.id for piece in pieces], dtype=np.int64)
        # The surfaces add up to the text without leading spaces. The pieces do not, and count their positions in bytes.
        offsets = np.zeros((len(pieces), 2), dtype=np.int64)
        end = len(text.encode()[: pieces[0].begin].decode()) if len(pieces) else 0
        spaces = "".join(filter(self._is_space, set(text)))
        for place, surface in enumerate(piece.surface for piece in pieces):
            offsets[place] = end + len(surface) - len(surface.lstrip(spaces)), end + len(surface)
            end += len(surface)
        if not self.encoder.apart[numbers].any():
            return self.ids[numbers], offsets
        words = [without_symbols(self.pieces, piece.piece).split() for piece in pieces]  # as the encoder reads them
        ids = [self.encoder.symbols.get(word, self.encoder.unk) for word in chain.from_iterable(words)]
        return np.array(ids, dtype=np.int64), np.repeat(offsets, list(map(len, words)), axis=0)

    def _is_space(self, letter: str) -> bool:
        """Return whether SentencePiece takes a character for a space, as most models take U+200B and U+200F, or drops it."""
        return letter.isspace() or not (letter.isalnum() or self.pieces.normalize(letter).strip("\u2581"))

    def _answer_tokens(self, question: Question, offsets: np.ndarray) -> tuple[int, int] | None:
        """Return the first and the last token of the first answer that is in the context, or None."""
        for start, text in question.answers:
            if question.context[start : start + len(text)] != text:
                start = question.context.find(text)
                self.notes.add("whose answer is not where its file says", question.where)
            if start < 0:
                self.notes.add("whose answer is not in its context", question.where)
                continue
            inside = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < start + len(text)))
            if len(inside):
                return int(inside[0]), int(inside[-1])
        return None
