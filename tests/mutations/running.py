# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Runs the tests that reach a change, in a copy of the repository that has it."""

import contextlib
import itertools
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from mutations import REPOSITORY, Change
from mutations.reach import Reach

QUICK = 2.0  # seconds
PATIENCE = 3  # times as long as the tests take otherwise, and a minute: a loop without end
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".pytest_cache", "data-bin")


class Outcome(NamedTuple):
    """How the tests took a change.

    Attributes:
        how: "noticed", "unnoticed", or "not reached" by any test.
        by: the test that failed first, or nothing.
        tests, seconds: that were run, and that they took.
    """

    how: str
    by: str
    tests: int
    seconds: float


def copy_repository(folder: Path) -> Path:
    """A copy as the repository is now, with its .venv."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(REPOSITORY, folder, ignore=LEFT_OUT, symlinks=True)
    (folder / ".venv").symlink_to(REPOSITORY / ".venv")
    # Some tests ask git which files there are, and for the commit.
    committer = ["-c", "user.name=copy", "-c", "user.email=copy"]
    for command in (["init", "-q"], ["add", "-A"], [*committer, "commit", "-qm", "copy"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def in_order(tests: set[str], seconds: dict[str, float], first: set[str] = frozenset()) -> list[str]:
    """Quick ones first, so that most changes are noticed soon; those of a file together, since they share fixtures.

    Args:
        tests: by name.
        seconds: that they take.
        first: of the quick ones, those that come before all others: which look at the changed module.
    """
    slow = {test: seconds.get(test, 1) > QUICK for test in tests}
    together: dict[tuple[bool, bool, str], list[str]] = defaultdict(list)
    for test in tests:
        together[slow[test], test not in first, test.split("::")[0]].append(test)
    of_file = sorted(together.items(), key=lambda item: (*item[0][:2], sum(seconds.get(name, 1) for name in item[1])))
    return [name for _, names in of_file for name in sorted(names, key=lambda name: seconds.get(name, 1))]


def run(change: Change, suite: Path, reach: Reach, within: float = math.inf) -> Outcome:
    """Change the copy, run the tests, and change it back.

    Args:
        within: seconds; of the tests, quick ones first, so many are run as take that long.
    """
    first = reach.importers(change.file) | reach.named_after(change.file)
    tests = in_order(reach.of(change.file, change.lines), reach.seconds, first)
    if not tests:
        return Outcome("not reached", "", 0, 0.0)
    ends = itertools.accumulate(reach.seconds.get(test, 1) for test in tests)
    tests = [test for test, end in zip(tests, ends) if end <= within] or tests[:1]
    file = suite / change.file
    before, mode = file.read_bytes(), file.stat().st_mode
    expected = sum(reach.seconds.get(test, 1) for test in tests)
    names = suite / "tests-to-run.txt"
    names.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
    files = dict.fromkeys(test.split("::")[0] for test in tests)  # a change can take some of their tests away
    environment = {**os.environ, "PYTHONPATH": f"{suite}:{suite}/tests", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
                   "TESTS_TO_RUN": str(names)}  # fmt: skip
    started = time.monotonic()
    try:
        file.write_text(change.code, encoding="utf-8", newline="\n")
        file.chmod(mode)
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "mutations.order", *files],
            cwd=suite / "tests", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            said = process.communicate(timeout=60 + PATIENCE * expected)[0]
            failed = [
                line.split(" - ")[0].split(" ", 1)[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))
            ]
            by = failed[0] if failed else f"exit code {process.returncode}"
            if process.returncode == 4 and "while loading conftest" in said:  # the package cannot be imported
                by = "no import"
            elif process.returncode == 4:  # pytest's, for files that it does not find
                raise RuntimeError(f"{change.file}: its tests cannot be run: {said[-500:]}")
            how = "unnoticed" if process.returncode in (0, 5) else "noticed"  # 5: no test is left
        except subprocess.TimeoutExpired:
            how, by = "noticed", "no end"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        file.write_bytes(before)
    return Outcome(how, "" if how == "unnoticed" else by, len(tests), round(time.monotonic() - started, 1))
