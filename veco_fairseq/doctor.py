# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What a bug report needs: versions, processor, GPU, bf16, and what is known not to go together."""

import importlib
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

PACKAGES = ("veco_fairseq", "fairseq-fixed", "torch", "numpy", "omegaconf", "hydra-core", "sentencepiece", "sacrebleu",
            "torchaudio", "ctranslate2", "transformers", "faiss-cpu", "liger-kernel", "triton", "tensorboardX")  # fmt: skip
BF16_FLAGS = ("amx_bf16", "avx512_bf16", "bf16")  # of x86 processors, and of Arm's


def version(package: str) -> str | None:
    """The version that is installed, or none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def processor() -> tuple[str, list[str]]:
    """Its name, and which of :data:`BF16_FLAGS` it has."""
    name, flags = platform.processor() or platform.machine(), []
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in lines.items()}
        name = fields.get("model name", name)
        flags = [flag for flag in BF16_FLAGS if flag in fields.get("flags", fields.get("Features", "")).split()]
    return name, flags


def report() -> Iterator[tuple[str, str]]:
    """(what, how it is), a line each."""
    import torch

    yield "python", f"{platform.python_version()} ({sys.executable})"
    for package in PACKAGES:
        yield package, version(package) or "not installed"
    name, flags = processor()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "processor", f"{name}, {cores} cores for this process, {torch.get_num_threads()} threads in PyTorch"
    yield "bf16 on it", f"{', '.join(flags)}: --autocast bf16 pays" if flags else "no instructions: --autocast bf16 is slower"
    memory = "tcmalloc" if "tcmalloc" in os.environ.get("LD_PRELOAD", "") else "the C library's (tcmalloc is faster)"
    yield "memory from", memory
    if not torch.cuda.is_available():
        yield "GPU", f"none that PyTorch {torch.__version__} can use"
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        bf16 = "bf16" if gpu.major >= 8 else "no bf16: --amp"
        yield f"GPU {number}", f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {bf16}"


def conflicts(versions: dict[str, str | None]) -> list[str]:
    """What is known not to work, each with what to do.

    Args:
        versions: of distributions, none for those that are not installed.
    """
    found = []
    if versions.get("fairseq"):
        found.append("fairseq is installed beside fairseq-fixed, and one of them hides the other: pip uninstall fairseq, "
                     "then pip install --force-reinstall --no-deps fairseq-fixed==0.12.3.1")  # fmt: skip
    if versions.get("fairseq-fixed") not in ("0.12.3.1", None):
        found.append(f"fairseq-fixed {versions['fairseq-fixed']}: this plug-in changes parts of 0.12.3.1: install that one")
    if not versions.get("fairseq-fixed"):
        found.append("fairseq-fixed is not installed: bash scripts/setup.sh, or pip install .")
    omegaconf = versions.get("omegaconf") or ""
    if omegaconf and not omegaconf.startswith("2.3"):
        found.append(f"omegaconf {omegaconf}: fairseq-fixed needs 2.3: pip install 'omegaconf==2.3.*'")
    return found


def unloadable(module: str) -> str | None:
    """Why a module cannot be imported, in a line, or none if it can."""
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever is wrong with an installation
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return None


def failures(versions: dict[str, str | None]) -> list[str]:
    """What is installed and cannot be imported, each with what to do.

    Args:
        versions: as of :func:`conflicts`.
    """
    found = []
    if versions.get("fairseq-fixed") and (reason := unloadable("fairseq")):
        advice = "bash scripts/setup.sh makes a .venv in which it can"
        if sys.version_info >= (3, 14):
            advice = f"mend it for Python 3.14 with {sys.executable} scripts/mend_fairseq.py"
        found.append(f"fairseq cannot be imported ({reason}): {advice}")
    if versions.get("torchaudio") and (reason := unloadable("torchaudio")):
        found.append(
            f"torchaudio {versions['torchaudio']} cannot be loaded beside torch {versions.get('torch')}, and transformers "
            f"loads no model meanwhile ({reason}): pip uninstall torchaudio, which nothing here needs"
        )
    return found
