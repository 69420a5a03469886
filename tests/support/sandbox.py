# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A copy of the set-up with a stand-in for Python and pip."""

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY

STAND_IN = """#!/bin/bash
facts="${FAKE_FACTS-3.11 venv headers /prefix}"
case "$*" in
    "-c "*base_prefix*) echo "$facts" ;;
    "-c "*) exit 0 ;;
    "-m venv "*) mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python" ;;
    *" install "*)
        echo "$@" >>"$FAKE_CALLS"
        if [[ -n "${FAKE_INSTALL_FAILS:-}" && "$*" == *veco-setup.rest* ]]; then echo "ERROR: $FAKE_INSTALL_FAILS"; exit 1; fi ;;
    *"pip cache list"*) echo "${FAKE_CACHE:-}" ;;
    *"pip show"*) exit 1 ;;
    *"-m veco_fairseq mend-fairseq") if [[ -n "${FAKE_MEND_FAILS:-}" ]]; then echo "veco mend-fairseq: error: $FAKE_MEND_FAILS" >&2; exit 1; fi ;;
    *"versions.py lowest") echo torch==2.6 ;;
    *" uninstall "*) echo "$@" >>"$FAKE_CALLS" ;;
    *pytest*) echo "pytest called with: $*; OMP_NUM_THREADS=$OMP_NUM_THREADS" ;;
esac
"""


class Sandbox:
    """A copy of the scripts in a folder with a space in its name, and a PATH with nothing but what they call."""

    TOOLS = "awk bash env cat cksum cp dirname flock grep mkdir rm uname".split()

    def __init__(self, folder: Path):
        self.repository = folder / "a repository"
        for name in (
            "scripts/setup.sh",
            "scripts/test.sh",
            "scripts/requirements.lock",
            "veco_fairseq/commands/mend_fairseq.py",
            "setup.py",
        ):
            (self.repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, self.repository / name)
        self.python = folder / "stand in"
        self.python.write_text(STAND_IN)
        self.python.chmod(0o755)
        self.tools = folder / "bin"
        self.tools.mkdir()
        for tool in self.TOOLS:
            if shutil.which(tool):
                (self.tools / tool).symlink_to(shutil.which(tool))
        self.calls_file = folder / "calls"
        self.venv = self.repository / ".venv"

    def compiler(self) -> None:
        (self.tools / "c++").symlink_to("/bin/true")

    def interpreter(self, name: str, facts: str) -> Path:
        """One more stand-in, on the PATH or wherever ``name`` leads."""
        path = self.tools / name
        path.write_text(STAND_IN.replace("3.11 venv headers /prefix", facts))
        path.chmod(0o755)
        return path

    def uv(self, script: str) -> None:
        """A stand-in for uv, which notes its calls, too."""
        path = self.tools / "uv"
        path.write_text(f'#!/bin/bash\necho "uv $*" >>"$FAKE_CALLS"\n{script}\n')
        path.chmod(0o755)

    def calls(self) -> list:
        """The calls of pip install since the last time."""
        calls = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return calls

    def run(self, *arguments: str, script: str = "setup.sh", **environment: str) -> subprocess.CompletedProcess:
        environment = {
            "PATH": str(self.tools),
            "HOME": str(self.repository),
            "VECO_PYTHON": str(self.python),
            "FAKE_CALLS": str(self.calls_file),
            **environment,
        }
        command = ["bash", str(self.repository / "scripts" / script), *arguments]
        return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60)


@pytest.fixture
def sandbox(tmp_path):
    return Sandbox(tmp_path)


def error_line(result: subprocess.CompletedProcess) -> str:
    """The one line on standard error of a run that ended with exit code 1."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("setup.sh: error: "), result.stderr
    return result.stderr
