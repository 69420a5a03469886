# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What every command of ours shares: its end, in one line when it is a bad one, and reading text."""

import errno
import logging
import os
import sys
from pathlib import Path
from typing import Callable, Iterator, NoReturn, Optional, Union

from veco_fairseq.errors import UserError

# The system's errors that are the user's to mend, and how. Any other one keeps its traceback.
SYSTEM_ERRORS = {
    errno.ENOENT: "no such file or folder: check the path",
    errno.EISDIR: "is a folder, where a file is needed",
    errno.ENOTDIR: "part of the path is a file, where a folder is needed",
    errno.EACCES: "permission denied: change its rights or choose another path",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENOSPC: "the disk is full: free some space or choose another folder",
    errno.EDQUOT: "your disk quota is used up: free some space or choose another folder",
}
# How a UserError of another process is found in the text of its traceback (see user_message).
REMOTE_USER_ERROR = f"{UserError.__module__}.{UserError.__qualname__}: "


def user_message(error: BaseException) -> Optional[str]:
    """The one line that a user is to see for ``error``, or None if it is no mistake of theirs.

    That is a :class:`UserError` anywhere in the chain of causes and contexts (fairseq's trainer wraps one in a
    bare Exception), or an OSError of :data:`SYSTEM_ERRORS` that names its file.
    """
    seen = set()
    link: Optional[BaseException] = error
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
    return None


def program_name() -> str:
    """The running command's name, such as ``fairseq-train``, for its error messages."""
    return Path(sys.argv[0]).name or "python"


def print_error(message: str) -> None:
    """Print ``NAME: error: message`` on standard error, after all that standard output still holds back."""
    try:
        sys.stdout.flush()
    except OSError:
        pass  # whoever read our output is gone; the message must come out all the same
    print(f"{program_name()}: error: {message}", file=sys.stderr, flush=True)


def run(main: Callable[[], Optional[int]]) -> NoReturn:
    """Call a command's ``main`` and end the process, with one line on standard error for the user's mistakes.

    The exit code is what main returns (0 for None), 1 for the user's mistakes, 130 after Ctrl-C, and 141 when
    the reader of our output went away (``| head``): the last two are what a shell gives for the signals.
    Other exceptions are our mistakes and keep their traceback.
    """
    # A module of fairseq sets the root logger to DEBUG at import, and so everybody's logs would be on the screen.
    logging.getLogger().setLevel(os.environ.get("LOGLEVEL", "WARNING").upper())
    try:
        code = main() or 0
        sys.stdout.flush()  # here, so that a reader that has gone away is noticed here
    except KeyboardInterrupt:
        print(f"{program_name()}: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
        code = 141
    except Exception as error:
        message = user_message(error)
        if message is None:
            raise
        print_error(message)
        code = 1
    sys.exit(code)


def read_lines(path: Union[str, Path]) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 text without their newline.

    Lines end at ``\n`` alone, as fairseq and sentencepiece count them: ``\r``, U+0085 and U+2028 are part of one.

    Raises:
        UserError: there is no such file, it cannot be read, or a line is not UTF-8 (with its number, from 1).
    """
    try:
        file = open(path, "rb")
    except OSError as error:
        reason = SYSTEM_ERRORS.get(error.errno, f"cannot be read ({error.strerror})")
        raise UserError(f"{path}: {reason}") from error
    with file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.removesuffix(b"\n").decode("utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}, line {number}: not UTF-8 (byte 0x{line[error.start]:02x} at {error.start + 1}): "
                    "convert the file, for example with iconv -t UTF-8"
                ) from error
