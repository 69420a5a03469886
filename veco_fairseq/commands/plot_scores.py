# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Draw what veco score --json has written as bars: BLEU by language pair, each system in its own colour."""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from veco_fairseq.arguments import NAMED_INPUTS, OUTPUT, Parser
from veco_fairseq.errors import UserError
from veco_fairseq.named import named_files

FORM = "GROUP/NAME=FILE"
METRICS = {"sacrebleu": "sacreBLEU", "tokenised_bleu": "case-insensitive tokenised BLEU"}


def read_score(path: Path, metric: str) -> float:
    """Read a score from a JSON file of veco score."""
    from veco_fairseq.files import read_json

    try:
        score = float(read_json(path)[metric]["score"])
        if not 0 <= score <= 100.001:  # a translation that is all right has 100.00000000000004
            raise ValueError("no score from 0 to 100")
        return score
    except (ValueError, OverflowError, LookupError, TypeError) as error:
        raise UserError(f"{path}: has no {metric}: is it a file of veco score --json?") from error


def tell_of_older_score(score: Path, checkpoint: Path) -> None:
    """Say on standard error if a recipe's score is older than the checkpoint that its name says, as after another training."""
    if checkpoint.is_file() and checkpoint.stat().st_mtime > score.stat().st_mtime:
        print(f"{score}: is older than {checkpoint}: run evaluate.sh again to score that one", file=sys.stderr)


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("scores", type=NAMED_INPUTS, nargs="+", metavar=FORM, help="a bar's group and name, and its JSON file")
    parser.add_argument("--metric", choices=METRICS, default="sacrebleu", help="the score to draw (default: %(default)s)")
    parser.add_argument("--title", type=str, default="Test sets", help="title of the picture (default: %(default)s)")
    parser.add_argument("--output", required=True, type=OUTPUT, metavar="PNG", help="the picture to write; also .pdf or .svg")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.plots import plot_bars

    bars: dict[str, dict[str, float]] = defaultdict(dict)
    for where, file in named_files(args.scores, FORM).items():
        group, _, name = where.partition("/")
        if not (group and name):
            raise UserError(f"{where}={file}: not {FORM}")
        bars[name][group] = read_score(file, args.metric)
    plot_bars(bars, METRICS[args.metric], args.title, args.output)
    print(f"wrote {args.output}")
