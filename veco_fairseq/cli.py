# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How every command ends: with an exit code, and one line for a user's mistake."""

import io
import logging
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from veco_fairseq.errors import FULL, SYSTEM_ERRORS, UserError

# The text that marks a UserError in the traceback of another process (see user_message).
REMOTE_USER_ERROR = f"{UserError.__module__}.{UserError.__qualname__}: "


def user_message(error: BaseException) -> str | None:
    """Return the one line that a user sees for ``error``, or None if it is no mistake of the user's.

    A user's mistake is a :class:`UserError` anywhere in the chain of causes and contexts (fairseq's trainer wraps one in
    a bare Exception), or an OSError of :data:`SYSTEM_ERRORS` that names its file.
    """
    seen = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        text = " ".join(str(link).split())
        # Worker processes (of a DataLoader or of torch.multiprocessing) pass on their whole traceback as text.
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


def program_name() -> str:
    """Return the name of the running command, such as ``fairseq-train``, for its error messages."""
    return Path(sys.argv[0]).name or "python"


def print_error(message: str) -> None:
    """Print ``NAME: error: message`` on standard error, after what standard output still holds back."""
    try:
        if sys.stdout is not None:  # None: closed by whoever started the command, such as with >&-
            sys.stdout.flush()
    except OSError:
        _give_up_output()  # its reader is gone, or its disk is full; the message must still be printed
    print(f"{program_name()}: error: {message}", file=sys.stderr, flush=True)


def _give_up_output() -> None:
    """Redirect standard output to nowhere, or Python complains at its end about what it still holds back."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reader_is_gone() -> bool:
    """Return whether standard output is a pipe whose reader went away (``| head``); it then goes nowhere."""
    if sys.stdout is None:
        return False
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # tells of errors alone
    gone = bool(output.poll(0))
    if gone:
        _give_up_output()
    return gone


def finish_output() -> None:
    """Flush the output at the end of a process that :func:`run` has not started, or end with one line and exit code 1."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
    except OSError as error:
        print_error(user_message(error) or f"the output cannot be written: {error.strerror}")
        os._exit(1)


def _level() -> str:
    """Return the level of the log that the environment names, or WARNING; UserError if Python has no such level."""
    level = (os.environ.get("LOGLEVEL") or "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        raise UserError(f"LOGLEVEL={level}: is no level of the log: give DEBUG, INFO, WARNING or ERROR, or unset it")
    return level


def run(main: Callable[[], int | None]) -> NoReturn:
    """Call a command's ``main`` and end the process, with one line on standard error for a user's mistake.

    The exit code is what main returns (0 for None), 1 for a user's mistake, 130 after Ctrl-C, and 141 when the reader of
    the output went away (``| head``). The last two are a shell's codes for these signals. Other exceptions are bugs, and
    keep their traceback.
    """
    logging.raiseExceptions = False  # without this, a log that cannot be written prints a traceback for each line
    # Modules of fairseq call basicConfig(level=DEBUG) at import, which does nothing once the root logger has a handler.
    logging.basicConfig()
    try:
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115  until the end
        if sys.stdout is None:
            raise UserError("standard output is closed: send it to a file, or to /dev/null")
        if isinstance(sys.stdout, io.TextIOWrapper):  # what a locale lacks is printed as \xe9; translations are always UTF-8
            sys.stdout.reconfigure(errors="backslashreplace")
        logging.getLogger().setLevel(_level())
        code = main() or 0
        sys.stdout.flush()  # so that a reader that has gone away is noticed here
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
