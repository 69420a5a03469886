# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Token files that grow as text is encoded, and can go on growing after a kill."""

import json
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from veco_fairseq.errors import SYSTEM_ERRORS, UserError, to_go_on
from veco_fairseq.files import atomic_output, write_text

PROGRESS_NAME = ".progress.json"
# fairseq's index of a memory-mapped token file: this header, the sentences' lengths (int32), their positions (int64). It
# is written here, and not by fairseq, so that nothing has to import PyTorch.
MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
HEADER = struct.Struct(f"<{len(MAGIC)}sQBQ")  # magic, version, type of the ids, sentences
CODES: dict[type, int] = {np.uint16: 8, np.uint32: 9}  # fairseq's numbers of the types
SIZES_A_TIME = 2**20  # sizes of an index to copy at a time, so that memory does not depend on the number of lines


@contextmanager
def to_be_repeated(path: Path) -> Iterator[None]:
    """Raise UserError if something below ``path`` cannot be written, so that the same command later goes on."""
    try:
        yield
    except BrokenPipeError:  # of what is said meanwhile
        raise
    except OSError as error:
        advice = to_go_on(SYSTEM_ERRORS.get(error.errno or 0, ": choose another folder").partition(": ")[2])
        raise UserError(
            f"{path}: cannot be written ({error.strerror}): {advice} and run the same command again, which goes on from here"
        ) from error


class GrowingFile:
    """A file that is written from its beginning to its end by several runs.

    Args:
        path: hidden, until all is there.
        length: in bytes, of what an earlier run has left; what was written after it is cut off. None: a new file.
    """

    def __init__(self, path: Path, length: int | None = None):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(path, "wb" if length is None else "r+b", buffering=0)
        self.length = self.file.seek(self.file.truncate(length or 0))

    def write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[self.file.write(left) :]
        self.length += len(content)

    def mark(self) -> int:
        """Put all on the disk, and return the length to go on from."""
        os.fsync(self.file.fileno())
        return self.length

    def close(self) -> None:
        self.file.close()


class GrowingTokens:
    """Writes a token file as ``fairseq-preprocess`` does, in memory that does not depend on its length.

    Until :meth:`finish`, there are two files with hidden names: the tokens, and the lines' lengths (int32).

    Args:
        prefix: of the .bin and .idx to make.
        vocabulary: the number of token types, which decides the size of the integers.
        state: a result of :meth:`mark` to go on from; everything written after it is cut off.
    """

    def __init__(self, prefix: Path, vocabulary: int, state: dict[str, int] | None = None):
        self.prefix, self.dtype = prefix, smallest_type(vocabulary)
        self.lines, self.tokens = (state["lines"], state["tokens"]) if state else (0, 0)
        sizes = lengths(self.lines, self.tokens, self.dtype) if state else (None, None)
        self.files = [GrowingFile(path, size) for path, size in zip(hidden_paths(prefix), sizes)]

    def add(self, ids: np.ndarray, sizes: np.ndarray) -> None:
        """Append lines of these lengths (int32), their ids one after the other, each with its ``</s>``."""
        for file, values in zip(self.files, (ids.astype(self.dtype, copy=False), sizes)):
            file.write(values.tobytes())
        self.lines, self.tokens = self.lines + len(sizes), self.tokens + len(ids)

    def mark(self) -> dict[str, int]:
        """Write everything to the disk, and return the state to go on from."""
        for file in self.files:
            file.mark()
        return {"lines": self.lines, "tokens": self.tokens}

    def close(self) -> None:
        for file in self.files:
            file.close()

    def finish(self) -> None:
        """Make the index, and give the files their names, the index last: where it is, everything is complete."""
        self.close()
        tokens, sizes = hidden_paths(self.prefix)
        with atomic_output(f"{self.prefix}.idx") as temporary:
            with open(temporary, "wb") as index, open(sizes, "rb") as source:
                index.write(HEADER.pack(MAGIC, VERSION, CODES[self.dtype], self.lines))
                shutil.copyfileobj(source, index)
                source.seek(0)
                offset = 0
                while block := source.read(4 * SIZES_A_TIME):
                    ends = offset + np.cumsum(np.frombuffer(block, dtype=np.int32), dtype=np.int64)
                    starts = np.concatenate([[offset], ends[:-1]])
                    index.write((starts * np.dtype(self.dtype).itemsize).astype(np.int64).tobytes())
                    offset = int(ends[-1])
            os.replace(tokens, f"{self.prefix}.bin")


def smallest_type(vocabulary: int) -> type:
    """Return the integer type that fairseq-preprocess takes for a vocabulary of this size."""
    return np.uint16 if vocabulary < 65_500 else np.uint32


def hidden_paths(prefix: Path) -> list[Path]:
    """Return the paths of the growing tokens and lengths. Only this module knows them; the manifest removes them as stale."""
    return [prefix.with_name(f".{prefix.name}{suffix}.part.tmp") for suffix in (".bin", ".idx")]


def lengths(lines: int, tokens: int, dtype) -> tuple[int, int]:
    """Return the lengths of the two files, in bytes."""
    return tokens * np.dtype(dtype).itemsize, lines * 4


def can_go_on(prefix: Path, vocabulary: int, state: dict[str, int]) -> bool:
    """Return whether the two files hold what ``state`` says; undo a renaming that a kill has interrupted."""
    paths = hidden_paths(prefix)
    named = Path(f"{prefix}.bin")
    if named.exists() and not paths[0].exists():
        Path(f"{prefix}.idx").unlink(missing_ok=True)
        named.rename(paths[0])
    wanted = lengths(state["lines"], state["tokens"], smallest_type(vocabulary))
    return all(path.exists() and path.stat().st_size >= length for path, length in zip(paths, wanted))


class Progress:
    """Notes on what an interrupted run has done.

    Args:
        path: the file of the notes: ``ROOT/.progress.json`` of a data root.

    Attributes:
        surveys: part -> ``[made_from, survey]``.
        part: the part that was being encoded: ``name``, ``made_from``, and its state.
    """

    def __init__(self, path: Path):
        self.path = path
        self.surveys: dict[str, list] = {}
        self.part: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError):  # there is no file, or none to go on from
            self.surveys, self.part = json.loads(self.path.read_text(encoding="utf-8"))

    def survey(self, name: str, made_from: dict[str, Any]) -> dict[str, Any] | None:
        """Return the survey of a part's text, if the text is still the same."""
        then, survey = self.surveys.get(name, (None, None))
        return survey if then == json.loads(json.dumps(made_from)) else None

    def begun(self, name: str, made_from: dict[str, Any]) -> dict[str, Any] | None:
        """Return the state of a part, if it was being encoded, and from the same text."""
        same = self.part.get("name") == name and self.part.get("made_from") == json.loads(json.dumps(made_from))
        return self.part if same else None

    def save(self) -> None:
        write_text(self.path, json.dumps([self.surveys, self.part], ensure_ascii=False))
