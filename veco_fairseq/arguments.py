# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Command lines: numbers within borders, outputs that are no inputs, and errors of one line."""

import argparse
import difflib
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
from veco_fairseq.files import is_device

MANY_CHOICES = 8  # of an option, beyond which an error names the nearest ones alone
LARGEST = 2**31 - 1  # the largest whole number that fairseq, PyTorch and SentencePiece all take


class Number:
    """A number within borders: the type of an argument, and a check of values from elsewhere.

    Args:
        kind: int or float.
        least, most: borders, themselves allowed. Without them a whole number has 32 bits. All numbers are finite.
        above, below: borders, themselves not allowed.
    """

    def __init__(
        self, kind: type = float, *, least: float = -math.inf, most: float = math.inf,
        above: float | None = None, below: float | None = None,
    ):  # fmt: skip
        if kind is int:
            least, most = max(least, -LARGEST), min(most, LARGEST)
        self.kind, self.least, self.most, self.above, self.below = kind, least, most, above, below

    def __call__(self, text: str) -> float:
        """Return ``text`` as a number; raise argparse.ArgumentTypeError if it is no number within the borders."""
        try:
            value = self.kind(text)
        except (ValueError, TypeError, OverflowError):
            raise argparse.ArgumentTypeError(f"{short(text)}: is not a {self.noun}") from None
        if (problem := self.problem(value)) is not None:
            raise argparse.ArgumentTypeError(f"{short(text)}: {problem}")
        return value

    def problem(self, value: Any) -> str | None:
        """Return what ``value`` must be but is not, or None if nothing is wrong."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or (self.kind is int and value != value // 1):  # NaN is unequal to itself
            return f"must be a {self.noun}"
        if self.kind is float and not abs(value) <= sys.float_info.max:  # so of NaN; a whole number may be larger
            return "must be a finite number"
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
SIZE = Number(int, least=1, most=65_536)  # of a layer; the largest published model has 20,480
WORKERS = Number(int, least=1, most=1024)  # threads or processes; more are a typo, and can stop the machine
SEED = Number(int, least=0)
FINITE = Number()
NOT_NEGATIVE = Number(least=0)
POSITIVE = Number(above=0)
SHARE = Number(least=0, most=1)
POSITIVE_SHARE = Number(above=0, most=1)
EXPONENT = Number(least=0, most=10)  # of shares; a larger one makes all of them vanish
LENGTH_PENALTY = Number(least=-100, most=100)  # the exponent of a length; a larger one overflows


def short(text: Any) -> str:
    """Return ``text`` for a message, without its middle if it is long."""
    text = str(text)
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"


# ---------------------------------------------------------------------------------------------------------------------
# Paths. A command must not write what it reads: the final rename would replace the input, with exit code 0.


class Output(NamedTuple):
    """A file or folder that a command is going to write.

    Attributes:
        option: the option that names it.
        path: the file or folder.
        writes: for a folder, patterns of the names that are written in it; for a file, none.
    """

    option: str
    path: Path
    writes: tuple[str, ...] = ()


class Input(NamedTuple):
    """A file or folder that a command reads.

    Attributes:
        option: the option that names it.
        path: the file or folder.
        whole: whether all of a folder is read, so that nothing may be written below it.
    """

    option: str
    path: Path
    whole: bool = False


def require_apart(inputs: Iterable[Input], outputs: Iterable[Output]) -> None:
    """Refuse an output that is an input (under any name or link), another output, or no ordinary file.

    Raises:
        UserError: names both options.
    """
    inputs = list(inputs)
    seen: dict[Path, str] = {}
    for output in outputs:
        option, path, is_folder = output.option, output.path, bool(output.writes)
        if path.is_dir() and not is_folder:
            raise UserError(f"{option} {path}: is a folder, where a file is needed")
        if path.exists() and not path.is_dir() and is_folder:
            raise UserError(f"{option} {path}: is a file, where a folder is needed")
        if is_device(path):
            raise UserError(f"{option} {path}: is a device, a pipe or an open file: name an ordinary file")
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
    """Return the path with its links resolved; raise UserError if they lead round in a circle."""
    try:
        return path.resolve()
    except (RuntimeError, OSError) as error:  # RuntimeError before Python 3.13, OSError from then on
        raise UserError(f"{path}: is a link that leads to itself: name a file or folder") from error


def _is_written(output: Output, read: Path) -> bool:
    """Return whether writing ``output`` replaces ``read`` or a part of it."""
    real, folder = real_path(read), real_path(output.path)
    if not output.writes:
        return folder == real or (output.path.exists() and read.exists() and os.path.samefile(output.path, read))
    if folder == real or (real.is_dir() and folder in real.parents and "*" in output.writes):
        return True
    if folder not in real.parents:
        return False
    name = real.relative_to(folder).as_posix()
    return any(fnmatch.fnmatch(name, pattern) for pattern in output.writes)


class PathArgument:
    """The type of an argument that names a path, which must not be empty.

    Args:
        writes: False for a path that is read, True for a file that is written, or the patterns of names that are written
            in a folder.
        within: returns the paths in an argument that holds more than a path, such as NAME=FILE.
        suffixes: files with these suffixes are written beside the file.
        whole: see :class:`Input`.
        packs: whether the command packs a file that is written as .gz or .xz.
    """

    def __init__(
        self, writes: bool | Sequence[str] = False, within: Callable[[str], Iterable[str]] | None = None,
        suffixes: Sequence[str] = (), *, whole: bool = False, packs: bool = False,
    ):  # fmt: skip
        self.writes, self.within, self.suffixes, self.whole, self.packs = writes, within, suffixes, whole, packs

    def __call__(self, text: str) -> Path | str:
        """Return the path, or the whole argument if it holds more than a path."""
        if not all(part.strip() for part in ([text] if self.within is None else [text, *self.within(text)])):
            raise argparse.ArgumentTypeError("is an empty path: name a file or folder" + (f" in {text}" if text else ""))
        if "\0" in text:
            raise argparse.ArgumentTypeError("has a NUL character, which no path can have")
        if self.writes is True and not self.packs and text.endswith((".gz", ".xz")):
            raise argparse.ArgumentTypeError(f"{short(text)}: is not packed by this command: leave {text[-3:]} out")
        return Path(text) if self.within is None else text

    def paths(self, value: Path | str) -> list[Path]:
        """Return the paths that an argument stands for."""
        found = [Path(value)] if self.within is None else [Path(part) for part in self.within(str(value))]
        return [*found, *(Path(f"{path}{suffix}") for path in found for suffix in self.suffixes)]


def files_of(text: str) -> list[str]:
    """Return the paths in ``NAME=FILE`` or ``NAME=FILE,FILE``; none without a name, which the command reports itself."""
    name, equals, files = text.partition("=")
    return files.split(",") if equals and not Path(files).is_file() else [files] if equals else []


INPUT = PathArgument()
DATA = PathArgument(whole=True)
NAMED_INPUTS = PathArgument(within=files_of)
OUTPUT = PathArgument(writes=True)
PACKED = PathArgument(writes=True, packs=True)
REPORTED = PathArgument(writes=True, suffixes=(".json",))  # and its report
OUTPUT_FOLDER = PathArgument(writes=("*",))  # whose files have names that no option gives
VOCABULARY = PathArgument(writes=("dict.txt", "sentencepiece.bpe.model"))


class Gather(argparse.Action):
    """Keep the value, or the values, of an argument. An option of several values adds them if it comes again."""

    def __call__(self, parser, namespace, values, option_string=None):
        before = getattr(namespace, self.dest, self.default)
        again = self.nargs == "+" and before is not self.default
        setattr(namespace, self.dest, [*before, *values] if again else values)


class Parser(argparse.ArgumentParser):
    """argparse's parser, with errors of one line, no abbreviations, and outputs that are no inputs.

    An argument without a type is a name and must not be empty. Free text, which may be empty, has the type str.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.register("action", None, Gather)
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")  # argparse's has no exponent: -5e-05
        self.given: list[str] = []
        self.advice = ""  # what the error of an argument that is no option ends with

    def error(self, message: str) -> NoReturn:
        """End with one line; see :func:`end_with`. A misspelt option is told of before the required one that it hides."""
        known = self._option_string_actions
        unknown = [one for word in self.given if re.match("--[a-z]", word) and (one := word.partition("=")[0]) not in known]
        if unknown and "arguments are required" in message:
            message = f"unrecognized arguments: {' '.join(unknown)}"
        end_with(message + (self.advice if re.match("unrecognized arguments: [^-]", message) else ""), known)

    def parse_known_args(self, args=None, namespace=None):
        """Parse as argparse does, and check the paths; a parser of sub-commands calls this for each of them, too.

        Raises:
            UserError: see :func:`require_apart`.
        """
        self.given = sys.argv[1:] if args is None else list(args)
        parsed, rest = super().parse_known_args(self.given, namespace)
        inputs, outputs = [], []
        for action in self._actions:
            role, value = action.type, getattr(parsed, action.dest, None)
            name = action.option_strings[-1] if action.option_strings else action.dest
            values = value if isinstance(value, list) else [] if value is None else [value]
            if role is None and "" in values:
                self.error(f"argument {name}: is empty: give a value, or leave it out")
            for path in (path for one in values for path in role.paths(one)) if isinstance(role, PathArgument) else ():
                if role.writes:
                    outputs.append(Output(name, path, () if role.writes is True else tuple(role.writes)))
                else:
                    inputs.append(Input(name, path, role.whole))
        require_apart(inputs, outputs)
        return parsed, rest


def end_with(message: str, options: Iterable[str] = ()) -> NoReturn:
    """Print argparse's error without the usage, whose thirty lines would hide it, and end with code 2, as argparse does.

    An option that is none of ``options``, and a name that is none of many, get the nearest ones.
    """
    if found := re.match(r"unrecognized arguments: (--[\w-]+)", message):
        near = difflib.get_close_matches(found[1], list(options), n=1, cutoff=0.8)
        message += f": did you mean {near[0]}?" if near else ""
    elif found := re.search(r"invalid choice: '?(.*?)'? \(choose from (.*)\)$", message, re.DOTALL):
        names = re.findall(r"[^\s',]+", found[2])
        near = difflib.get_close_matches(found[1], names, n=3)
        if len(names) > MANY_CHOICES and near:
            message = f"{message[: found.start()]}invalid choice: '{found[1]}': did you mean {' or '.join(near)}?"
    message = re.sub(r"^argument (--[\w-]+): (?=\S+: (?:must|is) )", r"\1 ", message)  # as in our own errors
    message = " ".join(message.split())  # a list of arguments can be long and hold line ends
    print_error(message if len(message) <= 500 else f"{message[:400]} ... {message[-60:]}")
    sys.exit(2)
