# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print versions, processor, GPU and bf16 support, and what is missing or does not fit. Send this along with a question."""

import argparse
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from veco_fairseq.arguments import Parser
from veco_fairseq.commands.mend_fairseq import MENDED, NAME, checksum
from veco_fairseq.compat import FAIRSEQ
from veco_fairseq.parallel import default_workers

PACKAGES = ("veco_fairseq", "fairseq-fixed", "torch", "numpy", "omegaconf", "hydra-core", "sentencepiece", "sacrebleu",
            "torchaudio", "ctranslate2", "transformers", "faiss-cpu", "py3langid", "liger-kernel", "triton", "tensorboardX")  # fmt: skip
BF16_FLAGS = ("amx_bf16", "avx512_bf16", "bf16")  # of x86 processors, and of Arm's
# fairseq-fixed declares it, and nothing on the text path imports it.
NOT_NEEDED = ("torchaudio",)


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("--load", action="store_true", help="also load fairseq and PyTorch, to find what is installed and broken")


def version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def processor() -> tuple[str, list[str]]:
    """Return the processor's name, and those of :data:`BF16_FLAGS` that it has."""
    name, flags = platform.processor() or platform.machine(), []
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in lines.items()}
        name = fields.get("model name", name)
        flags = [flag for flag in BF16_FLAGS if flag in fields.get("flags", fields.get("Features", "")).split()]
    return name, flags


def report(load: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of the report as (name, value); with ``load`` PyTorch tells the threads and GPUs."""
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for package in PACKAGES:
        yield package, version(package) or "not installed"
    name, flags = processor()
    yield "processor", f"{name}, {default_workers()} cores for this process"
    yield "bf16 on it", f"{', '.join(flags) or 'no instructions'}: {whether_bf16_pays(flags, load)}"
    memory = "tcmalloc" if "tcmalloc" in os.environ.get("LD_PRELOAD", "") else "the C library's (tcmalloc is faster)"
    yield "memory from", memory
    yield from gpus_of_pytorch() if load else gpus_of_driver()


def whether_bf16_pays(flags: list[str], load: bool) -> str:
    """Return what is known of bf16 on a processor with these flags; with ``load`` PyTorch measures it."""
    if load:
        from veco_fairseq.modules.rates import bf16_on_cpu

        pays, rates = bf16_on_cpu()
        return f"--autocast bf16 {'pays' if pays else 'is slower'}; {rates}"
    if "amx_bf16" in flags:
        return "--autocast bf16 pays"
    if flags:
        return "--autocast bf16 pays on some processors: doctor --load measures whether this is one"
    return "--autocast bf16 is slower; the processor emulates it"


def gpus_of_driver() -> Iterator[tuple[str, str]]:
    """Yield the GPUs that NVIDIA's driver lists, without PyTorch."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    for number, line in enumerate(said.splitlines()):
        yield f"GPU {number}", line.strip()
    if not said.strip():
        yield "GPU", "NVIDIA's driver lists none"


def gpus_of_pytorch() -> Iterator[tuple[str, str]]:
    """Yield the threads and GPUs that PyTorch can use."""
    import torch

    yield "threads", f"{torch.get_num_threads()} in PyTorch"
    if not torch.cuda.is_available():
        yield "GPU", f"none that PyTorch {torch.__version__} can use"
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        bf16 = "bf16" if gpu.major >= 8 else "no bf16: --amp"
        yield f"GPU {number}", f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {bf16}"


def mismatched(audio: str | None, torch: str | None) -> list[str]:
    """Return a line if torchaudio is of another version than torch, which it need not say itself."""
    if not audio or not torch or audio.split(".")[:2] == torch.split(".")[:2]:
        return []
    why = f"torchaudio {audio} is of another version than torch {torch}, and transformers may load no model beside it"
    return [f"{why}: pip uninstall torchaudio, which nothing here needs"]


def misfits() -> Iterator[str]:
    """Yield each requirement of this package, fairseq-fixed and torchaudio that is missing or has a wrong version."""
    for package in ("veco_fairseq", "fairseq-fixed", "torchaudio"):
        for text in (metadata.requires(package) or []) if version(package) else []:
            asked = Requirement(text)
            if asked.name in NOT_NEEDED or (asked.marker and not asked.marker.evaluate({"extra": ""})):
                continue
            found = version(asked.name)
            if found is None:
                yield f"{asked.name} is not installed, which {package} needs: pip install '{asked.name}{asked.specifier}'"
            elif not asked.specifier.contains(found, prereleases=True):
                advice = f"pip install '{asked.name}{asked.specifier}'"
                if package == "torchaudio":
                    advice = "until then transformers loads no model: pip uninstall torchaudio, which nothing here needs"
                yield f"{asked.name} {found} does not fit {package}, which needs {asked.specifier}: {advice}"


def conflicts(versions: dict[str, str | None]) -> list[str]:
    """Return what is known not to work, each with what to do.

    Args:
        versions: of distributions; None for those that are not installed.
    """
    found = []
    if versions.get("fairseq"):
        found.append("fairseq is installed beside fairseq-fixed, and one hides the other: pip uninstall fairseq, "
                     f"then pip install --force-reinstall --no-deps fairseq-fixed=={FAIRSEQ}")  # fmt: skip
    if versions.get("fairseq-fixed") not in (FAIRSEQ, None):
        found.append(f"fairseq-fixed {versions['fairseq-fixed']}: this plug-in changes parts of {FAIRSEQ}: install that one")
    if not versions.get("fairseq-fixed"):
        found.append("fairseq-fixed is not installed: bash scripts/setup.sh, or pip install .")
    return found


def unmended(versions: dict[str, str | None]) -> list[str]:
    """Return a line if fairseq is on Python 3.14 and has not been mended.

    Args:
        versions: as in :func:`conflicts`.
    """
    if sys.version_info < (3, 14) or not versions.get("fairseq-fixed"):
        return []
    path = Path(str(metadata.distribution("fairseq-fixed").locate_file(f"fairseq/{NAME}")))
    if path.is_file() and checksum(path) == MENDED:
        return []
    return [f"fairseq cannot be imported on Python 3.14: mend it with {sys.executable} -m veco_fairseq mend-fairseq"]


def unloadable(module: str) -> str | None:
    """Return why a module cannot be imported, in one line, or None if it can."""
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever is wrong with an installation
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return None


def failures(versions: dict[str, str | None]) -> list[str]:
    """Return what is installed but cannot be imported, each with what to do.

    Args:
        versions: as in :func:`conflicts`.
    """
    found = []
    if versions.get("fairseq-fixed") and (reason := unloadable("fairseq")):
        advice = "bash scripts/setup.sh makes a .venv in which it can"
        if sys.version_info >= (3, 14):
            advice = f"mend it for Python 3.14 with {sys.executable} -m veco_fairseq mend-fairseq"
        found.append(f"fairseq cannot be imported ({reason}): {advice}")
    if versions.get("torchaudio") and (reason := unloadable("torchaudio")):
        found.append(
            f"torchaudio {versions['torchaudio']} cannot be loaded beside torch {versions.get('torch')}, and transformers "
            f"loads no model until then ({reason}): pip uninstall torchaudio, which nothing here needs"
        )
    return found


def main(args: argparse.Namespace) -> int:
    versions = {package: version(package) for package in (*PACKAGES, "fairseq")}
    for what, how in report(args.load):
        print(f"{what:14} {how}")
    tried = failures(versions) if args.load else [*mismatched(versions["torchaudio"], versions["torch"]), *unmended(versions)]
    problems = [*conflicts(versions), *misfits(), *tried]
    for problem in problems:
        print(f"PROBLEM        {problem}")
    if not problems:
        more = "fairseq and PyTorch load" if args.load else "doctor --load also loads fairseq and PyTorch, which takes seconds"
        print(f"nothing is missing; {more}")
    return 1 if problems else 0
