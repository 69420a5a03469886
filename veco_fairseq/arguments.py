# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Command lines: numbers within their borders, paths that are apart, and errors of one line."""

import argparse
import fnmatch
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from veco_fairseq.cli import print_error
from veco_fairseq.errors import UserError

LARGEST = 2**31 - 1  # what fairseq, PyTorch and SentencePiece all take for a whole number


class Number:
    """A number within borders: an argument's type, and the check of a value that is there already.

    Args:
        kind: int or float.
        least, most: the borders, which belong to it; without them a whole number is one of 32 bits, and any is finite.
        above, below: borders that do not.
    """

    def __init__(
        self, kind: type = float, *, least: float = -math.inf, most: float = math.inf,
        above: float | None = None, below: float | None = None,
    ):  # fmt: skip
        if kind is int:
            least, most = max(least, -LARGEST), min(most, LARGEST)
        self.kind, self.least, self.most, self.above, self.below = kind, least, most, above, below

    def __call__(self, text: str) -> float:
        """The number that ``text`` is; argparse.ArgumentTypeError if it is none of these."""
        try:
            value = self.kind(text)
        except (ValueError, TypeError, OverflowError):
            raise argparse.ArgumentTypeError(f"{short(text)}: is no {self.noun}") from None
        problem = self.problem(value)
        if problem is not None:
            raise argparse.ArgumentTypeError(f"{short(text)}: {problem}")
        return value

    def problem(self, value: Any) -> str | None:
        """What ``value`` must be and is not, or None."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or (self.kind is int and value != value // 1):  # NaN is never itself
            return f"must be a {self.noun}"
        if not math.isfinite(value):
            return f"must be a finite {self.noun}"
        if value < self.least:
            return f"must be at least {self.least:g}" if self.least > -LARGEST else f"must be at least {self.least}"
        if value > self.most:
            return f"must be at most {self.most:g}" if self.most < LARGEST else f"must be at most {self.most}"
        if self.above is not None and value <= self.above:
            return f"must be above {self.above:g}"
        if self.below is not None and value >= self.below:
            return f"must be below {self.below:g}"
        return None

    @property
    def noun(self) -> str:
        return "whole number" if self.kind is int else "number"


WHOLE = Number(int)
COUNT = Number(int, least=1)
FROM_0 = Number(int, least=0)
SIZE = Number(int, least=1, most=65_536)  # a layer's: the largest model in print has 20,480
WORKERS = Number(int, least=1, most=1024)  # threads or processes: more are a slip, and can stop the machine
SEED = Number(int, least=0)
FINITE = Number()
NOT_NEGATIVE = Number(least=0)
POSITIVE = Number(above=0)
SHARE = Number(least=0, most=1)
EXPONENT = Number(least=0, most=10)  # of shares, which all vanish in a larger one
LENGTH_PENALTY = Number(least=-100, most=100)  # the exponent of a length, which overflows in a larger one


def short(text: Any) -> str:
    """``text`` for a message, its middle left out where it is long."""
    text = str(text)
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"


# ---------------------------------------------------------------------------------------------------------------------
# Paths. What a command writes must not be what it reads: after the rename the input is gone, with exit code 0.


class Output(NamedTuple):
    """What a command is going to write.

    Attributes:
        option: which named it.
        path: the file or folder.
        writes: of a folder, patterns of the names in it that are written; of a file, none.
    """

    option: str
    path: Path
    writes: tuple[str, ...] = ()


class Input(NamedTuple):
    """What a command reads.

    Attributes:
        option: which named it.
        path: the file or folder.
        whole: whether all of a folder is read, so that nothing may be written anywhere below it.
    """

    option: str
    path: Path
    whole: bool = False


def require_apart(inputs: Iterable[Input], outputs: Iterable[Output]) -> None:
    """Refuse outputs that are an input, by any of its names and links, or one another, or nothing that can be replaced.

    Args:
        inputs, outputs: what is read and what is written.

    Raises:
        UserError: with both options.
    """
    inputs = list(inputs)
    seen: dict[Path, str] = {}
    for output in outputs:
        option, path, is_folder = output.option, output.path, bool(output.writes)
        if path.is_dir() and not is_folder:
            raise UserError(f"{option} {path}: is a folder, where a file is needed")
        if path.exists() and not path.is_dir() and is_folder:
            raise UserError(f"{option} {path}: is a file, where a folder is needed")
        if path.exists() and not (path.is_dir() or path.is_file()):
            raise UserError(f"{option} {path}: is no ordinary file, which it would be replaced by: choose another name")
        real = real_path(path)
        above = next((parent for parent in path.absolute().parents if parent.exists()), None)
        if above is not None and not above.is_dir():
            raise UserError(f"{option} {path}: {above} is a file, where a folder is needed")
        for read in inputs:
            within = read.path.iterdir() if read.whole and read.path.is_dir() else ()
            if any(_is_written(output, one) for one in (read.path, *within)):
                raise UserError(f"{option} {path}: would overwrite {read.option} {read.path}: choose another path")
            if read.whole and real_path(read.path) in real.parents:
                raise UserError(f"{option} {path}: lies in {read.option} {read.path}, which is read: choose another path")
        if real in seen:
            raise UserError(f"{option} {path}: is {seen[real]}, too: choose another path for one of them")
        seen[real] = option


def real_path(path: Path) -> Path:
    """The path without its links; UserError if they lead round in a circle."""
    try:
        return path.resolve()
    except (RuntimeError, OSError) as error:  # before Python 3.13, and from then on
        raise UserError(f"{path}: is a link that leads to itself: name a file or folder") from error


def _is_written(output: Output, read: Path) -> bool:
    """Whether writing ``output`` replaces ``read``, or a part of it."""
    real, folder = real_path(Path(read)), real_path(output.path)
    if not output.writes:
        return folder == real or (output.path.exists() and read.exists() and os.path.samefile(output.path, read))
    if folder == real or (real.is_dir() and folder in real.parents and "*" in output.writes):
        return True
    if folder not in real.parents:
        return False
    name = real.relative_to(folder).as_posix()
    return any(fnmatch.fnmatch(name, pattern) for pattern in output.writes)


class PathArgument:
    """An argument's type: a path, which is not empty, and what the command does with it.

    Args:
        writes: False: it is read; True: it is a file to write; or the patterns of a folder's names to write.
        within: of an argument that is more than a path, such as NAME=FILE: the paths in it.
        suffixes: of what is written beside a file, its name longer by one of these.
        whole: see :class:`Input`.
    """

    def __init__(
        self, writes: bool | Sequence[str] = False, within: Callable[[str], Iterable[str]] | None = None,
        suffixes: Sequence[str] = (), whole: bool = False,
    ):  # fmt: skip
        self.writes, self.within, self.suffixes, self.whole = writes, within, suffixes, whole

    def __call__(self, text: str) -> Path | str:
        """The path, or the whole argument if there is more to it."""
        if not all(part.strip() for part in ([text] if self.within is None else [text, *self.within(text)])):
            raise argparse.ArgumentTypeError("is an empty path: name a file or folder" + (f" in {text}" if text else ""))
        if "\0" in text:
            raise argparse.ArgumentTypeError("has a NUL character, which no path can have")
        return Path(text) if self.within is None else text

    def paths(self, value: Path | str) -> list[Path]:
        """The paths that an argument stands for."""
        found = [Path(value)] if self.within is None else [Path(part) for part in self.within(str(value))]
        return [*found, *(Path(f"{path}{suffix}") for path in found for suffix in self.suffixes)]


def files_of(text: str) -> list[str]:
    """The paths in ``NAME=FILE`` or ``NAME=FILE,FILE``; none if there is no name, which the command complains of."""
    name, equals, files = text.partition("=")
    return files.split(",") if equals and not Path(files).is_file() else [files] if equals else []


INPUT = PathArgument()
DATA = PathArgument(whole=True)
NAMED_INPUTS = PathArgument(within=files_of)
OUTPUT = PathArgument(writes=True)
REPORTED = PathArgument(writes=True, suffixes=(".json",))  # and its report
NEW_FILES = PathArgument(writes=("*",))  # a folder whose files have names that the data decide on
NEW_FOLDER = PathArgument(writes=("*",))
VOCABULARY = PathArgument(writes=("dict.txt", "sentencepiece.bpe.model"))


class Parser(argparse.ArgumentParser):
    """argparse's, with errors of one line, no abbreviations, and outputs that are apart from inputs.

    An argument without a type is a name, which is not empty; free text, which may be, has the type str.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """See :func:`end_with`."""
        end_with(message)

    def parse_known_args(self, args=None, namespace=None):
        """argparse's, for a parser and each of its sub-commands.

        Raises:
            UserError: see :func:`require_apart`.
        """
        parsed, rest = super().parse_known_args(args, namespace)
        inputs, outputs = [], []
        for action in self._actions:
            role, value = action.type, getattr(parsed, action.dest, None)
            name = action.option_strings[-1] if action.option_strings else action.dest
            values = value if isinstance(value, list) else [] if value is None else [value]
            if role is None and "" in values:
                self.error(f"argument {name}: is empty: give a value, or take it away")
            if not isinstance(role, PathArgument):
                continue
            for path in (path for one in values for path in role.paths(one)):
                if role.writes:
                    outputs.append(Output(name, path, () if role.writes is True else tuple(role.writes)))
                else:
                    inputs.append(Input(name, path, role.whole))
        require_apart(inputs, outputs)
        return parsed, rest


def end_with(message: str) -> NoReturn:
    """Print argparse's error alone, which the usage of thirty lines would hide, and end with 2, as argparse does."""
    message = re.sub(r"^argument (--[\w-]+): (?=\S+: (?:must|is) )", r"\1 ", message)  # as our own errors are
    message = " ".join(message.split())  # a list of unknown or long arguments can be of any length and hold line ends
    print_error(message if len(message) <= 500 else f"{message[:400]} ... {message[-60:]}")
    sys.exit(2)
