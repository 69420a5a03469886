# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The classes of a training: the labels or tags of its sets."""

from collections.abc import Sequence
from pathlib import Path

from veco_fairseq.errors import UserError
from veco_fairseq.understanding.examples import SentencePair, TaggedSentence, seen
from veco_fairseq.understanding.reading import read_examples

WANTED = {  # by task
    "classification": "give each row two sentences and a label; beside a single sentence, write . as the second",
    "tagging": "give each word a tag",
}


def labels_of(files: dict[str, Path], nlu_task: str) -> list[str]:
    """Return the labels or tags of training sets in alphabetical order.

    Args:
        files: language -> file.
        nlu_task: classification or tagging.

    Raises:
        UserError: a file is bad, there is no label or only one, two classes differ in capitals alone, two labels in what cannot
            be seen, or the labels are figures, for which there is no regression.
    """
    found: set[str] = set()
    for lang, path in files.items():
        for example in read_examples(path, lang, nlu_task):
            if isinstance(example, TaggedSentence):
                found.update(filter(None, example.tags))
            elif isinstance(example, SentencePair) and example.label:
                found.add(example.label)
    labels = sorted(found)
    names = ", ".join(map(str, files.values()))
    if not labels:
        raise UserError(f"{names}: has no label to learn: {WANTED[nlu_task]}")
    if len(labels) == 1:
        raise UserError(f"{names}: all examples have the label {labels[0]}: there must be two labels to learn from")
    visible = {seen(label): label for label in labels}
    if twice := next((label for label in labels if label not in visible.values()), None):
        pair = f"{ascii(twice)} and {ascii(visible[seen(twice)])}"
        raise UserError(f"{names}: the labels {pair} differ in characters alone that cannot be seen: write one of them")
    spellings = {label.lower(): label for label in labels}
    if nlu_task == "classification" and (twice := next((label for label in labels if label not in spellings.values()), None)):
        raise UserError(f"{names}: the labels {twice} and {spellings[twice.lower()]} differ in capitals alone: write one of them")
    if fraction := _fraction(labels):
        raise UserError(f"{names}: the labels are figures, such as {fraction}: --nlu-task classification predicts classes alone")
    return labels


def _fraction(labels: Sequence[str]) -> str | None:
    """Return a label such as 3.4 if all labels are numbers; 1.0 is as good a name of a class as 1."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return None
    return next((label for label, number in zip(labels, numbers) if number % 1), None)
