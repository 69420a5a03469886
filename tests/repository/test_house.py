# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The rooms of the package: imports go down only, no module is too long, and commands load nothing heavy in vain."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY
from support.house import FLOORS

PACKAGE = REPOSITORY / "veco_fairseq"
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
LONGEST = 300


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path):
    """The rooms that a module imports, with the line; those that registering needs are :mod:`plugin`'s, see there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        if isinstance(node, ast.ImportFrom) and node.module == "veco_fairseq":
            names = [f"veco_fairseq.{alias.name}" for alias in node.names]
        for name in names:
            if name and name.startswith("veco_fairseq."):
                yield name.split(".")[1], node.lineno


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    upwards = [(other, line) for other, line in imports(path) if FLOOR.get(other, 99) < FLOOR[room(path)]]
    # A plug-in registers itself when a task or a model is imported: these two folders import plugin.py.
    allowed = {"plugin"} if path.name == "__init__.py" and room(path) in ("tasks", "models") else set()
    assert not [found for found in upwards if found[0] not in allowed]


def test_every_room_has_a_floor():
    assert {room(path) for path in modules()} == set(FLOOR)


def test_no_file_of_code_is_too_long():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.sh"]
    files = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    assert len(files) > 300
    lengths = {file: len((REPOSITORY / file).read_text(encoding="utf-8").splitlines()) for file in files}
    assert {file: length for file, length in lengths.items() if length > LONGEST} == {}


def test_the_top_level_is_the_known_one():
    """A command that runs here leaves files, such as a log, which git add would take."""
    files = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {name for name in (file.split("/")[0] for file in files) if not name.startswith(".")} == {
        "veco_fairseq", "scripts", "data-bin-recipes", "tests", "docs", "setup.py", "pyproject.toml", "README.md", "LICENSE",
        "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff",
    }  # fmt: skip


def test_tests_stand_in_rooms_of_the_same_names():
    """Or with the harness, the recipes or the repository that they test."""
    folders = {path.relative_to(REPOSITORY / "tests").parts[0] for path in (REPOSITORY / "tests").rglob("test_*.py")}
    assert folders - set(FLOOR) == {"malformed", "mutations", "recipes", "repository"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_docstring_says_what_a_function_does_before_what_it_is_made_from(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [
        ast.get_docstring(node) or "" for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)
    ]
    assert not [text for text in texts if text.startswith(("fairseq's", "fairseq-interactive's", "fairseq-generate's"))]


def test_no_two_files_of_tests_have_the_same_name():
    """pytest would import the first for both."""
    names = [path.name for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_what_registers_itself_is_imported_by_the_plug_in():
    """Otherwise fairseq-train would know it only where another module happens to import it."""
    registering = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^@register_", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    code = ast.parse((PACKAGE / "plugin.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in code.body if isinstance(node, ast.Import) for alias in node.names}
    assert registering == {name for name in imported if name.startswith("veco_fairseq.")} and len(registering) == 12


def test_no_name_of_a_test_changes_from_process_to_process():
    """pytest names a test by its values, and its processes must agree on the names: no clock, no chance."""
    changing = {"urandom", "time", "now", "today", "uuid4", "getpid", "mkdtemp"}
    found = []
    for path in (REPOSITORY / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not re.search(rf"gzip\.compress\(|\b({'|'.join(changing)})\(", text):
            continue  # which is quicker than to read all of them
        for node in ast.walk(ast.parse(text)):
            for decorator in getattr(node, "decorator_list", ()):
                for call in ast.walk(decorator):
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                        dated = ast.unparse(call.func) == "gzip.compress" and "mtime" not in [word.arg for word in call.keywords]
                        if dated or call.func.attr in changing:
                            found.append(f"{path.name}, line {call.lineno}: {ast.unparse(call)[:60]}")
    assert found == []
