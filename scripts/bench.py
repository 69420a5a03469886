#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measure speed and memory, ours and fairseq's own in turn in one run, and print their ratio."""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from veco_fairseq.cli import run


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    pretrain = commands.add_parser("pretrain", help="training, beside fairseq's masked_lm with its RoBERTa")
    data = commands.add_parser("data", help="one loader process, beside the training that it feeds")
    for command in (pretrain, data):
        command.add_argument("--arch", default="veco_small", help="of the model (default: %(default)s)")
        command.add_argument("--tokens", type=int, default=4096, metavar="N", help="of a batch (default: %(default)s)")
        command.add_argument("--length", type=int, default=128, metavar="N", help="of a side (default: %(default)s)")
        command.add_argument("--updates", type=int, default=3, metavar="N", help="timed a round (default: %(default)s)")
        command.add_argument("--autocast", choices=["none", "bf16"], default="none", help="of camlm")
    head = commands.add_parser("head", help="the LM head's projection and loss, beside PyTorch's plain ones")
    head.add_argument("--rows", type=int, default=8192, metavar="N", help="masked tokens (default: %(default)s)")
    head.add_argument("--dim", type=int, default=768, metavar="N", help="of the model (default: %(default)s)")
    head.add_argument("--plain-rows", type=int, default=1024, metavar="N",
                      help="for the comparison with the plain loss, whose logits must fit (default: %(default)s)")
    attention = commands.add_parser("attention", help="PyTorch's fused and plain attention, by length and type")
    attention.add_argument("--arch", default="veco_small", help="whose heads (default: %(default)s)")
    attention.add_argument("--tokens", type=int, default=2048, metavar="N", help="of a batch (default: %(default)s)")
    attention.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512], metavar="N",
                           help="of the sequences (default: 16 to 512)")
    start = commands.add_parser("start", help="how long getting ready takes, and how much memory, with much data")
    start.add_argument("--languages", type=int, default=50, metavar="N", help="(default: %(default)s)")
    start.add_argument("--pairs", type=int, default=879, metavar="N", help="of languages (default: %(default)s)")
    start.add_argument("--sentences", type=int, default=1_000_000, metavar="N",
                       help="of the largest language and pair; the k-th has a k-th of them (default: %(default)s)")
    start.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    for command in (pretrain, data, head):
        command.add_argument("--vocabulary", type=int, default=250_002, metavar="N", help="(default: %(default)s)")
    for command in (pretrain, data, head, attention, start):
        command.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: %(default)s)")
        command.add_argument("--threads", type=int, metavar="N", help="of a CPU (default: PyTorch's)")
        command.add_argument("--device", choices=["cpu", "cuda"], help="(default: a GPU, if there is one)")
        command.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
        command.add_argument("--job", help=argparse.SUPPRESS)  # one measurement in a process of its own
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    import torch

    from veco_fairseq.files import atomic_output

    if args.threads:
        torch.set_num_threads(args.threads)
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    measure = {"pretrain": bench_pretrain, "data": bench_data, "head": bench_head, "start": bench_start,
               "attention": bench_attention}[args.command]
    figures = measure(args)
    if args.job:
        print(json.dumps(figures))
    elif args.json:
        hidden = ("json", "job", "root")
        figures = {"options": {k: v for k, v in vars(args).items() if k not in hidden}, **figures}
        with atomic_output(args.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def command_of(args: argparse.Namespace, job: str, **changes) -> list:
    """This command again, for one job."""
    options = {**vars(args), **changes, "job": job, "json": None}
    words = [__file__, options.pop("command")]
    for name, value in options.items():
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return words


def sizes_of(args: argparse.Namespace):
    from veco_fairseq.benchmark import Sizes

    return Sizes(args.arch, args.vocabulary, args.tokens, args.length, args.updates, args.autocast, args.device)


def bench_pretrain(args: argparse.Namespace) -> dict:
    import torch

    from veco_fairseq import benchmark

    sizes = sizes_of(args)
    if args.job:
        return benchmark.train(args.job, sizes)
    options = benchmark.model_options(sizes)
    shape = (args.tokens, options.encoder_embed_dim, options.encoder_ffn_embed_dim)
    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        rates[name] = benchmark.matmul_rate(*shape, dtype, args.device)
        print(f"matrix products ({shape[0]} x {shape[1]} x {shape[2]}), {name}: {rates[name] / 1e9:,.0f} GFLOP/s")
    jobs = {name: command_of(args, name) for name in (benchmark.OURS, benchmark.PEER)}
    results = benchmark.in_turn(jobs, args.rounds, print)
    figures = {"matmul_rate": rates}
    print(f"{'':20} {'s/update':>9} {'TFLOP/update':>13} {'GFLOP/s':>8} {'MFU':>6} {'tokens/s':>9} {'peak GiB':>9}")
    for name, rounds in results.items():
        best = {key: rounds[0][key] for key in ("operations", "tokens", "parameters")}
        best["seconds"] = statistics.median(result["seconds"] for result in rounds)
        best["peak_bytes"] = max(result["peak_bytes"] for result in rounds)
        best["rate"] = best["operations"] / best["seconds"]
        best["mfu"] = best["rate"] / rates["bf16" if name == benchmark.OURS and args.autocast == "bf16" else "fp32"]
        figures[name] = {**best, "rounds": rounds}
        print(
            f"{name:20} {best['seconds']:9.2f} {best['operations'] / 1e12:13.2f} {best['rate'] / 1e9:8,.0f} "
            f"{best['mfu']:6.1%} {best['tokens'] / best['seconds']:9,.0f} {best['peak_bytes'] / 2**30:9.2f}"
        )
    ratios = [
        ours["operations"] / ours["seconds"] / (peer["operations"] / peer["seconds"])
        for ours, peer in zip(results[benchmark.OURS], results[benchmark.PEER])
    ]
    figures["ratio"] = statistics.median(ratios)
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"operations a second, ours to fairseq's: {figures['ratio']:.2f} (by round: {each})")
    return figures


def bench_data(args: argparse.Namespace) -> dict:
    from veco_fairseq import benchmark

    if args.job:
        return benchmark.feed(sizes_of(args)) if args.job == benchmark.FEED else benchmark.train(args.job, sizes_of(args))
    jobs = {name: command_of(args, name) for name in (benchmark.OURS, benchmark.FEED)}
    figures = {}
    for name, rounds in benchmark.in_turn(jobs, args.rounds, print).items():
        figures[name] = statistics.median(result["tokens"] / result["seconds"] for result in rounds)
        print(f"{name:10} {figures[name]:12,.0f} tokens/s")
    figures["ratio"] = figures[benchmark.FEED] / figures[benchmark.OURS]
    print(f"one loader feeds {figures['ratio']:,.1f} trainers like this")
    return figures


def bench_attention(args: argparse.Namespace) -> dict:
    from veco_fairseq import benchmark
    from veco_fairseq.models.veco import architecture

    model = architecture(args.arch)
    heads = model.encoder_attention_heads
    figures = {}
    for length in args.lengths:
        seconds = benchmark.attention(
            length, args.tokens, heads, model.encoder_embed_dim // heads, args.rounds, args.device
        )
        if not figures:
            print("length  " + "  ".join(f"{name:>11}" for name in seconds) + "   (ms, forward and backward)")
        print(f"{length:6}  " + "  ".join(f"{1000 * value:11.1f}" for value in seconds.values()), flush=True)
        figures[str(length)] = seconds
    return figures


def bench_start(args: argparse.Namespace) -> dict:
    from veco_fairseq import benchmark

    if args.job == "write":
        benchmark.write_hollow_root(args.root, args.languages, args.pairs, args.sentences)
        return {"seconds": 0.0}
    if args.job:
        return benchmark.start(args.root)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        print("writing the index files", flush=True)
        benchmark.in_turn({"write": command_of(args, "write", root=root)}, 1, lambda line: None)
        rounds = benchmark.in_turn({"start": command_of(args, "start", root=root)}, args.rounds, print)["start"]
    figures = {**rounds[0], "seconds": statistics.median(result["seconds"] for result in rounds)}
    print(
        f"{figures['sentences']:,} sentences: {figures['seconds']:.1f} s, {figures['peak_bytes'] / 1e6:,.0f} MB "
        f"({figures['sizes_bytes'] / 1e6:,.0f} MB are the sentences' sizes)"
    )
    return figures


def bench_head(args: argparse.Namespace) -> dict:
    from veco_fairseq import benchmark

    if args.job:
        return benchmark.head_memory(args.rows, args.dim, args.vocabulary, chunked=args.job != "plain")
    jobs = {
        f"chunked, {args.rows} rows": command_of(args, "chunked"),
        f"chunked, {args.plain_rows} rows": command_of(args, "chunked", rows=args.plain_rows),
        f"plain, {args.plain_rows} rows": command_of(args, "plain", rows=args.plain_rows),
    }
    results = benchmark.in_turn(jobs, args.rounds, print)
    figures = {}
    for name, rounds in results.items():
        seconds = statistics.median(result["seconds"] for result in rounds)
        peak = max(result["peak_bytes"] for result in rounds)
        figures[name] = {"seconds": seconds, "peak_bytes": peak}
        print(f"{name:22} {seconds:8.2f} s  {peak / 1e9:6.2f} GB beyond inputs, weights and gradients")
    _, ours, plain = figures.values()
    figures["ratio"] = plain["seconds"] / ours["seconds"]
    print(f"speed at {args.plain_rows} rows, ours to plain: {figures['ratio']:.2f}")
    return figures


if __name__ == "__main__":
    run(main)
