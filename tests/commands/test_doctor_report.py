# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What veco doctor reports of other machines than this one."""

import subprocess
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch

from veco_fairseq.commands import doctor
from veco_fairseq.modules import rates

X86 = "processor\t: 0\nmodel name\t: A: Xeon\nflags\t\t: fpu avx512_bf16 amx_bf16\n"
# Those on whose versions results and speed depend, and the optional ones that other commands use.
PACKAGES = "veco_fairseq fairseq-fixed torch numpy omegaconf hydra-core sentencepiece sacrebleu ctranslate2 transformers faiss-cpu " \
    "py3langid liger-kernel triton tensorboardX"  # fmt: skip
ARM = "processor\t: 0\nFeatures\t: fp bf16\n"


@pytest.mark.parametrize("cpuinfo, expected", [
    (X86, ("A: Xeon", ["amx_bf16", "avx512_bf16"])), (X86.replace("bf16", "none"), ("A: Xeon", [])), (ARM, ("a chip", ["bf16"])),
    (None, ("a chip", [])),
])  # fmt: skip
def test_the_processor(monkeypatch, tmp_path, cpuinfo, expected):
    """By its own name, or that of its kind where the system tells none."""
    if cpuinfo:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(doctor, "Path", lambda path: tmp_path / path.removeprefix("/proc/"))
    monkeypatch.setattr(doctor.platform, "processor", lambda: "a chip")
    assert doctor.processor() == expected
    monkeypatch.setattr(doctor.platform, "processor", lambda: "")
    monkeypatch.setattr(doctor.platform, "machine", lambda: "a chip")
    assert doctor.processor() == expected


@pytest.mark.parametrize("flags, preload, bf16, memory", [
    (["amx_bf16", "bf16"], "/lib/libtcmalloc.so.4", "amx_bf16, bf16: --autocast bf16 pays", "tcmalloc"),
    ([], "/lib/other.so", "no instructions: --autocast bf16 is slower; the processor emulates it",
     "the C library's (tcmalloc is faster)"),
])  # fmt: skip
def test_the_lines_of_the_report(monkeypatch, flags, preload, bf16, memory):
    monkeypatch.setattr(doctor, "processor", lambda: ("a chip", flags))
    monkeypatch.setattr(rates, "bf16_on_cpu", lambda: (bool(flags), "measured"))
    monkeypatch.setattr(doctor, "version", {"torch": "2.6"}.get)
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    monkeypatch.setenv("LD_PRELOAD", preload)
    monkeypatch.setattr(doctor, "gpus_of_driver", lambda: [("GPU", "the driver's")])
    monkeypatch.setattr(doctor, "gpus_of_pytorch", lambda: [("GPU", "PyTorch's")])
    for load, gpu in ((False, "the driver's"), (True, "PyTorch's")):
        found = dict(doctor.report(load))
        assert (found["torch"], found["numpy"], found["GPU"]) == ("2.6", "not installed", gpu)
        assert set(PACKAGES.split()) <= found.keys()
        assert found["processor"] == "a chip, 3 cores for this process"
        measured = f"{bf16.split(';')[0]}; measured"
        assert (found["bf16 on it"], found["memory from"]) == (measured if load else bf16, memory)


@pytest.mark.parametrize("flags", [["amx_bf16", "avx512_bf16"], ["avx512_bf16"], []])
def test_whether_bf16_pays_is_measured_where_the_instructions_do_not_tell(monkeypatch, flags):
    if len(flags) == 1:
        asks = "--autocast bf16 pays on some processors: doctor --load measures whether this is one"
        assert doctor.whether_bf16_pays(flags, load=False) == asks
    for pays, words in ((True, "pays"), (False, "is slower")):
        monkeypatch.setattr(rates, "bf16_on_cpu", lambda: (pays, "7 and 9"))
        assert doctor.whether_bf16_pays(flags, load=True) == f"--autocast bf16 {words}; 7 and 9"


@pytest.mark.parametrize("said, expected", [
    ("A100, 40960 MiB\nL4, 23034 MiB \n", [("GPU 0", "A100, 40960 MiB"), ("GPU 1", "L4, 23034 MiB")]),
    ("", [("GPU", "NVIDIA's driver lists none")]),
    (FileNotFoundError("nvidia-smi"), [("GPU", "NVIDIA's driver lists none")]),
    (subprocess.TimeoutExpired("nvidia-smi", 20), [("GPU", "NVIDIA's driver lists none")]),
])  # fmt: skip
def test_gpus_of_the_driver(monkeypatch, said, expected):
    def run(command, **options):
        assert command == ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
        assert options == {"capture_output": True, "text": True, "timeout": 20}  # seconds: a driver may hang
        if isinstance(said, Exception):
            raise said
        return SimpleNamespace(stdout=said)

    monkeypatch.setattr(doctor.subprocess, "run", run)
    assert list(doctor.gpus_of_driver()) == expected


def test_no_gpu_that_pytorch_can_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert list(doctor.gpus_of_pytorch())[1:] == [("GPU", f"none that PyTorch {torch.__version__} can use")]


@pytest.mark.parametrize("load, problems, told", [
    (False, (), "nothing is missing; doctor --load also loads fairseq and PyTorch, which takes seconds\n"),
    (True, (), "nothing is missing; fairseq and PyTorch load\n"),
    (False, ("conflicts", "misfits", "mismatched", "unmended"), "".join(
        f"PROBLEM        of {name}\n" for name in ("conflicts", "misfits", "mismatched", "unmended"))),
    (True, ("failures",), "PROBLEM        of failures\n"), (True, ("mismatched", "unmended"), "nothing is missing; fairseq and PyTorch load\n"),
])  # fmt: skip
def test_every_kind_of_problem_is_told(monkeypatch, capsys, load, problems, told):
    monkeypatch.setattr(doctor, "report", lambda load: [("python", "3.12")])
    for name in ("conflicts", "misfits", "mismatched", "unmended", "failures"):
        monkeypatch.setattr(doctor, name, lambda *arguments, name=name: [f"of {name}"] if name in problems else [])
    assert doctor.main(Namespace(load=load)) == (1 if "PROBLEM" in told else 0)
    assert capsys.readouterr().out == f"python         3.12\n{told}"


def test_why_a_module_cannot_be_imported(monkeypatch):
    def fail(module):
        raise ValueError("a\n  b" + "c" * 300)

    assert doctor.unloadable("json") is None
    monkeypatch.setattr(doctor.importlib, "import_module", fail)
    assert doctor.unloadable("json") == "ValueError: a b" + "c" * 185  # 200 characters
