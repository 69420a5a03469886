# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Trainings measured in turn: a table of their speed, of the machine's rate, and of ours to each peer's."""

import statistics
from argparse import Namespace
from typing import Any

import torch

from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.checkpoints.huggingface import import_transformers
from veco_fairseq.modules.rates import matmul_rate

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def in_bf16(args: Namespace, *, of_fairseq: bool) -> bool:
    """Return whether a job multiplies in bf16; ``of_fairseq``, whose --amp does nothing on a CPU, or another's."""
    return args.autocast == "bf16" and (args.device == "cuda" or not of_fairseq)


def measured_rates(shape: tuple[int, int, int], device: str) -> dict[str, float]:
    """Return the rates of a product in fp32 and in bf16, in operations a second."""
    return {name: matmul_rate(*shape, dtype=dtype, device=device) for name, dtype in DTYPES.items()}


def compared(args: Namespace, names: tuple[str, str, str], options: Namespace) -> dict:
    """Measure ours and its peers in turn, print a line for each and the ratios, and return the figures.

    Args:
        args: the command's.
        names: of the jobs: ours, fairseq as it is, and ``transformers``, which is left out where it is not installed.
        options: of the model.
    """
    shape = (args.tokens, options.encoder_embed_dim, options.encoder_ffn_embed_dim)
    before = measured_rates(shape, args.device)
    ours, of_fairseq, _ = names
    peers = names[1:] if import_transformers() is not None else [of_fairseq]
    results = in_turn({name: command_of(args, name) for name in (ours, *peers)}, args.rounds, peers)
    # A machine that others share can be at half its rate for minutes, and then each share would be twice as large.
    rates = {name: max(before[name], rate) for name, rate in measured_rates(shape, args.device).items()}
    for name, rate in rates.items():
        print(f"matrix products ({' x '.join(map(str, shape))}), {name}: {rate / 1e9:,.0f} GFLOP/s")
    figures: dict[str, Any] = {"matmul_rate": rates}
    print(f"{'':34} {'s/update':>9} {'TFLOP/update':>13} {'GFLOP/s':>8} {'MFU':>6} {'tokens/s':>9} {'peak GiB':>9}")
    for name, rounds in results.items():
        best = {key: rounds[0][key] for key in ("operations", "tokens", "parameters")}
        best["seconds"] = statistics.median(result["seconds"] for result in rounds)
        best["peak_bytes"] = max(result["peak_bytes"] for result in rounds)
        best["rate"] = best["operations"] / best["seconds"]
        best["mfu"] = best["rate"] / rates["bf16" if in_bf16(args, of_fairseq=name == of_fairseq) else "fp32"]
        figures[name] = {**best, "rounds": rounds}
        print(
            f"{name:34} {best['seconds']:9.2f} {best['operations'] / 1e12:13.2f} {best['rate'] / 1e9:8,.0f} "
            f"{best['mfu']:6.1%} {best['tokens'] / best['seconds']:9,.0f} {best['peak_bytes'] / 2**30:9.2f}"
        )
    figures["ratios"] = {}
    for peer in filter(results.__contains__, peers):
        ratios = [
            mine["operations"] / mine["seconds"] / (theirs["operations"] / theirs["seconds"])
            for mine, theirs in zip(results[ours], results[peer])
        ]
        figures["ratios"][peer] = statistics.median(ratios)
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"operations a second, {ours} to {peer}: {figures['ratios'][peer]:.2f} (by round: {each})")
    return figures
