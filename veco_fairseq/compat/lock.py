# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Allows one training a folder, since two would overwrite each other's checkpoints."""

import fcntl
import logging
import os
import socket
from multiprocessing.util import Finalize
from pathlib import Path

from veco_fairseq.errors import UserError

LOCK_NAME = ".training.lock"
_held: dict[Path, int] = {}  # the open files, whose locks last as long as the process
logger = logging.getLogger(__name__)


def lock_folder(folder: str | Path) -> None:
    """Keep other trainings out of ``folder`` until this process ends, however it ends.

    The lock is the kernel's (``lockf``, which NFS also has). So a killed process leaves none, and forked data loaders do
    not inherit it. If a file system has no locks, there is a warning.

    Raises:
        UserError: another process holds the lock.
    """
    path = Path(folder).resolve() / LOCK_NAME
    if path in _held:
        return
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            holder = os.read(file, 300).decode(errors="replace").split()
            raise UserError(
                f"{folder}: {_in_words(holder)} already trains into this folder: stop it, wait for its end, or give "
                "another --save-dir"
            ) from error
        except OSError as error:
            logger.warning(f"{folder}: cannot be locked ({error.strerror}): start no second training into it")
            os.close(file)
            return
        if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
            break
        os.close(file)  # its holder ended and removed it after we opened it and before we locked it
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    _held[path] = file
    Finalize(None, _release, (path,), exitpriority=0)  # the processes of several GPUs do not call atexit's functions


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
