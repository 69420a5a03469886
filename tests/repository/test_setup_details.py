# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""scripts/setup.sh: its help, compilers of other names, what pip does not see, more words of pip's, two at once, and CDPATH; versions.py."""

import runpy
import shutil
import subprocess
import sys
import time

import pytest
from conftest import REPOSITORY
from support.sandbox import (
    STAND_IN,
    error_line,
    sandbox,  # noqa: F401  fixtures
)


def test_help_and_arguments(sandbox):  # noqa: F811
    (sandbox.tools / "sed").symlink_to(shutil.which("sed"))
    for option in ("-h", "--help"):
        result = sandbox.run(option)
        assert result.returncode == 0 and result.stdout.startswith("Makes .venv in the repository")
        assert "#" not in result.stdout and "uv brings Python 3.12" in result.stdout.splitlines()[-1]
    assert error_line(sandbox.run("now")) == "setup.sh: error: now: takes no arguments; see --help\n"
    assert not sandbox.venv.exists()


@pytest.mark.parametrize("script", ["setup.sh", "test.sh"])
def test_the_installation_can_stay_as_it_is(sandbox, script):  # noqa: F811
    """A broken one, too, which would be made anew: also by what calls setup.sh."""
    sandbox.venv.mkdir()
    (sandbox.venv / "veco-setup.unfinished").touch()
    sandbox.run(script=script, VECO_SKIP_SETUP="1")
    assert [path.name for path in sandbox.venv.iterdir()] == ["veco-setup.unfinished"] and not sandbox.calls_file.exists()


def test_a_compiler_is_found_by_any_name_and_only_where_it_is_needed(sandbox):  # noqa: F811
    sandbox.python.write_text(STAND_IN.replace('*"pip show"*) exit 1', '*"pip show"*) [[ -e "$HOME/compiled" ]]'))
    assert "missing: a C++ compiler: install it" in error_line(sandbox.run(CXX="none"))
    assert sandbox.run(CXX="cat -O2").returncode == 0
    with open(sandbox.repository / "setup.py", "a") as file:
        file.write("# a comment\n")
    assert "missing: a C++ compiler" in error_line(sandbox.run())
    (sandbox.repository / "compiled").touch()  # fairseq is installed: it is not compiled again
    assert sandbox.run().returncode == 0
    shutil.rmtree(sandbox.venv)
    (sandbox.tools / "clang++").symlink_to("/bin/true")
    assert sandbox.run().returncode == 0


def test_uv_is_asked_once_where_its_python_needs_a_compiler(sandbox):  # noqa: F811
    """As on Arm's processors, for which there is no wheel of fairseq-fixed."""
    (sandbox.tools / "uname").unlink()
    (sandbox.tools / "brought").mkdir()
    for name, text in (("uname", "echo Linux aarch64"), ("brought/python3.12", STAND_IN.replace("3.11 venv", "3.12 venv"))):
        (sandbox.tools / name).write_text(f"#!/bin/bash\n{text}")
        (sandbox.tools / name).chmod(0o755)
    sandbox.uv("""case "$2" in
        find) echo "$HOME/../bin/brought/python3.12" ;;
        install) [[ ! -e "$HOME/asked" ]] && : >"$HOME/asked" ;;
    esac""")
    assert "missing: a C++ compiler: install it" in error_line(sandbox.run(VECO_PYTHON=""))
    assert sandbox.calls() == ["uv python install 3.12", "uv python find --system 3.12"]


def test_an_environment_that_cannot_be_made_is_told(sandbox):  # noqa: F811
    sandbox.python.write_text(STAND_IN.replace('"-m venv "*) ', '"-m venv "*) echo "no space for it"; exit 1; '))
    sandbox.compiler()
    log = sandbox.venv / "veco-setup.log"
    assert error_line(sandbox.run()) == f"setup.sh: error: python -m venv failed; its output: {log}\n"
    assert log.read_text() == "no space for it\n" and sandbox.calls() == []


def test_pip_does_not_see_cuda(sandbox):  # noqa: F811
    """With CUDA_HOME fairseq would compile extensions that nothing here needs."""
    sandbox.python.write_text(
        STAND_IN.replace('echo "$@" >>"$FAKE_CALLS"\n        if', 'echo "${CUDA_HOME-unset}" >>"$FAKE_CALLS"\n        if')
    )
    sandbox.compiler()
    assert sandbox.run(CUDA_HOME="/cuda").returncode == 0
    assert [call for call in sandbox.calls() if "torchaudio" not in call] == ["unset"] * 4


@pytest.mark.parametrize("words, told", [
    ("Disk quota exceeded", "the disk is full"), ("Failed to build fairseq-fixed", "could not be compiled"),
    ("NewConnectionError: refused", "a download failed"), ("Temporary failure in name resolution", "a download failed"),
])  # fmt: skip
def test_more_words_of_pips(sandbox, words, told):  # noqa: F811
    sandbox.compiler()
    assert told in error_line(sandbox.run(FAKE_INSTALL_FAILS=words))


def test_the_threads_of_tests_are_the_users(sandbox):  # noqa: F811
    sandbox.compiler()
    assert sandbox.run(script="test.sh", OMP_NUM_THREADS="3").stdout.endswith("; OMP_NUM_THREADS=3\n")


@pytest.mark.parametrize("which, there, missing", [("lowest", "torch==2.6", "torch"), ("newest", "torch", "torch==2.6")])
def test_versions_are_those_of_this_package(monkeypatch, capsys, which, there, missing):
    monkeypatch.setattr(sys, "argv", ["versions.py", which])
    runpy.run_path(str(REPOSITORY / "scripts/versions.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert there in lines and missing not in lines and not [line for line in lines if line.startswith("fairseq")]


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock to wait with")
def test_a_set_up_waits_for_another_one(sandbox):  # noqa: F811
    """Both would install into one .venv."""
    sandbox.compiler()
    lock = sandbox.repository / ".venv.lock"
    with subprocess.Popen(["flock", lock, "-c", "echo held; sleep 1.5"], stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        started = time.monotonic()
        assert sandbox.run().returncode == 0
        assert time.monotonic() - started > 1 and sandbox.venv.is_dir()


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock to wait with")
def test_what_another_one_has_made_meanwhile_is_not_installed_again(sandbox):  # noqa: F811
    """A program may run in it already."""
    sandbox.compiler()
    assert sandbox.run().returncode == 0
    stamp, installed = sandbox.venv / "veco-setup.stamp", len(sandbox.calls())
    made = stamp.rename(sandbox.repository / "made")
    command = f"echo held; sleep 1; mv '{made}' '{stamp}'"
    with subprocess.Popen(["flock", sandbox.repository / ".venv.lock", "-c", command], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        result = sandbox.run()
    assert result.returncode == 0 and result.stdout == "" and installed > 0 == len(sandbox.calls())


@pytest.mark.parametrize("name", ["scripts/setup.sh", "scripts/demo.sh", "scripts/launch.sh", "scripts/test.sh", "scripts/lint.sh",
                                  "data-bin-recipes/lib/steps.sh"])  # fmt: skip
def test_a_script_finds_the_repository_whatever_cdpath_says(name, tmp_path):
    """... which makes cd print the folder, if the user has exported it and the script's path does not begin with a slash."""
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    found = next(number for number, line in enumerate(lines, 1) if "pwd" in line and line.lower().startswith("repository="))
    script = tmp_path / name
    script.parent.mkdir(parents=True)
    script.write_text("\n".join((*lines[:found], 'echo "${repository-}${REPOSITORY-}"')), encoding="utf-8")
    environment = {"PATH": "/usr/bin:/bin", "CDPATH": f".:{tmp_path}"}
    told = subprocess.run(["bash", name], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True).stdout
    assert told == f"{tmp_path}\n"
