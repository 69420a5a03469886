# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The examples of a task: sentence pairs, tagged sentences, and questions."""

from dataclasses import dataclass, replace
from typing import Any
from unicodedata import category


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A row of XNLI or PAWS-X.

    Attributes:
        id: shared by the row's translations: the file's id, or "row N".
        where: the file and line, for messages.
        label: None if the file has none.
    """

    id: str
    where: str
    first: str
    second: str
    label: str | None


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence of a treebank or of WikiAnn; ``id`` may be empty.

    Attributes:
        tags: one for each word, empty where the word has none; no tags if no word has one.
    """

    id: str
    where: str
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a context.

    Attributes:
        answers: (first character in the context, text) of each; empty if the context has no answer.
    """

    id: str
    where: str
    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


Example = SentencePair | TaggedSentence | Question


def has_gold(example: Example) -> bool:
    """Return whether an example has what is to be predicted: a label, tags, or an answer."""
    if isinstance(example, SentencePair):
        return bool(example.label)
    return bool(example.tags if isinstance(example, TaggedSentence) else example.answers)


def without_text(example: Example) -> Example:
    """Return what training keeps of an example once its tokens are made: everything but the text."""
    texts: dict[type, dict[str, Any]] = {
        SentencePair: {"first": "", "second": ""},
        TaggedSentence: {"words": (), "tags": ()},
        Question: {"question": "", "context": "", "answers": ()},
    }
    return replace(example, **texts[type(example)])


def seen(text: str) -> str:
    """Return what can be seen of a text: without marks of format, such as the zero-width space U+200B, and control characters."""
    return "".join(letter for letter in text if category(letter) not in ("Cf", "Cc"))
