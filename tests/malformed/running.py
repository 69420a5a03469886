# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Running commands in forks of one process that has imported everything, and judging what comes of them."""

from __future__ import annotations

import gc
import hashlib
import importlib
import logging
import os
import re
import resource
import runpy
import shutil
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from support.warming import warm_up

from malformed import REPOSITORY, Case, Result
from veco_fairseq.data.prepare.growing import PROGRESS_NAME
from veco_fairseq.lock import LOCK_NAME

SECONDS = 60  # a command may take
MEMORY = 8 * 2**30  # bytes of address space beyond what this process has: a damaged size must not take all there is
# A fork leaves out what removes the lock's file; the lock itself is the kernel's.
KEPT = (LOCK_NAME, PROGRESS_NAME)
GOES_ON = ".part.tmp"  # a text that is encoded goes on from these
TEMPORARY = re.compile(r"\.tmp$|^\.|\.tmp\b")
# Lines on standard error that are no error: of logs, of Python's warnings and the line of code below each, of progress.
NOT_AN_ERROR = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| |^(INFO|WARNING|DEBUG):|^\S+:\d+: \w*Warning: |^  \S.*$|^\s*$|\d+%\|.*\||it/s\]"
)
USAGE = re.compile(r"^usage: .*\n(?:[ \[].*\n)*", re.MULTILINE)


def prepare() -> None:
    """Import what commands import, and the plug-in through ``--user-dir``."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from fairseq import options, utils  # noqa: F401

    torch.set_num_threads(1)
    utils.import_user_module(Namespace(user_dir=str(REPOSITORY / "veco_fairseq")))
    for module in ("plots", "inference.scoring", "cost.flops", "inference.translator", "alignment.words", "checkpoints.averaging",
                   "checkpoints.ct2", "checkpoints.huggingface", "checkpoints.release", "cost.inspection",
                   "data.prepare.preparation", "retrieval.tatoeba", "inference.evaluation", "understanding.teaching",
                   "understanding.xtreme", "vocab.vocap"):  # fmt: skip
        importlib.import_module(f"veco_fairseq.{module}")
    # And what these import when they come to it, which would take every command seconds.
    for module in ("sacrebleu.significance", "torch.fx.experimental.symbolic_shapes", "omegaconf._impl", "antlr4.LL1Analyzer",
                   "fairseq.libbleu"):  # fmt: skip
        importlib.import_module(module)
    with suppress(ImportError):  # which not everyone has installed
        importlib.import_module("transformers.models.roberta.modeling_roberta")
    warm_up()
    gc.freeze()  # a collection in a fork would copy all pages of what is imported


def child(command: tuple[str, ...], folder: Path, streams: tuple[Path, Path], stdin: Path | None, environment) -> None:
    """Become the command; never returns."""
    code = 1
    _kept = sys.stdin, sys.stdout, sys.stderr  # else they would close 0, 1 and 2 when they are gone
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        os.dup2(os.open(stdin or os.devnull, os.O_RDONLY), 0)
        for number, path in enumerate(streams, start=1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdin, sys.stdout, sys.stderr = (open(number, "r" if number == 0 else "w") for number in range(3))
        root = logging.getLogger()
        root.handlers = [logging.StreamHandler(sys.stdout)]
        root.handlers[0].setFormatter(
            logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S")
        )
        root.setLevel("INFO")
        os.environ.update(environment)
        os.chdir(folder)
        if command[0].endswith(".py"):
            sys.argv = [str(REPOSITORY / command[0]), *command[1:]]
            sys.path.insert(0, str(Path(sys.argv[0]).parent))  # as Python does, for what lies beside it
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            sys.argv = [command[0], *command[1:]]
            sys.modules["fairseq_cli." + command[0].removeprefix("fairseq-")].cli_main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        try:
            sys.excepthook(*sys.exc_info())
        except BaseException:
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 120  # Python's own for this
        os._exit(code)


def digests(folder: Path) -> dict[str, str]:
    """The files below a folder with what they hold; folders and links by what they are."""
    found = {}
    for root, _folders, files in os.walk(folder):
        for name in files:
            path = Path(root, name)
            held = hashlib.blake2b(path.read_bytes()).hexdigest() if path.is_file() and os.access(path, os.R_OK) else "?"
            found[str(path.relative_to(folder))] = held
    return found


def error_lines(err: str) -> list[str]:
    """The lines of standard error that tell of an error."""
    return [line for line in USAGE.sub("", err).replace("\r", "\n").splitlines() if not NOT_AN_ERROR.search(line)]


def judge(case: Case, result: Result, before: dict[str, str], after: dict[str, str], timed_out: bool) -> str | None:
    """Why the case failed, or None."""
    if timed_out:
        return f"took more than {SECONDS} seconds"
    if result.code < 0:
        return f"killed by {signal.Signals(-result.code).name}"
    if "Traceback (most recent call last)" in result.err + result.out:
        return "a traceback: " + (result.err.strip() or result.out.strip()).splitlines()[-1][:200]

    def allowed(name: str, patterns: tuple[str, ...]) -> bool:
        return any(Path(name).match(pattern) for pattern in patterns)

    changed = [name for name in before if before[name] != after.get(name)
               and not allowed(name, case.changes) and Path(name).name not in KEPT]  # fmt: skip
    if changed:
        return f"changed or removed {', '.join(changed[:3])}"
    new = [name for name in after if name not in before]
    left = [name for name in new if TEMPORARY.search(Path(name).name)
            and Path(name).name not in KEPT and not (result.code and name.endswith(GOES_ON))]  # fmt: skip
    if left:
        return f"left {', '.join(left[:3])}"
    if result.code == 0:
        if case.refused:
            return "accepted: " + (result.out.strip().splitlines() or ["(no output)"])[-1][:150]
        return case.check(result)
    lines = error_lines(result.err)
    if len(lines) != 1:
        return f"exit code {result.code} with {len(lines)} lines: {' | '.join(lines)[:300]}"
    new = [name for name in new if not allowed(name, case.leaves)]
    if new:
        return f"refused, but wrote {', '.join(new[:3])}"
    if case.accepted:
        return f"refused: {lines[0][:300]}"
    if case.names and not any(name in lines[0] for name in case.names):
        return f"the line does not say where: {lines[0][:200]}"
    return None


class Run:
    """A case under way."""

    def __init__(self, case: Case, good: Path, folder: Path):
        self.case, self.folder = case, folder
        inside = folder / "here"
        inside.mkdir(parents=True)
        for name in case.needs:
            shutil.copytree(good / name, inside / name, symlinks=True)
        case.damage(inside)
        self.before = digests(inside)
        self.streams = folder / "out", folder / "err"
        self.started = time.time()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            stdin = inside / case.stdin if case.stdin else None
            child(case.command, inside, self.streams, stdin, dict(case.environment))

    def end(self, status: int, timed_out: bool) -> tuple[Result, str | None]:
        """What came of it, and why it failed."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # processes that it left behind
        out, err = (path.read_bytes().decode("utf-8", "replace") if path.exists() else "" for path in self.streams)
        result = Result(os.waitstatus_to_exitcode(status), out, err, self.folder / "here")
        return result, judge(self.case, result, self.before, digests(result.folder), timed_out)


def run(cases: Iterable[Case], good: Path, scratch: Path, together: int = 2) -> Iterator[tuple[Case, Result, str | None, float]]:
    """Run cases, so many at a time; yields each with its result, why it failed or None, and its seconds."""
    running: dict[int, Run] = {}
    cases = iter(cases)
    number, more = 0, True
    while more or running:
        while more and len(running) < together:
            case = next(cases, None)
            if case is None:
                more = False
                break
            number += 1
            begun = Run(case, good, scratch / str(number))
            running[begun.pid] = begun
        ended = []
        while running and not ended:
            for pid, one in running.items():
                late = time.time() - one.started > SECONDS
                if late:
                    os.killpg(pid, signal.SIGKILL)
                found, status = os.waitpid(pid, 0 if late else os.WNOHANG)
                if found:
                    ended.append((pid, status, late))
            if not ended:
                time.sleep(0.01)
        for pid, status, late in ended:
            one = running.pop(pid)
            seconds = time.time() - one.started
            result, failure = one.end(status, late)
            yield one.case, result, failure, seconds
            shutil.rmtree(one.folder, ignore_errors=True)


def must(command: tuple[str, ...], folder: Path, stdin: Path | None = None, name: str = "") -> str:
    """Run a command that makes good files; its standard output."""
    streams = folder / "out", folder / "err"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child(command, folder, streams, stdin, {})
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    out, err = (path.read_text(errors="replace") for path in streams)
    for path in streams:
        path.unlink()
    if code:
        raise SystemExit(f"{' '.join(command)}\n{out[-2000:]}\n{err[-2000:]}")
    return out
