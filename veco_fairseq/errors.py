# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The one exception that a user is meant to see, and advice for the system's errors."""

import errno
import os
import re
from collections.abc import Sized
from typing import NamedTuple

# The system's errors that the user can mend, and how. All others keep their traceback.
SYSTEM_ERRORS = {
    errno.ENOENT: "no such file or folder: check the path",
    errno.EISDIR: "is a folder, where a file is needed",
    errno.ENOTDIR: "part of the path is a file, where a folder is needed",
    errno.EACCES: "permission denied: change its rights or choose another path",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENAMETOOLONG: "the name is too long: check the path",
    errno.ELOOP: "the links lead round in a circle: check the path",
    errno.EFBIG: "the file would be larger than allowed here: raise ulimit -f or choose another folder",
    errno.ENOSPC: "the disk is full: free some space or choose another folder",
    errno.EDQUOT: "your disk quota is used up: free some space or choose another folder",
}

# Those of them that mean that nothing more can be written.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# How torch's zip writer, safetensors and tokenizers report a full disk when they do not raise the OSError itself.
WRITE_FAILED = re.compile(
    r"(I/O error: [^(]*)?\(os error (?P<errno>\d+)\)|PytorchStreamWriter failed|file write failed|unexpected pos \d+ vs \d+"
    r"|iostream error|I/O error"
)


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where (file, line, key), and what to do.

    Every command of this project, and ``fairseq-*`` with this plug-in, then ends with exit code 1, and prints only the
    message on standard error, without a traceback (see :mod:`veco_fairseq.compat`).
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


def require_list(given: object, what: str, *, some: bool = False) -> None:
    """Refuse one text or path where several are meant: Python takes a text for a list of its characters.

    Args:
        given: what the caller got.
        what: its name, for messages.
        some: also refuse a list of none.

    Raises:
        UserError: it is one alone, or there is none.
    """
    if isinstance(given, (str, bytes, os.PathLike)):
        raise UserError(f"{what}: {str(given)[:30]!r} is one alone, where a list is needed: put it into [ ]")
    if some and isinstance(given, Sized) and not len(given):
        raise UserError(f"{what}: the list is empty: give at least one")


class WriteFailure(NamedTuple):
    """Why a file could not be written, in a few words, and what to do."""

    reason: str
    advice: str


def to_go_on(advice: str) -> str:
    """Return an advice of :data:`SYSTEM_ERRORS` for a command that goes on from its own files, and so needs the same path."""
    return advice.partition(" or choose another ")[0]


def write_failure(error: Exception) -> WriteFailure | None:
    """Return why a file could not be written, or None if the error is another one."""
    told = WRITE_FAILED.search(str(error))
    if not isinstance(error, OSError) and not told:
        return None
    cause = error if isinstance(error, OSError) else error.__context__
    number = cause.errno if isinstance(cause, OSError) else told and told["errno"]
    advice = SYSTEM_ERRORS.get(int(number or 0), SYSTEM_ERRORS[errno.ENOSPC]).partition(": ")[2]
    return WriteFailure(os.strerror(int(number)) if number else "the write failed", advice or "choose another path")
