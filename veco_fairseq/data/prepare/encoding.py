# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Rows of text to token files, on all processors; a run that was stopped in the middle goes on there."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from veco_fairseq.data.prepare.growing import GrowingTokens, Progress, can_go_on, smallest_type, to_be_repeated
from veco_fairseq.data.prepare.text import has_text
from veco_fairseq.data.sentencepiece import LINES_A_BATCH, Encoder, load_sentencepiece
from veco_fairseq.data.symbols import read_symbols
from veco_fairseq.errors import UserError
from veco_fairseq.files import lines_of, read_blocks
from veco_fairseq.manifest import Manifest
from veco_fairseq.parallel import Run

SECONDS_BETWEEN_PROGRESS = 10.0
SECONDS_BETWEEN_MARKS = 30.0  # what a kill loses at most

Key = tuple[str, int]  # split and side
Side = tuple[np.ndarray, np.ndarray]  # the ids of rows, one after the other, and the rows' lengths, see Encoder.flat
Blocks = tuple[int, int, tuple[bytes, ...]]  # the number of a text, of rows read, and a block of each side, see read_blocks
Encoded = tuple[int, int, list[Side]]  # the same, and the sides of the rows that are kept
Encode = Callable[[Iterable[Blocks]], Iterator[Encoded]]


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
class Text:
    """Files whose lines N are a row.

    Attributes:
        paths: a file for each side.
        split: of its rows.
        held_out: called with the numbers of rows that are kept, tells which of them go to the split "valid" instead.
    """

    paths: tuple[Path, ...]
    split: str
    held_out: Callable[[np.ndarray], np.ndarray] | None = None


@dataclass
class Position:
    """How far a step has come.

    Attributes:
        text: the number of the text.
        rows: of it that were read.
        kept: of these that were not left out.
        done: rows of all texts that were read.
    """

    text: int = 0
    rows: int = 0
    kept: int = 0
    done: int = 0

    def add(self, text: int, rows: int, kept: int) -> None:
        """Count so many rows of this text, which is the same as before or the next."""
        if text != self.text:
            self.text, self.rows, self.kept = text, 0, 0
        self.rows, self.kept, self.done = self.rows + rows, self.kept + kept, self.done + rows


@dataclass
class Step:
    """Token files that are written in one pass over some texts.

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


def encoding(run: Run, model: Path, dictionary: Path, *, leave_out_empty: bool) -> Encode:
    """Return what encodes the blocks of a step in the processes of ``run``.

    Args:
        run: see :func:`veco_fairseq.parallel.kept_processes`.
        model: SentencePiece's.
        dictionary: that belongs to it.
        leave_out_empty: rows of several sides of which one has no text.
    """
    return partial(run, partial(_encodes, model, dictionary, leave_out_empty))


def encode_rows(
    step: Step,
    texts: Sequence[Text],
    encoder: Encoder,
    encode: Encode,
    *,
    manifest: Manifest,
    progress: Progress,
) -> dict[Key, Counts]:
    """Write a step's token files, or what is left of them, and return what is in them.

    Args:
        step: which files.
        texts: read one after the other.
        encoder: of the vocabulary.
        encode: see :func:`encoding`.
        manifest: of the folder, where the step is begun.
        progress: of the folder.

    Raises:
        UserError: a line is no text, or the files cannot be written; the same call then goes on.
    """
    prefixes = {key: manifest.root / prefix for key, prefix in step.files.items()}
    begun = progress.begun(step.name, step.made_from)
    states = dict(zip(prefixes, begun["files"] if begun else ()))
    if (
        begun
        and "position" in begun
        and all(can_go_on(prefixes[key], encoder.vocabulary, state) for key, state in states.items())
    ):
        position = Position(**begun["position"])
        counts = {key: Counts(**state) for key, state in zip(prefixes, begun["counts"])}
        say(f"{step.name}: going on after {position.done:,} lines")
    else:
        manifest.start(step.name, step.names)
        position, states = Position(), {}
        counts = {key: Counts() for key in prefixes}
    with to_be_repeated(manifest.root / step.name), ExitStack() as stack:
        tokens = {key: stack.enter_context(closing(GrowingTokens(prefix, encoder.vocabulary, states.get(key))))
                  for key, prefix in prefixes.items()}  # fmt: skip

        def mark() -> None:
            progress.part = {"name": step.name, "made_from": step.made_from, "position": asdict(position),
                             "counts": [asdict(count) for count in counts.values()],
                             "files": [growing.mark() for growing in tokens.values()]}  # fmt: skip
            progress.save()

        clock = Clock(step.name, step.rows, position.done)
        for number, rows, sides in encode(_blocks(texts, position)):
            kept = len(sides[0][1])
            position.add(number, rows, kept)
            for key, (ids, sizes) in _by_split(texts[number], position.kept - kept, sides):
                tokens[key].add(ids, sizes)
                counts[key].add(ids, sizes, encoder.unk)
            if clock.has_come(position.done):
                mark()
        mark()
        for growing in tokens.values():
            growing.finish()
    say(f"{step.name}: {position.done - clock.before:,} lines encoded in {time.time() - clock.started:.1f} s")
    return counts


def _blocks(texts: Sequence[Text], position: Position) -> Iterator[Blocks]:
    """Yield what comes after a position, as bytes, since a worker reads them faster than this process splits them."""
    first, skip = position.text, position.rows
    for number, text in enumerate(texts[first:], start=first):
        for blocks in zip(*(read_blocks(path, LINES_A_BATCH, skip if number == first else 0) for path in text.paths)):
            rows = {block.count(b"\n") + (not block.endswith(b"\n")) for block in blocks}
            if len(rows) > 1:
                raise UserError(f"{' and '.join(map(str, text.paths))}: were changed while they were read: start again")
            yield number, rows.pop(), blocks


def _encodes(model: Path, dictionary: Path, leave_out_empty: bool) -> Callable[[Blocks], Encoded]:
    encoder = Encoder(load_sentencepiece(model), read_symbols(dictionary), workers=1)
    return partial(_encoded, encoder, leave_out_empty)


def _encoded(encoder: Encoder, leave_out_empty: bool, read: Blocks) -> Encoded:
    number, rows, blocks = read
    sides = [lines_of(block) for block in blocks]
    if leave_out_empty and len(sides) > 1:
        texts = [[has_text(line) for line in lines] for lines in sides]
        sides = [[line for line, *kept in zip(lines, *texts) if all(kept)] for lines in sides]
    kind = smallest_type(encoder.vocabulary)  # from process to process a quarter of the bytes
    return number, rows, [(ids.astype(kind), sizes) for ids, sizes in map(encoder.flat, sides)]


def _by_split(text: Text, first: int, sides: list[Side]) -> Iterator[tuple[Key, Side]]:
    """Yield the sides of the rows of a text, from the first of these numbers on, by the split that they belong to."""
    rows = len(sides[0][1])
    if not rows:
        return
    valid = text.held_out(np.arange(first, first + rows)) if text.held_out else np.zeros(rows, dtype=bool)
    for split, chosen in ((text.split, ~valid), ("valid", valid)):
        if chosen.any():
            for side, (ids, sizes) in enumerate(sides):
                whole = chosen.all()
                yield (split, side), (ids, sizes) if whole else (ids[np.repeat(chosen, sizes)], sizes[chosen])


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
