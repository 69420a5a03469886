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
from veco_fairseq.errors import UserError


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
    generate = commands.add_parser("generate", help="translation with fairseq, beside CTranslate2")
    generate.add_argument("--arch", default="veco_large", help="of random weights (default: %(default)s)")
    generate.add_argument("--decoder-layers", type=int, nargs="+", default=[3, 6, 24], metavar="N",
                          help="of random weights (default: 3 6 24)")
    generate.add_argument("--sentences", type=int, default=50, metavar="N", help="random ones (default: %(default)s)")
    generate.add_argument("--length", type=int, default=25, metavar="N",
                          help="of random sentences and their translations (default: %(default)s)")
    generate.add_argument("--checkpoint", type=Path, metavar="FILE", help="a trained model instead of random weights")
    generate.add_argument("--data", type=Path, metavar="DIR", help="... with its dict.LANG.txt")
    generate.add_argument("--sentencepiece", type=Path, metavar="MODEL", help="... and its SentencePiece model")
    generate.add_argument("--source", type=Path, metavar="FILE", help="raw text for it, and ...")
    generate.add_argument("--reference", type=Path, metavar="FILE", help="... its translation, for BLEU")
    generate.add_argument("--lang", default="de", metavar="CODE", help="of the reference (default: %(default)s)")
    generate.add_argument("--beam", type=int, default=5, metavar="N", help="(default: %(default)s)")
    generate.add_argument("--batch-size", type=int, default=32, metavar="N", help="sentences (default: %(default)s)")
    generate.add_argument("--quantization", nargs="+", default=["float32", "int8"], metavar="TYPE",
                          help="of CTranslate2 (default: float32 int8)")
    generate.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    for command in (pretrain, data, head):
        command.add_argument("--autocast", choices=["none", "bf16"], default="none", help="of camlm, or of both heads")
        command.add_argument("--vocabulary", type=int, default=250_002, metavar="N", help="(default: %(default)s)")
    generate.add_argument("--vocabulary", type=int, default=40_000, metavar="N", help="random (default: %(default)s)")
    for command in (pretrain, data, head, attention, start, generate):
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
               "attention": bench_attention, "generate": bench_generate}[args.command]
    figures = measure(args)
    if args.job:
        print(json.dumps(figures))
    elif args.json:
        hidden = ("json", "job", "root", "folder")
        options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k not in hidden}
        figures = {"options": options, **figures}
        with atomic_output(args.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def command_of(args: argparse.Namespace, job: str, **changes) -> list:
    """This command again, for one job."""
    options = {**vars(args), **changes, "job": job, "json": None}
    words = [__file__, options.pop("command")]
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        words += [] if value is None else [f"--{name.replace('_', '-')}", *map(str, values)]
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
        sizes = sizes_of(args)
        return benchmark.feed(sizes) if args.job == benchmark.FEED else benchmark.train(args.job, sizes)
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


def bench_generate(args: argparse.Namespace) -> dict:
    from veco_fairseq import benchmark

    if args.job:
        return generate_job(args)
    given = [args.checkpoint, args.data, args.sentencepiece, args.source]
    if any(given) and not all(given):
        raise UserError("--checkpoint, --data, --sentencepiece and --source: give all of them, or none")
    figures = {}
    for layers in [args.decoder_layers[:1]] if args.checkpoint else [[number] for number in args.decoder_layers]:
        with tempfile.TemporaryDirectory() as folder:
            once = {"folder": Path(folder), "decoder_layers": layers}
            jobs = {} if args.checkpoint else {"write": command_of(args, "write", **once)}
            jobs.update({t: command_of(args, "export", **once, quantization=[t]) for t in args.quantization})
            benchmark.in_turn(jobs, 1, lambda line: None)
            jobs = {"fairseq": command_of(args, "fairseq", **once)}
            for name in args.quantization:
                jobs[f"CTranslate2 {name}"] = command_of(args, "ctranslate2", **once, quantization=[name])
            results = benchmark.in_turn(jobs, args.rounds, lambda line: print(line, flush=True))
        title = str(args.checkpoint) if args.checkpoint else f"{args.arch}, {layers[0]} decoder layers, random weights"
        figures[title] = generate_table(title, results, args)
    return figures


def generate_job(args: argparse.Namespace) -> dict:
    """One job of :func:`bench_generate`."""
    from veco_fairseq import benchmark_generate as benchmark
    from veco_fairseq.data.vocabulary import load_sentencepiece
    from veco_fairseq.files import read_lines

    (name, *_), (layers, *_) = args.quantization, args.decoder_layers
    checkpoint, data = args.checkpoint or args.folder / "model.pt", args.data or args.folder
    if args.job == "write":
        benchmark.write_random_model(args.folder, args.arch, layers, args.vocabulary)
        return {"seconds": 0.0}
    if args.job == "export":
        return benchmark.export(checkpoint, data, args.folder / name, name)
    if args.checkpoint:
        pieces, lines = load_sentencepiece(args.sentencepiece), list(read_lines(args.source))
        search = benchmark.Search(1, 200, args.beam, args.batch_size)
    else:
        pieces, lines = benchmark.Words(), benchmark.random_sentences(args.sentences, args.length, args.vocabulary)
        search = benchmark.Search(args.length, args.length, args.beam, args.batch_size)
    if args.job == "fairseq":
        return benchmark.with_fairseq(checkpoint, data, pieces, lines, search, args.device)
    return benchmark.with_ctranslate2(args.folder / name, pieces, lines, search, args.device)


def generate_table(title: str, results: dict, args: argparse.Namespace) -> dict:
    """Print a line for each system, and return their figures."""
    from veco_fairseq.files import read_lines
    from veco_fairseq.scoring import score

    print(title)
    print(f"{'':22} {'sentences/s':>12} {'of fairseq':>11} {'ms alone':>9} {'sacreBLEU':>10} {'other lines':>12}")
    figures, first = {}, results["fairseq"][0]
    for name, rounds in results.items():
        found = {"sentences_a_second": statistics.median(r["sentences"] / r["seconds"] for r in rounds)}
        found["ratio"] = statistics.median(
            a["sentences"] / a["seconds"] / (b["sentences"] / b["seconds"]) for a, b in zip(rounds, results["fairseq"])
        )
        found["latency"] = statistics.median(r["latency"] for r in rounds)
        found["other"] = sum(a != b for a, b in zip(rounds[0]["translations"], first["translations"]))
        bleu = ""
        if args.reference:
            found["bleu"] = score(rounds[0]["translations"], list(read_lines(args.reference)), args.lang)["sacrebleu"]
            bleu = f"{found['bleu']['score']:.2f}"
        print(f"{name:22} {found['sentences_a_second']:12.2f} {found['ratio']:11.2f} {1000 * found['latency']:9.0f} "
              f"{bleu:>10} {found['other']:12}", flush=True)
        figures[name] = found
    return figures


def bench_head(args: argparse.Namespace) -> dict:
    from veco_fairseq import benchmark

    if args.job:
        bf16 = args.autocast == "bf16"
        return benchmark.head_memory(args.rows, args.dim, args.vocabulary, chunked=args.job != "plain", bf16=bf16)
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
