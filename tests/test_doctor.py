# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What doctor.py says."""

import platform
import subprocess
import sys

import pytest
import torch
from conftest import REPOSITORY

from veco_fairseq import doctor
from veco_fairseq.doctor import conflicts, failures


def test_the_report_of_this_machine(run):
    result = run("scripts/doctor.py")
    assert result.returncode == 0 and result.stderr == "", result.stdout + result.stderr
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["python"].startswith(platform.python_version()) and lines["torch"].split("+")[0] in torch.__version__
    assert lines["fairseq-fixed"] == "0.12.3.1" and "processor" in lines and "bf16" in lines


def test_conflicts_and_what_to_do():
    good = {"fairseq-fixed": "0.12.3.1", "omegaconf": "2.3.0", "fairseq": None}
    assert conflicts(good) == []
    (both,) = conflicts({**good, "fairseq": "0.12.2"})
    assert "pip uninstall fairseq" in both
    (none,) = conflicts({**good, "fairseq-fixed": None})
    assert "setup.sh" in none
    (old,) = conflicts({**good, "omegaconf": "2.0.6"})
    assert "needs 2.3" in old


def broken(folder, module, error):
    """A folder for PYTHONPATH with a module that cannot be imported."""
    (folder / f"{module}.py").write_text(f"raise {error}\n")
    return str(folder)


def test_a_fairseq_that_cannot_be_imported_is_told(tmp_path):
    # as on Python 3.14 before it is mended: importing veco_fairseq would end in a traceback
    result = subprocess.run(
        [sys.executable, REPOSITORY / "scripts/doctor.py"], capture_output=True, text=True, timeout=300,
        env={"PYTHONPATH": broken(tmp_path, "fairseq", "ValueError('int | None is not callable')")},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, "")
    line = next(line for line in result.stdout.splitlines() if "PROBLEM" in line and "fairseq cannot" in line)
    assert "ValueError: int | None is not callable" in line
    assert ("mend_fairseq.py" if sys.version_info >= (3, 14) else "setup.sh") in line


def test_a_fairseq_beside_fairseq_fixed_is_told(tmp_path):
    (tmp_path / "fairseq-0.12.2.dist-info").mkdir()
    (tmp_path / "fairseq-0.12.2.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: fairseq\nVersion: 0.12.2\n")
    command = [sys.executable, REPOSITORY / "scripts/doctor.py"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env={"PYTHONPATH": str(tmp_path)})
    problems = [line for line in result.stdout.splitlines() if line.startswith("PROBLEM")]
    assert result.returncode == 1 and len(problems) == 1 and "pip uninstall fairseq, then" in problems[0]


@pytest.mark.parametrize("version, advice", [((3, 13), "scripts/setup.sh"), ((3, 14), "scripts/mend_fairseq.py")])
def test_what_to_do_depends_on_the_python(monkeypatch, version, advice):
    monkeypatch.setattr(doctor, "unloadable", {"fairseq": "ValueError: no"}.get)
    monkeypatch.setattr(doctor.sys, "version_info", version)
    (line,) = failures({"fairseq-fixed": "0.12.3.1"})
    assert "(ValueError: no)" in line and advice in line


def test_a_torchaudio_that_cannot_be_loaded_is_told(tmp_path, monkeypatch):
    versions = {"fairseq-fixed": "0.12.3.1", "torch": "2.13.0+cpu"}
    assert failures({**versions, "torchaudio": None}) == []
    monkeypatch.syspath_prepend(broken(tmp_path, "torchaudio", "OSError('libcudart.so.13: cannot open')"))
    monkeypatch.delitem(sys.modules, "torchaudio", raising=False)
    (line,) = failures({**versions, "torchaudio": "2.11.0"})
    assert line.startswith("torchaudio 2.11.0 cannot be loaded beside torch 2.13.0+cpu")
    assert "OSError: libcudart.so.13" in line and "pip uninstall torchaudio" in line
