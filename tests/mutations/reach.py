# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which test reaches which line: a plug-in of pytest (``-p mutations.reach``), and what reads its notes.

Every Python process that a test starts is measured, too, by coverage, whose context is the test's name.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Dict, Iterable, List, Set

SETTINGS = """[run]
parallel = true
data_file = {notes}/lines
context = ${{REACH_TEST-}}
patch =
    _exit
    fork
source =
    {suite}/veco_fairseq
    {suite}/scripts
"""


def pytest_runtest_protocol(item, nextitem) -> None:
    """All that runs from now on, here and in what is started here, runs for this test."""
    import coverage.control

    os.environ["REACH_TEST"] = item.nodeid
    coverage.control.process_startup.coverage.switch_context(item.nodeid)


def pytest_runtest_logreport(report) -> None:
    if report.when == "call" or report.outcome != "passed":
        with open(Path(os.environ["REACH_NOTES"], f"seconds.{os.getpid()}"), "a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.duration, report.outcome]) + "\n")


def digests(suite: Path, *patterns: str) -> Dict[str, str]:
    """File -> what tells whether it has changed."""
    files = sorted(path for pattern in patterns for path in suite.glob(pattern))
    return {str(path.relative_to(suite)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def measure(suite: Path, notes: Path, together: int) -> None:
    """Run the test files of a copy of the repository that are not measured as they are, and keep what they reach."""
    tests, measured = digests(suite, "tests/test_*.py"), {}
    for folder in folders(notes):
        measured.update(json.loads((folder / "measured.json").read_text(encoding="utf-8"))["tests"])
    wanted = [file for file, digest in tests.items() if measured.get(file) != digest]
    if not wanted:
        return
    folder = notes / f"{len(folders(notes)) + 1:03}"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
    folder.mkdir(parents=True)
    settings = folder / "coverage.ini"
    settings.write_text(SETTINGS.format(notes=folder, suite=suite), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{suite}:{suite}/tests", "OMP_NUM_THREADS": "1"}
    measuring = {"COVERAGE_PROCESS_START": str(settings), "COVERAGE_CORE": "ctrace", "REACH_NOTES": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutations.reach", "-m", "not slow", "-n", str(together), "--dist",
               "loadfile", "--no-loadscope-reorder", *wanted]  # fmt: skip
    subprocess.run(command, cwd=suite, env={**environment, **measuring}, check=False)
    combine = [sys.executable, "-m", "coverage", "combine", "--quiet", f"--rcfile={settings}", str(folder)]
    subprocess.run(combine, cwd=suite, env=environment, check=True)
    code = digests(suite, "veco_fairseq/**/*.py", "scripts/*.py")
    about = {"tests": {file: tests[file] for file in wanted}, "code": code}
    (folder / "measured.json").write_text(json.dumps(about), encoding="utf-8")


def folders(notes: Path) -> List[Path]:
    """Those of measurements that came to their end, the newest last."""
    return sorted(path.parent for path in notes.glob("*/measured.json"))


class Reach:
    """What :func:`measure` found.

    Attributes:
        tests: file -> line -> the tests that run it, by name; line 0 for a file that has changed since.
        seconds: of each test, its setup not included.
        failed: tests that failed with nothing changed.
    """

    def __init__(self, suite: Path, notes: Path):
        self.suite = suite
        self.tests: Dict[str, Dict[int, Set[str]]] = defaultdict(lambda: defaultdict(set))
        self.seconds: Dict[str, float] = {}
        self.failed: Set[str] = set()
        known: Set[str] = set()  # test files of newer measurements
        code = digests(suite, "veco_fairseq/**/*.py", "scripts/*.py")
        for folder in reversed(folders(notes)):
            about = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
            self._add(folder, known, {file for file, digest in about["code"].items() if code.get(file) == digest})
            known.update(about["tests"])

    def _add(self, folder: Path, known: Set[str], unchanged: Set[str]) -> None:
        """A measurement, without the test files that are known already."""
        import coverage

        data = coverage.CoverageData(basename=str(folder / "lines"))
        data.read()
        for path in data.measured_files():
            file = os.path.relpath(path, self.suite)
            for line, contexts in data.contexts_by_lineno(path).items():
                names = {name for context in contexts for name in context.split("|") if name}
                here = line if file in unchanged else 0
                self.tests[file][here].update(name for name in names if name.split("::")[0] not in known)
        for path in folder.glob("seconds.*"):
            for line in path.read_text(encoding="utf-8").splitlines():
                test, seconds, outcome = json.loads(line)
                if test.split("::")[0] not in known:
                    self.seconds[test] = seconds
                    if outcome == "failed":
                        self.failed.add(test)

    def of(self, file: str, lines: Iterable[int]) -> Set[str]:
        """The tests that run any of these lines; of what is run once, as a file is imported, all that run the file.

        Of a recipe or another script of bash: the tests of all files that speak of recipes, or of the script.
        """
        if file.startswith("data-bin-recipes/") or file.endswith(".sh"):
            name = "recipes" if file.startswith("data-bin-recipes/") else Path(file).name
            files = (self.suite / "tests").glob("test_*.py")
            speak = {f"tests/{path.name}" for path in files if name in path.read_text(encoding="utf-8")}
            return {test for test in self.seconds if test.split("::")[0] in speak} - self.failed
        of_file = self.tests.get(file, {})
        found = set().union(*(of_file.get(line, set()) for line in (0, *lines)))
        if len(found) < 2:  # whoever came first
            found = set().union(*of_file.values())
        return found - self.failed
