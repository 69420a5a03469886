# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Rows of text to token files, on all processors; a run that was stopped in the middle goes on there."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from veco_fairseq.data.prepare.growing import GrowingTokens, Progress, can_go_on, smallest_type, to_be_repeated
from veco_fairseq.data.sentencepiece import LINES_A_BATCH, Encoder
from veco_fairseq.files import lines_of
from veco_fairseq.manifest import Manifest
from veco_fairseq.parallel import in_processes

SECONDS_BETWEEN_PROGRESS = 10.0
SECONDS_BETWEEN_MARKS = 30.0  # what a kill loses at most

Key = tuple[str, int]  # split and side
Row = tuple[str, tuple[str, ...]]  # of text: its split, and a line of each side
Batch = tuple[int, dict[Key, bytes]]  # the number of rows, and their lines, see lines_of
Encoded = tuple[int, dict[Key, tuple[np.ndarray, np.ndarray]]]  # ... and their ids and lengths, see Encoder.flat


def say(message: str) -> None:
    print(message, flush=True)


@dataclass
class Counts:
    """What was written of one side of one split. Tokens are pieces, without </s>."""

    lines: int = 0
    documents: int = 0
    tokens: int = 0
    unknown: int = 0
    in_document: bool = False

    def add(self, ids: np.ndarray, sizes: np.ndarray, unk: int) -> None:
        """Count lines of these lengths, their ids one after the other."""
        text = sizes > 1
        self.lines += int(text.sum())
        self.documents += int((text & ~np.append(self.in_document, text[:-1])).sum())
        self.in_document = bool(text[-1])
        self.tokens += len(ids) - len(sizes)
        self.unknown += int((ids == unk).sum())


@dataclass
class Step:
    """Token files that are written in one pass over a text.

    Attributes:
        name: in the manifest.
        made_from: what they depend on.
        files: (split, side) -> the token file below the folder, without .bin and .idx.
        rows: of the text, about.
    """

    name: str
    made_from: dict[str, Any]
    files: dict[tuple[str, int], str]
    rows: int

    @property
    def names(self) -> list[str]:
        """All files that it leaves."""
        return [f"{prefix}{suffix}" for prefix in self.files.values() for suffix in (".bin", ".idx")]


def encode_rows(
    step: Step,
    batches: Callable[[int], Iterator[Batch]],
    encoder: Encoder,
    *,
    workers: int,
    manifest: Manifest,
    progress: Progress,
) -> dict[Key, Counts]:
    """Write a step's token files, or what is left of them, and return what is in them.

    Args:
        step: which files.
        batches: called with a number of rows, gives those that come after them, in their order.
        encoder: of the vocabulary.
        workers: processes.
        manifest: of the folder, where the step is begun.
        progress: of the folder.

    Raises:
        UserError: a line is no text, or the files cannot be written; the same call then goes on.
    """
    prefixes = {key: manifest.root / prefix for key, prefix in step.files.items()}
    begun = progress.begun(step.name, step.made_from)
    states = dict(zip(prefixes, begun["files"] if begun else ()))
    if begun and all(can_go_on(prefixes[key], encoder.vocabulary, state) for key, state in states.items()):
        done = begun["done"]
        counts = {key: Counts(**state) for key, state in zip(prefixes, begun["counts"])}
        say(f"{step.name}: going on after {done:,} lines")
    else:
        manifest.start(step.name, step.names)
        done, states = 0, {}
        counts = {key: Counts() for key in prefixes}
    with to_be_repeated(manifest.root / step.name), ExitStack() as stack:
        tokens = {key: stack.enter_context(closing(GrowingTokens(prefix, encoder.vocabulary, states.get(key))))
                  for key, prefix in prefixes.items()}  # fmt: skip

        def mark() -> None:
            progress.part = {"name": step.name, "made_from": step.made_from, "done": done,
                             "counts": [asdict(count) for count in counts.values()],
                             "files": [growing.mark() for growing in tokens.values()]}  # fmt: skip
            progress.save()

        clock = Clock(step.name, step.rows, done)
        results = stack.enter_context(closing(in_processes(partial(partial, _encoded, encoder), batches(done), workers)))
        for number, encoded in results:
            for key, (ids, sizes) in encoded.items():
                tokens[key].add(ids, sizes)
                counts[key].add(ids, sizes, encoder.unk)
            done += number
            if clock.has_come(done):
                mark()
        mark()
        for growing in tokens.values():
            growing.finish()
    say(f"{step.name}: {done - clock.before:,} lines encoded in {time.time() - clock.started:.1f} s")
    return counts


def in_batches(rows: Iterator[Row], keys: Collection[Key]) -> Iterator[Batch]:
    """Yield :data:`~veco_fairseq.data.sentencepiece.LINES_A_BATCH` rows at a time; a key without a line is left out."""
    while batch := list(islice(rows, LINES_A_BATCH)):
        texts = {key: [lines[key[1]] for split, lines in batch if split == key[0]] for key in keys}
        yield len(batch), {key: "\n".join([*lines, ""]).encode() for key, lines in texts.items() if lines}


def _encoded(encoder: Encoder, batch: Batch) -> Encoded:
    rows, texts = batch
    kind = smallest_type(encoder.vocabulary)  # from process to process a quarter of the bytes
    flat = {key: encoder.flat(lines_of(block)) for key, block in texts.items()}
    return rows, {key: (ids.astype(kind), sizes) for key, (ids, sizes) in flat.items()}


class Clock:
    """Says every few seconds how far a pass over a text has come, and when it is time to note that.

    Args:
        name: of the text, in what is said.
        total: of its lines, about.
        before: lines that an earlier run has done.
    """

    def __init__(self, name: str, total: int, before: int):
        self.name, self.total, self.before = name, total, before
        self.started = self.said = self.marked = time.time()

    def has_come(self, done: int) -> bool:
        """Whether it is time to note that so many lines are done."""
        now = time.time()
        if now - self.said > SECONDS_BETWEEN_PROGRESS:
            self.said = now
            speed = (done - self.before) / (now - self.started)
            say(f"{self.name}: {done:,} of about {self.total:,} lines, {speed:,.0f} a second")
        if now - self.marked <= SECONDS_BETWEEN_MARKS:
            return False
        self.marked = now
        return True


def remove_rest(manifest: Manifest, steps: Iterable[Step]) -> None:
    """Remove all hidden files from the folders of steps that are done."""
    for folder in {(manifest.root / prefix).parent for step in steps for prefix in step.files.values()}:
        for path in folder.glob(".*.part.tmp"):
            path.unlink()
