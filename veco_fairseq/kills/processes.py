# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Commands in processes of their own, started fast, and stopped in every way in which a machine stops them."""

import atexit
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch

Command = list[str]
PACKAGES = str(Path(__file__).resolve().parents[2])  # a command that is not forked finds this package first
LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"


class Process:
    """A running command. Its standard output and error are appended to a log.

    Args:
        command: words, as on a command line.
        log: the file.
        call: what the command does, as a function of no arguments, to run it in a fork of this process: one that has
            imported already what would take seconds. Without it the command is started as a shell would.
    """

    def __init__(self, command: Command, log: Path, call: Callable[[], object] | None = None):
        self.log = log
        self._process: subprocess.Popen[bytes] | BaseProcess
        if call is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (PACKAGES, os.getenv("PYTHONPATH"))))
            with open(log, "ab") as file:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, env=environment
                )
        else:
            self._process = multiprocessing.get_context("fork").Process(target=_forked, args=(command, log, call))
            self._process.start()
        pid = self._process.pid
        assert pid is not None  # it is started
        self.pid = pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the number of the signal that ended it."""
        process = self._process
        return process.poll() if isinstance(process, subprocess.Popen) else process.exitcode

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def wait(self, seconds: float) -> int:
        """The exit code.

        Raises:
            TimeoutError: it runs longer than that.
        """
        deadline = time.monotonic() + seconds
        while (code := self.exit_code) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"still runs after {seconds:.0f} seconds")
            time.sleep(0.02)
        return code

    def freeze(self) -> list[int]:
        """Stop it for a while, with all that it has started: so that what it is doing can be looked at.

        Returns:
            The frozen processes, this one first. None of them can start another.
        """
        frozen: list[int] = []
        while more := [pid for pid in family(self.pid) if pid not in frozen]:
            send(more, signal.SIGSTOP)
            for pid in more:
                while state_of(pid) not in "TZX":
                    time.sleep(0.0001)
            frozen += more
        return frozen

    def end(self) -> None:
        """Kill it and all that it has started, if it runs: else its number may be another process's by now."""
        while self.running:
            send(family(self.pid), signal.SIGKILL)
            time.sleep(0.002)


def _forked(command: Command, log: Path, call: Callable[[], object]) -> None:
    """What the fork does: it ends as Python ends a command."""
    os.setsid()
    atexit._clear()  # this process's own, which are not the command's
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for number in (1, 2):
        os.dup2(file, number)
    # This process may have other streams and logs; fairseq's commands begin with these. The others would close 1 and 2
    # when nothing refers to them any more.
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO, stream=sys.stdout, force=True)
    sys.argv = command
    # Every process of its own has other random numbers before it sets its seed.
    random.seed()
    np.random.seed(random.getrandbits(32))
    torch.manual_seed(random.getrandbits(62))
    try:
        call()
    except SystemExit:
        raise
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()  # Python 3.11 and 3.12 leave them out in a fork
        del kept


def last_line(log: Path) -> str:
    return (log.read_text(encoding="utf-8", errors="replace").strip() or "nothing was printed").splitlines()[-1]


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to those of the processes that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """State, parent, process group, ... of a process, as proc(5) tells them; state X when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X", "0", "0"]


def state_of(pid: int) -> str:
    """R, S, D: it runs or sleeps; T: it was stopped for a while; Z, X: it has ended."""
    return _stat(pid)[0]


def begun_at(pid: int) -> str:
    """When a process began: of two with the same number, one after the other, it tells them apart."""
    return "".join(_stat(pid)[19:20])


def group_of(pid: int) -> int:
    """The process group, which a terminal's Ctrl-C is for."""
    return int(_stat(pid)[2])


def _children() -> dict[int, list[int]]:
    """All processes that there are, by the one that started them."""
    found = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdecimal():
            found[int(_stat(int(name))[1])].append(int(name))
    return found


def children(pid: int) -> list[int]:
    """What a process has started itself, the oldest first."""
    return sorted(_children()[pid])


def family(pid: int) -> list[int]:
    """A process and all that it has started, directly or not, parents before children."""
    of_all, members = _children(), [pid]
    for member in members:
        members += of_all[member]
    return members
