# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""scripts/setup.sh, offline, on a copy of it and with a stand-in for Python.

The stand-in answers what the script asks of an interpreter (its version, making a .venv, pip), notes each call of
pip, and fails where a test wants it to. What a real interpreter installs is seen by every run of these tests.
"""

import os
import re
import shutil
from pathlib import Path

import pytest
from conftest import REPOSITORY
from support.sandbox import (
    error_line,
    sandbox,  # noqa: F401  fixtures
)


def test_makes_the_environment_and_then_does_nothing(sandbox):
    sandbox.compiler()
    result = sandbox.run()
    assert result.returncode == 0, result.stderr
    steps = [line.split()[1] for line in result.stdout.splitlines()]
    assert steps == ["1/4", "2/4", "3/4", "4/4", "done"]
    first, torch, rest, torchaudio, package = sandbox.calls()
    assert first.endswith(
        f"-m pip --no-input --disable-pip-version-check install --require-hashes --no-deps -r {sandbox.venv}/veco-setup.first"
    )
    assert re.search(r" install torch==[\d.]+$", torch)
    assert rest.endswith(f"--no-build-isolation --require-hashes --no-deps -r {sandbox.venv}/veco-setup.rest")
    assert torchaudio.endswith("uninstall --yes torchaudio")
    assert package.endswith(f"--no-deps -e {sandbox.repository}")
    lock = hashes_of(sandbox.repository / "scripts" / "requirements.lock")
    first, rest = (hashes_of(sandbox.venv / f"veco-setup.{name}") for name in ("first", "rest"))
    assert {"cython", "numpy", "setuptools", "wheel"} < first.keys() and "torch" not in first.keys() | rest.keys()
    assert {**rest, **first} == rest == {pin: hashes for pin, hashes in lock.items() if pin != "torch"}

    again = sandbox.run()
    assert (again.returncode, again.stdout, again.stderr, sandbox.calls()) == (0, "", "", [])


def test_a_clone_that_cannot_be_written_is_told_in_one_line(sandbox):
    sandbox.compiler()
    (sandbox.repository / ".venv.lock").mkdir()  # which not even root can write to
    result = sandbox.run()
    assert f"error: {sandbox.repository}: cannot be written, and its .venv is missing" in error_line(result)
    assert not sandbox.venv.exists() and sandbox.calls() == []


@pytest.mark.parametrize("changed", ["scripts/requirements.lock", "setup.py", "veco_fairseq/commands/mend_fairseq.py"])
def test_changed_pins_are_installed_into_the_same_environment(sandbox, changed):
    sandbox.compiler()
    assert sandbox.run().returncode == 0
    sandbox.calls()
    (sandbox.venv / "kept").touch()
    with open(sandbox.repository / changed, "a") as file:
        file.write("# a comment\n")
    assert sandbox.run().returncode == 0
    assert len(sandbox.calls()) == 5
    assert (sandbox.venv / "kept").exists()


@pytest.mark.parametrize("damage, why", [
    ("interrupted", "its making was cut off"), ("update interrupted", "its making was cut off"), ("moved", "the repository was moved"),
    ("python gone", "its Python does not run"), ("another python", "it is of another Python, 3.11 /prefix")])  # fmt: skip
def test_broken_environment_is_made_anew(sandbox, damage, why):
    sandbox.compiler()
    if damage == "interrupted":
        assert sandbox.run(FAKE_INSTALL_FAILS="anything").returncode == 1
    else:
        assert sandbox.run().returncode == 0
    if damage == "update interrupted":
        with open(sandbox.repository / "setup.py", "a") as file:
            file.write("# a comment\n")
        assert sandbox.run(FAKE_INSTALL_FAILS="anything").returncode == 1
    (sandbox.venv / "old").touch()
    environment = {}
    if damage == "python gone":
        (sandbox.venv / "bin" / "python").unlink()
    if damage == "another python":
        environment["FAKE_FACTS"] = "3.13 venv headers /prefix"
        # the old .venv goes on giving its own version
        (sandbox.venv / "bin" / "python").write_text("#!/bin/bash\necho 3.11 venv headers /prefix\n")
    if damage == "moved":
        sandbox.repository = sandbox.repository.rename(sandbox.repository.with_name("a"))  # as the old path begins
        sandbox.venv = sandbox.repository / ".venv"
    result = sandbox.run(**environment)
    assert result.returncode == 0, result.stderr
    assert f"setup: removing .venv: {why}\n" in result.stdout
    assert not (sandbox.venv / "old").exists()
    assert sandbox.run(**environment).stdout == ""


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10", "3.15"])
def test_unsupported_python(sandbox, version):
    line = error_line(sandbox.run(FAKE_FACTS=f"{version} venv headers /prefix"))
    assert f"is Python {version}: fairseq needs 3.11 to 3.14" in line
    assert not sandbox.venv.exists()


def test_python_that_does_not_run(sandbox):
    assert "does not run" in error_line(sandbox.run(VECO_PYTHON=str(sandbox.repository / "none")))


def test_no_python_at_all(sandbox):
    line = error_line(sandbox.run(VECO_PYTHON=""))
    assert "missing: a Python from 3.11 to 3.14: install it" in line and "apt-get install g++ python3-dev python3-venv" in line
    assert "install uv" in line and not sandbox.venv.exists()


@pytest.mark.parametrize(
    "versions, taken",
    [
        ({"python3": "3.9", "python3.12": "3.10", "python3.13": "3.13"}, "python3.13"),
        ({"python3": "3.14", "python3.11": "3.11", "python3.14": "3.14"}, "python3.11"),
        ({"python3": "3.14"}, "python3"),
    ],
)
def test_the_first_supported_python_is_taken(sandbox, versions, taken):
    for name, version in versions.items():
        sandbox.interpreter(name, f"{version} venv headers /prefix")
    sandbox.compiler()
    result = sandbox.run(VECO_PYTHON="")
    assert f"making .venv with {taken} " in result.stdout, result.stderr


@pytest.mark.parametrize(
    "facts, compiler, missing, debian, fedora",
    [
        (
            "- -",
            False,
            "a C++ compiler, the headers of Python 3.13, the venv module of Python 3.13",
            "g++ python3.13-dev python3.13-venv",
            "gcc-c++ python3-devel python3-libs",
        ),
        ("venv -", True, "the headers of Python 3.13", "python3.13-dev", "python3-devel"),
        ("venv headers", False, "a C++ compiler", "g++", "gcc-c++"),
        ("- headers", True, "the venv module of Python 3.13", "python3.13-venv", "python3-libs"),
    ],
)
def test_all_that_is_missing_in_one_line(sandbox, facts, compiler, missing, debian, fedora):
    if compiler:
        sandbox.compiler()
    line = error_line(sandbox.run(FAKE_FACTS=f"3.13 {facts} /prefix"))
    assert f"missing: {missing}: install it (Debian, Ubuntu: apt-get install {debian}; Fedora: dnf install {fedora})" in line
    assert "uv, which brings a Python 3.12" in line
    assert sandbox.calls() == [] and not sandbox.venv.exists()  # said before anything is done


UV = """
case "$*" in
    "python install 3.12") echo "Installed Python 3.12.16 in 1.2s" >&2 ;;
    "python find --system 3.12") echo "$HOME/../bin/brought/python3.12" ;;
    *) exit 2 ;;
esac
"""


@pytest.mark.skipif(os.uname()[0::4] != ("Linux", "x86_64"), reason="there is no wheel of fairseq-fixed: a compiler is needed")
@pytest.mark.parametrize("facts", [None, "3.10 venv headers /usr", "3.13 - - /usr", "3.14 venv - /usr"])
def test_uv_brings_python(sandbox, facts):
    (sandbox.tools / "brought").mkdir()
    sandbox.interpreter("brought/python3.12", "3.12 venv headers /uv")
    sandbox.uv(UV)
    if facts:
        python = sandbox.interpreter("python3", facts)
        (sandbox.venv / "bin").mkdir(parents=True)  # made by hand
        (sandbox.venv / "bin" / "python").symlink_to(python)
    result = sandbox.run(VECO_PYTHON="")
    assert result.returncode == 0, result.stderr
    assert "uv brings a Python 3.12" in result.stdout and "bin/brought/python3.12 " in result.stdout
    assert sandbox.calls()[:2] == ["uv python install 3.12", "uv python find --system 3.12"]
    # what it brought stays
    assert sandbox.run(VECO_PYTHON="").stdout == "" and sandbox.calls() == []


def test_uv_is_left_alone_where_a_python_is_whole_or_named(sandbox):
    sandbox.uv(UV)
    error_line(sandbox.run())  # VECO_PYTHON without a compiler
    sandbox.compiler()
    assert sandbox.run().returncode == 0
    assert not [call for call in sandbox.calls() if call.startswith("uv")]


def test_uv_cannot_bring_python(sandbox):
    sandbox.uv("echo 'error: no' >&2; echo 'cause: network' >&2; exit 1")
    line = error_line(sandbox.run(VECO_PYTHON=""))
    assert "error: no cause: network" in line and "apt-get install" in line
    sandbox.uv('[[ "$*" == *install* ]] || exit 1')
    assert "names no Python that runs" in error_line(sandbox.run(VECO_PYTHON=""))


def test_no_compiler_is_needed_where_there_is_a_wheel(sandbox):
    # built before, for this version and not for another one
    assert sandbox.run(FAKE_CACHE=" - fairseq_fixed-0.12.3.1-cp311-cp311-linux_x86_64.whl (2 MB)").returncode == 0
    shutil.rmtree(sandbox.venv)
    assert sandbox.run(FAKE_CACHE=" - fairseq_fixed-0.12.3.1-cp313-cp313-linux_x86_64.whl (2 MB)").returncode == 1
    if os.uname().sysname == "Linux" and os.uname().machine == "x86_64":
        assert sandbox.run(FAKE_FACTS="3.12 venv - /prefix").returncode == 0


@pytest.mark.parametrize(
    "words, told",
    [
        ("Could not find a version that satisfies the requirement torch", "a download failed"),
        ("HTTPSConnectionPool: Read timed out.", "a download failed"),
        ("[Errno 28] No space left on device", "the disk is full"),
        ("Failed building wheel for fairseq-fixed", "could not be compiled"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "is not the file that"),
        ("something else", "could not install a package"),
    ],
)
def test_failed_installation(sandbox, words, told):
    sandbox.compiler()
    line = error_line(sandbox.run(FAKE_INSTALL_FAILS=words))
    log = line.rsplit("log: ", 1)[1].strip()
    assert told in line and words in Path(log).read_text()
    # the next run repairs it
    assert sandbox.run().returncode == 0


def test_other_versions_make_the_environment_anew(sandbox):
    sandbox.compiler()
    assert sandbox.run().returncode == 0
    sandbox.calls()
    result = sandbox.run(VECO_VERSIONS="lowest")
    assert "removing .venv: it has the pinned versions" in result.stdout, result.stderr
    assert sandbox.calls()[-1].endswith("--upgrade torch==2.6")
    assert sandbox.run(VECO_VERSIONS="lowest").stdout == ""
    assert "it has the lowest versions" in sandbox.run().stdout
    assert "give pinned, lowest or newest" in error_line(sandbox.run(VECO_VERSIONS="old"))


def test_environment_made_before_there_were_other_versions_is_kept(sandbox):
    sandbox.compiler()
    assert sandbox.run().returncode == 0
    stamp = sandbox.venv / "veco-setup.stamp"
    stamp.write_text("".join(line for line in stamp.open() if not line.startswith("versions")))
    assert "bringing it up to date" in sandbox.run().stdout


def test_a_fairseq_that_cannot_be_mended(sandbox):
    sandbox.compiler()
    assert error_line(sandbox.run(FAKE_MEND_FAILS="f.py: is not")) == "setup.sh: error: f.py: is not\n"
    assert "its making was cut off" in sandbox.run().stdout


def hashes_of(path: Path) -> dict:
    """Name -> SHA-256 of its files, of a file of pins with hashes and of nothing else."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    hashes = {}
    for line in lines:
        pin = re.fullmatch(r"([a-z0-9-]+)==[^\s;]+ \\", line)
        if pin:
            assert pin[1] not in hashes
            here = hashes[pin[1]] = []
        else:
            here.append(re.fullmatch(r" {4}--hash=sha256:([0-9a-f]{64})(?: \\)?", line)[1])
    assert all(hashes.values())
    return hashes


def test_the_lock_pins_every_dependency_with_its_hashes():
    pins = hashes_of(REPOSITORY / "scripts" / "requirements.lock")
    setup = (REPOSITORY / "setup.py").read_text()
    needed = ("fairseq-fixed", "torch", "numpy", "sentencepiece", "sacrebleu", "sacremoses", "matplotlib", "pytest")
    assert all(f'"{name}' in setup and name in pins for name in needed)
    # wheels of each supported Python, on two kinds of processors and macOS: some 20 files
    assert all(len(pins[name]) > 12 for name in ("torch", "numpy", "sentencepiece", "ctranslate2"))
    assert "torchaudio" not in pins
