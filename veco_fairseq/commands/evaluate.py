# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Evaluate fine-tuned models by language, and put tasks together as XTREME does."""

import argparse
from glob import escape
from pathlib import Path

from veco_fairseq.arguments import COUNT, DATA, FROM_0, INPUT, NAMED_INPUTS, OUTPUT, OUTPUT_FOLDER, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="predict a test set, and print the figures by language")
    one.add_argument(
        "checkpoints",
        type=INPUT,
        nargs="+",
        metavar="CKPT",
        help="a checkpoint of --task veco_nlu, with its dict.txt and sentencepiece.bpe.model beside it; give one for each seed",
    )
    one.add_argument("--data", required=True, type=DATA, metavar="DIR", help="folder of the files SPLIT-LANG.{tsv,conllu,json}")
    one.add_argument("--split", default="test", help="the set to predict (default: %(default)s)")
    one.add_argument("--langs", metavar="L,L,...", help="languages (default: all found)")
    one.add_argument("--answer-metric", choices=["squad", "mlqa"], help="how to compare answers (default: as trained)")
    one.add_argument("--max-tokens", type=COUNT, default=8192, metavar="N", help="tokens of a batch (default: %(default)s)")
    one.add_argument(
        "--predictions",
        type=OUTPUT_FOLDER,
        metavar="DIR",
        help="write the predictions to this folder; those of several checkpoints go to its folders 1, 2, ...",
    )
    one.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    all_tasks = commands.add_parser("table", help="put tasks together, with their average")
    all_tasks.add_argument(
        "results",
        type=NAMED_INPUTS,
        nargs="+",
        metavar="TASK=FILE,...",
        help="JSON files of veco evaluate run or veco retrieve (for BUCC one for each language); tasks: xnli, pawsx, udpos, "
        "panx, xquad, mlqa, tydiqa, bucc, tatoeba",
    )
    all_tasks.add_argument(
        "--layer",
        type=FROM_0,
        default=-1,
        metavar="N",
        help="Tatoeba's layer (default: the last). As in XTREME, English is the target of each pair and "
        "searches the other language",
    )
    all_tasks.add_argument("--plot", type=OUTPUT, metavar="PNG", help="draw bars of each task by language")
    for command in (one, all_tasks):
        command.add_argument("--json", type=OUTPUT, metavar="FILE", help="write the figures to this file")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.files import write_json

    figures = {"run": evaluate_one, "table": put_together}[args.command](args)
    if args.json:
        write_json(args.json, figures)


def evaluate_one(args: argparse.Namespace):
    """Print and return the figures of each checkpoint."""
    from veco_fairseq.inference.evaluation import evaluate, write_predictions
    from veco_fairseq.inference.finetuned import load_finetuned
    from veco_fairseq.understanding.xtreme import Result, table

    options = {"valid_langs": args.langs}
    if args.answer_metric:
        options["answer_metric"] = args.answer_metric
    seeds, written, kinds = [], [], []
    alone: dict[str, int] = {}
    for number, checkpoint in enumerate(args.checkpoints, start=1):
        evaluated = evaluate(load_finetuned(checkpoint, args.data, args.cpu, **options), args.split, args.max_tokens)
        kinds.append(evaluated.nlu_task)
        if kinds[0] != kinds[-1]:
            first = args.checkpoints[0]
            raise UserError(f"{checkpoint}: is a model for {kinds[-1]}, and {first} one for {kinds[0]}: evaluate them one by one")
        if args.predictions:
            folder = args.predictions / str(number) if len(args.checkpoints) > 1 else args.predictions
            written += write_predictions(evaluated, folder, args.split)
        seeds.append(evaluated.figures)
        alone |= evaluated.alone  # which only a model that is plugged in has
    if not any(seeds):
        print(f"{args.data}: the {args.split} set has no labels, so that there is nothing to count")
    elif not Result(seeds).langs:
        print(f"{args.data}: no language has figures of every model, so that there is no table: evaluate them one by one")
    else:
        print(table(Result(seeds)))
    if alone:
        counts = ", ".join(f"{lang} {count:,}" for lang, count in alone.items())
        print(f"predicted without a translation to look at: {counts}")
    if args.predictions:
        there = (path for folder in ("", "*/") for path in args.predictions.glob(f"{folder}{escape(args.split)}-*"))
        if kept := sorted(str(path.relative_to(args.predictions)) for path in there if path not in written):
            print(f"{args.predictions}: also has predictions that are not of this run: {', '.join(kept)}")
    return {"split": args.split, "checkpoints": list(map(str, args.checkpoints)), "seeds": seeds, "without_translation": alone}


def put_together(args: argparse.Namespace):
    """Print and return every task's table, and the averages."""
    from veco_fairseq.plots import plot_bars
    from veco_fairseq.understanding.xtreme import TASKS, read_task, spread, summary, table

    results = {}
    for argument in args.results:
        task, equals, files = argument.partition("=")
        if not equals or task not in TASKS:
            raise UserError(f"{argument}: not TASK=FILE, with a task of {', '.join(TASKS)}")
        if task in results:
            raise UserError(f"{argument}: there is a {task} before it: give each task once")
        paths = [files] if Path(files).is_file() else files.split(",")
        results[task] = read_task(task, list(map(Path, paths)), args.layer)
    if args.layer >= 0 and "tatoeba" not in results:
        raise UserError(f"--layer {args.layer}: is Tatoeba's, which is not among the tasks: leave it out")
    results = {task: results[task] for task in TASKS if task in results}
    for task, result in results.items():
        print(f"{task}{result.note and f' ({result.note})'}\n{table(result)}\n")
    averages = summary(results)
    print("\n".join(f"{name:8} {spread([value])}" for name, value in averages.items()))
    if args.plot:
        bars = {task: {lang: sum(result.of(result.names[0], lang)) / len(result.seeds) for lang in result.langs}
                for task, result in results.items()}  # fmt: skip
        plot_bars(bars, "accuracy or F1 (%)", "XTREME tasks by language", args.plot)
    notes = {task: result.note for task, result in results.items() if result.note}
    return {"tasks": {task: result.seeds for task, result in results.items()}, "averages": averages, "notes": notes}
