# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The package as ``pip install .`` installs it, used from another folder than the repository."""

import os
import subprocess
import sys
from pathlib import Path

import fairseq
import pytest
from conftest import REPOSITORY
from support.stock import after_the_import


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that holds the installed package: not editable, from a copy, so that no build folder is left here."""
    folder = tmp_path_factory.mktemp("install")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.py", "veco_fairseq", "tests"):
        (source / name).symlink_to(REPOSITORY / name)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--target",
            folder / "site",
            source,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return folder / "site"


def modules(folder: Path) -> set:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}


def test_every_module_is_shipped_and_no_test(installed):
    assert modules(installed / "veco_fairseq") == modules(REPOSITORY / "veco_fairseq")
    assert sorted(path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")) == ["bin", "veco_fairseq"]
    assert [path.name for path in (installed / "bin").iterdir()] == ["veco"]


def test_the_command_works_outside_the_repository(installed, tmp_path):
    result = subprocess.run(
        [sys.executable, installed / "bin/veco", "doctor"], capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert result.returncode == 0 and "nothing is missing" in result.stdout, result.stdout + result.stderr


def test_metadata_names_the_dependencies(installed):
    metadata = next(installed.glob("veco_fairseq-*.dist-info/METADATA")).read_text()
    for line in ("Name: veco_fairseq", "Requires-Dist: fairseq-fixed==0.12.3.1", "Requires-Dist: torch>=2.6"):
        assert f"\n{line}\n" in metadata
    requires = next(line for line in metadata.splitlines() if line.startswith("Requires-Python: "))
    assert set(requires.split(": ")[1].split(",")) == {">=3.11", "<3.15"}


def test_user_dir_by_name_from_another_folder(installed, make_root, tmp_path):
    # fairseq looks for the name beside itself, as things are in site-packages: so it must seem to be installed there
    # (file by file, since the system follows a linked folder before it goes to "..")
    (installed / "fairseq").mkdir()
    for path in Path(fairseq.__path__[0]).iterdir():
        (installed / "fairseq" / path.name).symlink_to(path)
    root = make_root()
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "fairseq_cli.train",
            root,
            "--user-dir",
            "veco_fairseq",
            "--task",
            "camlm",
            "--criterion",
            "camlm",
            "--arch",
            "veco_tiny",
            "--optimizer",
            "adam",
            "--max-tokens",
            "64",
            "--mono-max-length",
            "32",
            "--bitext-max-length",
            "16",
            "--max-update",
            "1",
            "--cpu",
            "--no-save",
            "--disable-validation",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (result.returncode, after_the_import(result.stderr)) == (0, "")
    assert "num_updates: 1 >= max_update: 1" in result.stdout


def test_printed_path_is_the_package(installed, tmp_path):
    # what the README says for every case in which the name is not enough
    result = subprocess.run(
        [sys.executable, "-c", "import veco_fairseq; print(veco_fairseq.__path__[0])"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.stdout == f"{installed / 'veco_fairseq'}\n", result.stderr


def test_every_dependency_is_installed_but_torchaudio():
    # the pins are installed without looking for dependencies: none of them must be missing, nor of another version
    result = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=300)
    problems = [line for line in result.stdout.splitlines() if line != "No broken requirements found."]
    assert problems in ([], ["fairseq-fixed 0.12.3.1 requires torchaudio, which is not installed."]), result.stderr


def test_transformers_loads_its_models():
    # what README's export makes is for it; a torchaudio that does not load beside this torch would break it
    code = "from transformers import XLMRobertaForMaskedLM; print(XLMRobertaForMaskedLM.__name__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # no stand-ins
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd="/", timeout=300)
    assert result.stdout == "XLMRobertaForMaskedLM\n", result.stderr
