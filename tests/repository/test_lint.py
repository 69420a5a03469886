# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What lint.sh asks of ruff and mypy, which write down their arguments here."""

import shutil
import subprocess

import pytest
from conftest import REPOSITORY

CODE = "veco_fairseq scripts tests data-bin-recipes setup.py"
CHECKS = [f"ruff format --check {CODE}", f"ruff check {CODE}", "mypy"]


def lint(folder, *options, failing=""):
    (folder / "scripts").mkdir()
    shutil.copyfile(REPOSITORY / "scripts/lint.sh", folder / "scripts/lint.sh")
    (folder / "scripts/setup.sh").write_text("")
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("ruff", "mypy"):
        script = f'#!/bin/bash\necho {name} "$@" >> {folder}/calls\n[[ "{name} $*" != "{failing} "* ]]\n'
        (folder / ".venv/bin" / name).write_text(script)
        (folder / ".venv/bin" / name).chmod(0o755)
    result = subprocess.run(["bash", folder / "scripts/lint.sh", *options], cwd=folder.parent, capture_output=True, text=True)
    calls = folder / "calls"
    return result.returncode, [line.rstrip() for line in calls.read_text().splitlines()] if calls.exists() else []


def test_without_an_option_no_file_is_changed(tmp_path):
    assert lint(tmp_path) == (0, CHECKS)


def test_files_are_mended_before_they_are_checked(tmp_path):
    assert lint(tmp_path, "--fix") == (0, [f"ruff format {CODE}", f"ruff check --fix {CODE}", *CHECKS])


@pytest.mark.parametrize("number, failing", list(enumerate(["ruff format --check", "ruff check", "mypy"])))
def test_the_first_failure_is_the_last_step(tmp_path, number, failing):
    assert lint(tmp_path, failing=failing) == (1, CHECKS[: number + 1])


@pytest.mark.parametrize("options", [["--fxi"], ["--fix", "x"]])
def test_other_options_are_refused(tmp_path, options):
    assert lint(tmp_path, *options) == (2, [])
