# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which test reaches which line: a plug-in of pytest (``-p mutations.reach``), and what reads its notes.

Every Python process that a test starts is measured, too, by coverage, whose context is the test's name.
"""

import ast
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

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

EVERY_RECIPES = {"prepare", "train", "finetune", "evaluate", "xtreme", "lib", "data-bin-recipes"}
CODE = ("veco_fairseq", "scripts")
READS_CODE, SECONDS_OF_A_READER = r"\bast\.parse\(|import .*\bhouse\b|from support.house", 5


def pytest_runtest_protocol(item, nextitem) -> None:
    """All that runs from now on, here and in what is started here, runs for this test."""
    import coverage.control

    os.environ["REACH_TEST"] = item.nodeid
    here = coverage.control.process_startup.coverage
    here.config.context = item.nodeid  # a fork's
    here.switch_context(item.nodeid)


def pytest_runtest_logreport(report) -> None:
    if report.when == "call" or report.outcome != "passed":
        notes = Path(os.environ["REACH_NOTES"], f"seconds.{os.getpid()}")
        with notes.open("a", encoding="utf-8") as file:  # the test may have put its own in place of the builtin one
            file.write(json.dumps([report.nodeid, report.duration, report.outcome]) + "\n")


def files_of_tests(suite: Path) -> dict[str, Path]:
    """Where pytest finds tests, by the name that it gives a file."""
    tests = suite / "tests"
    return {path.relative_to(tests).as_posix(): path for path in sorted(tests.rglob("test_*.py"))}


def digests(suite: Path) -> dict[str, str]:
    """Test file -> what tells whether it has changed."""
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files_of_tests(suite).items()}


def measure(suite: Path, notes: Path, together: int) -> None:
    """Run the test files of a copy of the repository that are not measured as they are, and keep what they reach."""
    tests, measured = digests(suite), {}
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
    ended = subprocess.run(command, cwd=suite / "tests", env={**environment, **measuring}, check=False).returncode
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"mutations: error: pytest ended with {ended} before all tests had run: see above what it said")
    combine = [sys.executable, "-m", "coverage", "combine", "--quiet", f"--rcfile={settings}", str(folder)]
    subprocess.run(combine, cwd=suite, env=environment, check=True)
    for name in CODE:
        shutil.copytree(suite / name, folder / "code" / name, ignore=shutil.ignore_patterns("__pycache__"))
    about = {"tests": {file: tests[file] for file in wanted}}
    (folder / "measured.json").write_text(json.dumps(about), encoding="utf-8")


def lines_before(old: list[str], new: list[str]) -> dict[int, list[int]]:
    """Old line -> the lines, from 1 on, that stand in its place now; where lines were put in, those of their neighbours."""
    found: dict[int, list[int]] = defaultdict(list)
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2)):
                found[i + 1].append(j + 1)
        else:
            for i in range(i1, i2) or range(max(0, i1 - 1), i1 + 1):
                found[i + 1] += range(j1 + 1, j2 + 1)
    return found


def folders(notes: Path) -> list[Path]:
    """Those of measurements that came to their end, the newest last."""
    return sorted(path.parent for path in notes.glob("*/measured.json"))


def in_context(context: str, names: Collection[str]) -> set[str]:
    """The tests, of these names, that coverage wrote into a context: one, or two with a bar between, which names can have."""
    bars = [place for place, letter in enumerate(context) if letter == "|"]
    return {name for bar in (len(context), *bars) for name in (context[:bar], context[bar + 1 :]) if name in names}


class Reach:
    """What :func:`measure` found.

    Attributes:
        tests: file -> line -> the tests that run it, by name.
        seconds: of each test, its setup not included.
        failed: tests that failed with nothing changed.
    """

    def __init__(self, suite: Path, notes: Path):
        self.suite = suite
        self.tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        known: set[str] = set()  # test files of newer measurements
        for folder in reversed(folders(notes)):
            about = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
            self._add(folder, known)
            known.update(about["tests"])

    def _add(self, folder: Path, known: set[str]) -> None:
        """A measurement, without the test files that are known already; code may have moved within its file since."""
        import coverage

        of_folder: dict[str, float] = {}
        for path in folder.glob("seconds.*"):
            for line in path.read_text(encoding="utf-8").splitlines():
                test, seconds, outcome = json.loads(line)
                if test.split("::")[0] not in known:
                    of_folder[test] = seconds
                    if outcome == "failed":
                        self.failed.add(test)
        self.seconds.update(of_folder)
        data = coverage.CoverageData(basename=str(folder / "lines"))
        data.read()
        for path in data.measured_files():
            file = os.path.relpath(path, self.suite)
            then, now = folder / "code" / file, self.suite / file
            if not (then.exists() and now.exists()):
                continue
            moved = lines_before(*(path.read_text(encoding="utf-8").splitlines() for path in (then, now)))
            for line, contexts in data.contexts_by_lineno(path).items():
                names = set().union(*(in_context(context, of_folder) for context in contexts))
                for here in moved[line]:
                    self.tests[file][here].update(names)

    def of(self, file: str, lines: Iterable[int]) -> set[str]:
        """The tests that run any of these lines.

        What is run once, as a file is imported, is no test's: of such lines all tests that run the file, and those whose
        file imports it. Of a recipe or a script also the tests of all files that speak of recipes, or of the script: bash
        and processes with an environment of their own are not measured.
        """
        of_file = self.tests.get(file, {})
        found = set().union(*(of_file.get(line, set()) for line in whole_statements(self.suite / file, lines)))
        if len(found) < 2 or at_import(self.suite / file, lines):
            found = set().union(*of_file.values(), self.importers(file))
        name = "recipes" if file.startswith("data-bin-recipes/") else Path(file).name
        if not file.startswith("veco_fairseq/"):
            found |= self.speaking_of(name)
        # The measurement's own tests fail where a row's text is gone, which is what the row's change does.
        return {test for test in found | self.readers(file) if not test.startswith("mutations/")} - self.failed

    def readers(self, file: str) -> set[str]:
        """The quick tests that read the code itself, of which they run no line; of those for each file, this file's."""
        of_all = {test for test in self.speaking_of(READS_CODE, pattern=True) if self.seconds[test] < SECONDS_OF_A_READER}
        return {test for test in of_all if "[" not in test or Path(file).name in test}

    def importers(self, file: str) -> set[str]:
        """The tests whose file imports a module: those that look at what it defines."""
        module = Path(file).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        parent, _, name = module.rpartition(".")
        return self.speaking_of(f"from {module} import") | self.speaking_of(
            rf"from {parent} import [^\n]*\b{name}\b", pattern=True
        )

    def named_after(self, file: str) -> set[str]:
        """The tests in whose name the file is, or, of a command's module, its script; of a recipe, its folder."""
        if file.startswith("data-bin-recipes/"):
            names = {Path(file).parent.name.partition(".")[0], Path(file).stem} - EVERY_RECIPES
            return {test for test in self.seconds if any(name in test for name in names)}
        names = {Path(file).name, *(path.name for path in (self.suite / "scripts").glob("*.py") if _starts(path, file))}
        return {test for test in self.seconds if any(name in test for name in names)}

    def speaking_of(self, text: str, pattern: bool = False) -> set[str]:
        """The tests whose file has this text, or a match of this pattern."""
        files = {name: path.read_text(encoding="utf-8") for name, path in files_of_tests(self.suite).items()}
        speak = {name for name, content in files.items() if (re.search(text, content) if pattern else text in content)}
        return {test for test in self.seconds if test.split("::")[0] in speak}


def _starts(script: Path, file: str) -> bool:
    """Whether a script is the shim of a command's module."""
    found = re.search(r'start\("(.+)"\)', script.read_text(encoding="utf-8"))
    stem = Path(file).stem.removesuffix("_veco")
    return bool(found) and "/commands/" in file and re.sub("[- ]", "_", found[1]) == stem


def whole_statements(path: Path, lines: Iterable[int]) -> set[int]:
    """The lines of the statements that these are parts of; of those with a body, their head.

    Of a condition over several lines, a test runs only the lines up to the one that decides.
    """
    found = set(lines)
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", None)
                here = range(node.lineno, (body[0].lineno if body else node.end_lineno + 1))
                if not found.isdisjoint(here):
                    found.update(here)
    return found


def at_import(path: Path, lines: Iterable[int]) -> bool:
    """Whether any of the lines stands outside of all functions of a module, where it is run once, by whoever comes first."""
    if path.suffix != ".py":
        return False
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]  # fmt: skip
    inside = {line for node in functions for line in range(node.body[0].lineno, node.end_lineno + 1)}
    return not inside.issuperset(lines)
