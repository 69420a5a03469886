# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Runs a script, or a command of fairseq, in a fork of the tests' process."""

import atexit
import importlib
import logging
import multiprocessing.util
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn

from support.exits import exit_code
from torch.utils.data._utils import signal_handling

from veco_fairseq.kills.processes import LOG_FORMAT


def fairseq_here(program: str) -> None:
    """fairseq-PROGRAM as its own process does it: with fairseq's log alone, and the plug-in's excepthook."""
    # generate leaves standard output to its translations
    style = {} if program == "generate" else {"format": LOG_FORMAT, "datefmt": "%Y-%m-%d %H:%M:%S", "stream": sys.stdout}
    logging.basicConfig(level=logging.INFO, force=True, **style)
    try:
        importlib.import_module(f"fairseq_cli.{program}").cli_main()
    except Exception:
        sys.excepthook(*sys.exc_info())
        sys.exit(1)


def become(command, cwd, *, timeout, out, err, stdin=None) -> NoReturn:
    """Go on as a command, in a fork of the tests' process, and end as its own process does.

    Args:
        timeout: seconds, after which it is killed.
        stdin, out, err: files; without ``stdin``, it has that of the tests.
    """
    code = 1
    signal_handling._SIGCHLD_handler_set = False  # its own loaders are to be watched
    multiprocessing.process._children.clear()  # loaders of the tests' process, which it cannot wait for
    kept = sys.stdin, sys.stdout, sys.stderr  # else they would close 0, 1 and 2 when they are gone
    try:
        atexit._clear()  # pytest's own
        signal.alarm(timeout)
        for number, file in ((0, stdin), (1, out), (2, err)):
            if file is not None:
                os.dup2(file.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = (open(number, "r" if number == 0 else "w") for number in range(3))
        sys.argv = command
        os.chdir(cwd)
        if command[0].endswith(".py"):
            sys.path.insert(0, str(Path(command[0]).parent))
            logging.root.handlers.clear()  # pytest's, which keep what a user would see
            runpy.run_path(command[0], run_name="__main__")
        else:
            fairseq_here(Path(command[0]).name.removeprefix("fairseq-"))
        code = 0
    except SystemExit as end:
        code = exit_code(end)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            # At last, as where Python ends: tensorboardX's function still writes to a queue, whose thread this one ends.
            multiprocessing.util._exit_function()
        except BaseException:
            traceback.print_exc()
            code = code or 1
        finally:  # whatever happens, what it has printed stays, and it must not go on as another pytest
            sys.stdout.flush()
            sys.stderr.flush()
            del kept
            os._exit(code)


def run_here(command, cwd, timeout=300, stdin=None) -> subprocess.CompletedProcess:
    """Run a script, or a command of fairseq, in a fork of this process: it has imported already what takes them seconds."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        # PyTorch's, of a test's loaders in this process, would raise here or there what became of these
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.stdout.flush(), sys.stderr.flush()  # else the fork may print it once more
        child = os.fork()
        if child == 0:
            become(command, cwd, timeout=timeout, out=out, err=err, stdin=stdin)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        signal.signal(signal.SIGCHLD, handler)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, code, out.read().decode(), err.read().decode())
