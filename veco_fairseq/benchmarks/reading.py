# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the checks of a checkpoint cost, beside its reading by PyTorch."""

import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor

from veco_fairseq.benchmarks.training import dictionary
from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.checkpoints.integrity import Records, check_finite
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.files import atomic_output
from veco_fairseq.models.base import architecture


def load(path: Path) -> dict[str, Tensor]:
    """The model, as PyTorch alone reads it."""
    return torch.load(path, map_location="cpu", weights_only=True)["model"]


def check_crc(path: Path) -> None:
    """Compare the CRC-32 of every record."""
    records = Records(path)
    records.check(records.others + records.tensors)


JOBS: dict[str, Callable] = {"torch.load": load, "CRC-32": check_crc, "NaN, infinity": check_finite,
                             "read_checkpoint": read_checkpoint}  # fmt: skip


def write_model(path: Path, arch: str, vocabulary: int) -> None:
    """A checkpoint of random weights, without an optimizer's state."""
    options = architecture(arch)
    task = Namespace(source_dictionary=dictionary(vocabulary))
    model = ARCH_MODEL_REGISTRY[arch].build_model(options, task)
    with atomic_output(path) as temporary:
        torch.save({"args": None, "cfg": {"model": vars(options)}, "model": model.state_dict()}, temporary)


def measure(job: str, path: Path) -> dict[str, float]:
    """Do one of :data:`JOBS` with a file that the system has in memory.

    Returns:
        ``seconds`` of the clock and ``cpu_seconds`` of all processors.
    """
    arguments = (path, load(path)) if job == "NaN, infinity" else (path,)
    started, cpu_started = time.perf_counter(), time.process_time()
    JOBS[job](*arguments)
    return {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu_started}


def read(args: Namespace) -> dict:
    """``bench.py read``: print the seconds of reading and of each check, and return their medians."""
    if args.job == "write":
        write_model(args.file, args.arch, args.vocabulary)
        return {}
    if args.job:
        return measure(args.job, args.file)
    if args.file:
        read_checkpoint(args.file)  # what is no checkpoint is told in one line
    with tempfile.TemporaryDirectory() as folder:
        path = args.file or Path(folder) / f"{args.arch}.pt"
        if not args.file:
            print(f"writing a checkpoint of {args.arch}", flush=True)
            in_turn({"write": command_of(args, "write", file=path)}, 1)
        gigabytes = path.stat().st_size / 1e9
        results = in_turn({job: command_of(args, job, file=path) for job in JOBS}, args.rounds)
    figures: dict = {"gigabytes": gigabytes}
    print(f"{gigabytes:.2f} GB, median of {args.rounds} rounds: seconds, and those of all processors together")
    for job, rounds in results.items():
        figures[job] = {key: statistics.median(result[key] for result in rounds) for key in rounds[0]}
        print(f"{job:16} {figures[job]['seconds']:8.2f} {figures[job]['cpu_seconds']:8.2f}")
    checks = sum(figures[job]["seconds"] for job in ("CRC-32", "NaN, infinity"))
    figures["ratio"] = checks / figures["torch.load"]["seconds"]
    print(f"both checks take {figures['ratio']:.2f} times as long as torch.load alone")
    return figures
