# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of what a training step is made of: matrix products, attention, the LM head with its loss."""

import resource
import statistics
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.compat import SPEED, patching
from veco_fairseq.models.base import architecture
from veco_fairseq.modules.masked_loss import masked_loss
from veco_fairseq.modules.rates import wait


def attention_seconds(length: int, args: Namespace) -> dict[str, float]:
    """Seconds of a layer's self-attention with its projections, forward and backward, by "whose, type"; the best of some.

    Args:
        length: of every sequence.
        args: ``bench.py attention``'s: ``tokens`` in all, ``arch``, whose sizes are taken, ``attention_dropout`` (None: the
            architecture's), ``rounds`` and ``device``.
    """
    model, device = architecture(args.arch), args.device
    dim, batch = model.encoder_embed_dim, max(1, args.tokens // length)
    dropout = model.attention_dropout if args.attention_dropout is None else args.attention_dropout
    attention = MultiheadAttention(dim, model.encoder_attention_heads, dropout=dropout, self_attention=True).to(device)
    states = torch.randn(length, batch, dim, device=device, requires_grad=True)
    padding = torch.zeros(batch, length, dtype=torch.bool, device=device)

    def step(dtype: torch.dtype) -> float:
        started = time.perf_counter()
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            h, _ = attention(states, states, states, key_padding_mask=padding, need_weights=False)
        h.backward(torch.ones_like(h))
        wait(device)
        return time.perf_counter() - started

    seconds: dict[str, float] = {}
    for type_name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        ours, peer = f"ours, {type_name}", f"fairseq, {type_name}"
        seconds |= {ours: float("inf"), peer: float("inf")}
        for _ in range(args.rounds + 1):  # the first one also does what only a first call does
            seconds[ours] = min(seconds[ours], step(dtype))
            with patching.without(SPEED):
                seconds[peer] = min(seconds[peer], step(dtype))
    return seconds


def plain_loss(rows: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """What :func:`~veco_fairseq.modules.masked_loss.masked_loss` gives, with PyTorch's own, all logits at a time."""
    logits = torch.nn.functional.linear(rows, weight, bias).float()
    return torch.nn.functional.cross_entropy(logits, gold, reduction="none"), logits.argmax(1).eq(gold)


def peak_bytes(device: str) -> int:
    """Of memory, of the process or the GPU, so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    try:
        return status_bytes("VmHWM")
    except (OSError, IndexError):  # no such file or line; getrusage's peak begins at that of the parent process
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def status_bytes(name: str) -> int:
    """Of memory, of the process, as Linux tells them in /proc/self/status: "VmHWM" at its peak, "RssAnon" without files."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(text.partition(f"{name}:")[2].split()[0])


def head_memory(args: Namespace) -> dict[str, float]:
    """Forward and backward of the LM head's projection and loss, ours or PyTorch's plain one.

    Args:
        args: ``bench.py head``'s: ``rows`` (masked tokens), ``dim`` (their dimensions), ``vocabulary`` (rows of the
            embeddings), ``job`` ("chunked", which is ours, or "plain"), ``autocast`` and ``device``.

    Returns:
        ``seconds``, and ``peak_bytes`` beyond inputs, weights and their gradients.
    """
    device, shapes = args.device, ((args.rows, args.dim), (args.vocabulary, args.dim), (args.vocabulary,))
    parameters = [(0.02 * torch.randn(shape, device=device)).requires_grad_() for shape in shapes]
    gold = torch.randint(args.vocabulary, (args.rows,), device=device)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    rows, weight, bias = parameters
    function = masked_loss if args.job == "chunked" else plain_loss

    def step(count: int) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=args.autocast == "bf16"):
            nll, _ = function(rows[:count], weight, bias, gold[:count])
        nll.sum().backward()
        wait(device)

    step(8)  # what only a first call does
    before = peak_bytes(device)
    started = time.perf_counter()
    step(args.rows)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_bytes": peak_bytes(device) - before}


def attention(args: Namespace) -> dict:
    """``bench.py attention``: print a line for each length, and return the seconds."""
    figures: dict[str, Any] = {}
    for length in args.lengths:
        seconds = attention_seconds(length, args)
        if not figures:
            print("length  " + "  ".join(f"{name:>11}" for name in seconds) + "   (ms, forward and backward)")
        print(f"{length:6}  " + "  ".join(f"{1000 * value:11.1f}" for value in seconds.values()), flush=True)
        figures[str(length)] = seconds
    return figures


def head(args: Namespace) -> dict:
    """``bench.py head``: print a line for each number of rows, and return the figures."""
    if args.job:
        return head_memory(args)
    jobs = {
        f"chunked, {args.rows} rows": command_of(args, "chunked"),
        f"chunked, {args.plain_rows} rows": command_of(args, "chunked", rows=args.plain_rows),
        f"plain, {args.plain_rows} rows": command_of(args, "plain", rows=args.plain_rows),
    }
    results = in_turn(jobs, args.rounds)
    figures: dict[str, Any] = {}
    for name, rounds in results.items():
        seconds = statistics.median(result["seconds"] for result in rounds)
        peak = max(result["peak_bytes"] for result in rounds)
        figures[name] = {"seconds": seconds, "peak_bytes": peak}
        print(f"{name:22} {seconds:8.2f} s  {peak / 1e9:6.2f} GB beyond inputs, weights and gradients")
    ours, plain = (figures[f"{job}, {args.plain_rows} rows"] for job in ("chunked", "plain"))  # which may be all there are
    figures["ratio"] = plain["seconds"] / ours["seconds"]
    print(f"speed at {args.plain_rows} rows, ours to plain: {figures['ratio']:.2f}")
    return figures
