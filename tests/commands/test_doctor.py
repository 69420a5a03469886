# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What doctor.py says."""

import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fairseq
import pytest
import torch
from conftest import REPOSITORY

from veco_fairseq.commands import doctor
from veco_fairseq.commands.doctor import conflicts, failures, misfits, unmended
from veco_fairseq.commands.mend_fairseq import NAME, checksum


def test_the_report_of_this_machine(run):
    result = run("scripts/doctor.py", "--load")
    assert result.returncode == 0 and result.stderr == "", result.stdout + result.stderr
    assert (
        f"{torch.get_num_threads()} in PyTorch" in result.stdout
        and "nothing is missing; fairseq and PyTorch load\n" in result.stdout
    )
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["python"].startswith(platform.python_version()) and lines["torch"].split("+")[0] in torch.__version__
    assert lines["fairseq-fixed"] == "0.12.3.1" and "processor" in lines and "bf16" in lines


@pytest.mark.parametrize("major, bf16", [(7, "no bf16: --amp"), (8, "bf16"), (9, "bf16")], ids=["V100", "A100", "H100"])
def test_gpus_with_bf16(monkeypatch, major, bf16):
    """From Ampere on, which is 8.0."""
    gpu = SimpleNamespace(name="a GPU", major=major, total_memory=40 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {0: gpu}.get)
    assert dict(doctor.gpus_of_pytorch())["GPU 0"] == f"a GPU, 40 GiB, {bf16}"


def test_conflicts_and_what_to_do():
    good = {"fairseq-fixed": "0.12.3.1", "fairseq": None}
    assert conflicts(good) == []
    (both,) = conflicts({**good, "fairseq": "0.12.2"})
    assert "pip uninstall fairseq" in both
    for other in ("0.12.3", "0.12.3.2", "0.13"):
        (line,) = conflicts({**good, "fairseq-fixed": other})
        assert line == f"fairseq-fixed {other}: this plug-in changes parts of 0.12.3.1: install that one"
    (none,) = conflicts({**good, "fairseq-fixed": None})
    assert "setup.sh" in none


def install(folder, name, version, *requires):
    """A distribution, as pip leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    asked = "".join(f"Requires-Dist: {text}\n" for text in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asked}")


def test_what_is_missing_or_does_not_fit_is_told(tmp_path, monkeypatch):
    install(tmp_path, "veco_fairseq", "0.1.0", "fairseq-fixed==0.12.3.1", "not-there>=2", "nightly>=2.6",
            'also-not-there; extra == "gpu"')  # fmt: skip
    install(tmp_path, "nightly", "2.14.0.dev20260101")  # as new as it has to be
    install(tmp_path, "fairseq-fixed", "0.12.3.1", "omegaconf<2.4,>=2.3", "torchaudio>=0.8")
    install(tmp_path, "omegaconf", "2.0.6")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert list(misfits()) == [
        "not-there is not installed, which veco_fairseq needs: pip install 'not-there>=2'",
        "omegaconf 2.0.6 does not fit fairseq-fixed, which needs <2.4,>=2.3: pip install 'omegaconf<2.4,>=2.3'",
    ]
    install(tmp_path, "torch", "2.13.0+cpu")
    install(tmp_path, "torchaudio", "2.11.0", "torch==2.11.0")
    (audio,) = (line for line in misfits() if line.startswith("torch "))
    assert "torch 2.13.0+cpu does not fit torchaudio, which needs ==2.11.0" in audio and "pip uninstall torchaudio" in audio


@pytest.mark.parametrize("audio, torch, told", [
    ("2.11.0", "2.15.0+cu132", True), ("2.15.0", "2.15.1+cpu", False), ("2.5.0", "2.50.0", True), (None, "2.15.0", False),
    ("2.11.0", None, False),
])  # fmt: skip
def test_a_torchaudio_of_another_version_than_torch_is_told_without_loading_it(audio, torch, told):
    lines = doctor.mismatched(audio, torch)
    assert len(lines) == told
    assert all(line.startswith(f"torchaudio {audio} is of another version than torch {torch}") for line in lines)
    assert all("pip uninstall torchaudio" in line for line in lines)


def test_nothing_heavy_is_loaded_unless_asked_for(run):
    code = "import sys; from veco_fairseq.__main__ import main; sys.argv = ['veco', 'doctor']\ntry: main()\nexcept SystemExit as end: print(end.code, sorted({'torch', 'fairseq', 'numpy'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    assert result.stdout.splitlines()[-2:] == [
        "nothing is missing; doctor --load also loads fairseq and PyTorch, which takes seconds",
        "0 []",
    ]


def test_python_3_14_needs_a_mended_fairseq(monkeypatch):
    monkeypatch.setattr(doctor, "MENDED", "another")
    monkeypatch.setattr(doctor.sys, "version_info", (3, 13))
    assert unmended({"fairseq-fixed": "0.12.3.1"}) == []
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14))
    assert unmended({"fairseq-fixed": None}) == []
    (line,) = unmended({"fairseq-fixed": "0.12.3.1"})
    assert line.endswith("-m veco_fairseq mend-fairseq")
    monkeypatch.setattr(doctor, "MENDED", checksum(Path(fairseq.__path__[0]) / NAME))
    assert unmended({"fairseq-fixed": "0.12.3.1"}) == []


def broken(folder, module, error):
    """A folder for PYTHONPATH with a module that cannot be imported."""
    (folder / f"{module}.py").write_text(f"raise {error}\n")
    return str(folder)


def test_a_fairseq_that_cannot_be_imported_is_told(tmp_path):
    # as on Python 3.14 before it is mended: importing veco_fairseq would end in a traceback
    result = subprocess.run(
        [sys.executable, REPOSITORY / "scripts/doctor.py", "--load"], capture_output=True, text=True, timeout=300,
        env={"PYTHONPATH": f"{REPOSITORY}:" + broken(tmp_path, "fairseq", "ValueError('int | None is not callable')")},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, "")
    line = next(line for line in result.stdout.splitlines() if "PROBLEM" in line and "fairseq cannot" in line)
    assert "ValueError: int | None is not callable" in line
    assert ("mend-fairseq" if sys.version_info >= (3, 14) else "setup.sh") in line


def test_a_fairseq_beside_fairseq_fixed_is_told(tmp_path):
    (tmp_path / "fairseq-0.12.2.dist-info").mkdir()
    (tmp_path / "fairseq-0.12.2.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: fairseq\nVersion: 0.12.2\n")
    command = [sys.executable, REPOSITORY / "scripts/doctor.py"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env={"PYTHONPATH": f"{REPOSITORY}:{tmp_path}"})
    problems = [line for line in result.stdout.splitlines() if line.startswith("PROBLEM")]
    assert result.returncode == 1 and len(problems) == 1 and "pip uninstall fairseq, then" in problems[0]


@pytest.mark.parametrize("version, advice", [((3, 13), "scripts/setup.sh"), ((3, 14), "-m veco_fairseq mend-fairseq")])
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
