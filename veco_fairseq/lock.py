# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Allows one process a folder or file, since two would overwrite each other's files."""

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path

from veco_fairseq.errors import UserError
from veco_fairseq.files import followed

LOCK_NAME = ".training.lock"
MAKING_NAME = ".making.lock"
_held: dict[Path, int] = {}  # the open files, whose locks last as long as the process
logger = logging.getLogger(__name__)


def lock_folder(folder: str | Path) -> None:
    """Keep other trainings out of ``folder`` until this process ends, however it ends.

    Raises:
        UserError: another process holds the lock.
    """
    path = Path(folder).resolve() / LOCK_NAME
    if _lock(path, folder, "trains into this folder: stop it, wait for its end, or give another --save-dir"):
        Finalize(None, _release, (path,), exitpriority=0)  # the processes of several GPUs do not call atexit's functions


def folder_to_make(folder: Path) -> AbstractContextManager[None]:
    """Keep other processes from making ``folder`` during a block. It is made first; if it stays empty, it goes again.

    A folder that cannot be made or written is not locked: whoever writes into it tells of that.

    Raises:
        UserError: another process makes it.
    """
    return _to_make(folder, folder, MAKING_NAME, "makes this folder: wait for its end, or choose another folder")


def file_to_make(file: Path) -> AbstractContextManager[None]:
    """Keep other processes from making ``file`` during a block, as :func:`folder_to_make`."""
    target = followed(file)
    return _to_make(file, target.parent, f".{target.name}{MAKING_NAME}", "makes this file: wait for its end, or choose another")


@contextmanager
def _to_make(what: Path, folder: Path, name: str, told: str) -> Iterator[None]:
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    path = folder.resolve() / name
    is_locked = False
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        is_locked = _lock(path, what, told)
    try:
        yield
    finally:
        if is_locked:
            _release(path)
        with suppress(OSError):
            for made in new:
                made.rmdir()


def _lock(path: Path, what: str | Path, told: str) -> bool:
    """Lock a file, and return whether it is locked now and was not before.

    The lock is the kernel's (``lockf``, which NFS also has). So a killed process leaves none, and forked processes do not
    inherit it. If a file system has no locks, there is a warning.
    """
    if path in _held:
        return False
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            holder = os.read(file, 300).decode(errors="replace").split()
            os.close(file)
            raise UserError(f"{what}: {_in_words(holder)} already {told}") from error
        except OSError as error:
            logger.warning(f"{what}: cannot be locked ({error.strerror}): start no second process that writes into it")
            os.close(file)
            return False
        if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
            break
        os.close(file)  # its holder ended and removed it after we opened it and before we locked it
    with suppress(OSError):  # a full disk has no room for the holder's name, which only the refusal of others needs
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    _held[path] = file
    return True


def _in_words(holder: list[str]) -> str:
    if len(holder) != 2:
        return "another process"
    process, host = holder
    return f"process {process}" + (f" on {host}" if host != socket.gethostname() else "")


def _release(path: Path) -> None:
    """Remove the file; after a kill it stays, which does no harm."""
    if path in _held:
        path.unlink(missing_ok=True)
        os.close(_held.pop(path))
