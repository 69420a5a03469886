# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Runs commands in forks of a process that has imported PyTorch and fairseq, but nothing of this project.

So a command takes a tenth of a second to start, where a new process takes four, and finds nothing imported or
registered with fairseq that it has not imported by itself.

Its argument is a pipe with a name. A line there is a folder with the files ``command`` (the working folder and the words, each
with a NUL character behind it), ``environment`` (as ``env -0`` prints it) and ``in``; what the command prints goes to ``out``
and ``err`` there, and its exit code to the pipe ``answer``. It ends with its standard input.
"""

import gc
import logging
import os
import runpy
import select
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import fairseq_cli.generate  # noqa: F401
import fairseq_cli.interactive  # noqa: F401
import fairseq_cli.preprocess  # noqa: F401
import fairseq_cli.train
import fairseq_cli.validate  # noqa: F401
import matplotlib  # noqa: F401
import sacrebleu  # noqa: F401
import torch
import torch.distributed.run
import torch.fx.experimental.symbolic_shapes  # noqa: F401  PyTorch's checks of masks import it
from exits import exit_code
from warming import warm_up

LOG = {"format": "%(asctime)s | %(levelname)s | %(name)s | %(message)s", "datefmt": "%Y-%m-%d %H:%M:%S", "stream": sys.stdout}


def start(words: list[str]) -> None:
    """Run a command of this project, of fairseq, or a script, as its own process does."""
    program, sys.argv = words[0], words
    if program == "veco":
        logging.root.handlers.clear()
        runpy.run_module("veco_fairseq", run_name="__main__", alter_sys=True)  # the main module of the processes that it starts
    elif program == "torchrun":
        torch.distributed.run.main()
    elif program.endswith(".py"):
        sys.path.insert(0, str(Path(program).resolve().parent))
        runpy.run_path(program, run_name="__main__")
    else:
        name = program.removeprefix("fairseq-")
        logging.basicConfig(level=logging.INFO, force=True, **(LOG if name == "train" else {}))
        import_module(f"fairseq_cli.{name}").cli_main()


def answer(request: Path) -> int:
    """Run what is asked for, in a fork, and give its exit code."""
    where, *words = (request / "command").read_text().split("\0")[:-1]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number, name in enumerate(("in", "out", "err")):
                os.dup2(os.open(request / name, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY, 0o600), number)
            sys.stdin = open(0)
            os.chdir(where)
            os.environ.clear()
            os.environ.update(line.split("=", 1) for line in (request / "environment").read_text().split("\0")[:-1])
            start(words)
            code = 0
        except SystemExit as end:
            code = exit_code(end)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    assert fairseq_cli.train and "veco_fairseq" not in sys.modules
    torch.set_num_threads(1)  # a fork of a process with threads would wait for them
    warm_up()
    gc.freeze()  # a collection in a fork would copy all pages of what is imported
    asked = os.open(sys.argv[1], os.O_RDWR)
    while sys.stdin not in select.select([sys.stdin, asked], [], [])[0]:
        for line in os.read(asked, 65536).decode().splitlines():
            if os.fork() == 0:  # to wait for the command, beside which others may run
                (Path(line) / "answer").write_text(f"{answer(Path(line))}\n")
                os._exit(0)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
