# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What every command of ours shares: its end, in one line when it is a bad one."""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from veco_fairseq.errors import FULL, SYSTEM_ERRORS, UserError

# How a UserError of another process is found in the text of its traceback (see user_message).
REMOTE_USER_ERROR = f"{UserError.__module__}.{UserError.__qualname__}: "


def user_message(error: BaseException) -> str | None:
    """The one line that a user is to see for ``error``, or None if it is no mistake of theirs.

    That is a :class:`UserError` anywhere in the chain of causes and contexts (fairseq's trainer wraps one in a
    bare Exception), or an OSError of :data:`SYSTEM_ERRORS` that names its file.
    """
    seen = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        text = " ".join(str(link).split())
        # Worker processes (a DataLoader's, torch.multiprocessing's) hand over their whole traceback as text.
        if REMOTE_USER_ERROR in text:
            return text.rsplit(REMOTE_USER_ERROR, 1)[1]
        if isinstance(link, UserError):
            return text
        link = link.__cause__ or link.__context__
    if isinstance(error, OSError) and error.filename is not None and error.errno in SYSTEM_ERRORS:
        return f"{os.fsdecode(error.filename)}: {SYSTEM_ERRORS[error.errno]}"
    if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
        return f"the output cannot be written: {SYSTEM_ERRORS[error.errno]}"
    return None


def number_of_layers(text: str) -> int | None:
    """An argument's type: a number, or none for "all"."""
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: give a number, or all")
    return None if text == "all" else int(text)


def program_name() -> str:
    """The running command's name, such as ``fairseq-train``, for its error messages."""
    return Path(sys.argv[0]).name or "python"


def print_error(message: str) -> None:
    """Print ``NAME: error: message`` on standard error, after all that standard output still holds back."""
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()  # its reader is gone, or its disk full; the message must come out all the same
    print(f"{program_name()}: error: {message}", file=sys.stderr, flush=True)


def _give_up_output() -> None:
    """Let standard output lead nowhere, or Python complains of what it still holds back when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def finish_output() -> None:
    """At the end of a process that is none of :func:`run`'s: what is left of its output, or one line and exit code 1."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
    except OSError as error:
        print_error(user_message(error) or f"the output cannot be written: {error.strerror}")
        os._exit(1)


def run(main: Callable[[], int | None]) -> NoReturn:
    """Call a command's ``main`` and end the process, with one line on standard error for the user's mistakes.

    The exit code is what main returns (0 for None), 1 for the user's mistakes, 130 after Ctrl-C, and 141 when
    the reader of our output went away (``| head``): the last two are what a shell gives for the signals.
    Other exceptions are our mistakes and keep their traceback.
    """
    # A module of fairseq sets the root logger to DEBUG at import, and so everybody's logs would be on the screen.
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback a line
    logging.getLogger().setLevel(os.environ.get("LOGLEVEL", "WARNING").upper())
    try:
        code = main() or 0
        sys.stdout.flush()  # here, so that a reader that has gone away is noticed here
    except KeyboardInterrupt:
        print(f"{program_name()}: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        _give_up_output()
        code = 141
    except Exception as error:
        message = user_message(error)
        if message is None:
            raise
        print_error(message)
        code = 1
    sys.exit(code)
