#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Draw bars from what score.py --json left, one of a colour in every group: BLEU of systems by language pair."""

from collections import defaultdict
from pathlib import Path
from typing import Dict

from veco_fairseq.arguments import NAMED_INPUTS, OUTPUT, Parser
from veco_fairseq.cli import run
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json
from veco_fairseq.plots import plot_bars

METRICS = {"sacrebleu": "sacreBLEU", "tokenised_bleu": "case-insensitive tokenised BLEU"}


def read_score(path: Path, metric: str) -> float:
    """A score of score.py's JSON file."""
    try:
        score = float(read_json(path)[metric]["score"])
        if not 0 <= score <= 100:
            raise ValueError("no score from 0 to 100")
        return score
    except (ValueError, OverflowError, LookupError, TypeError) as error:
        raise UserError(f"{path}: has no {metric}: is it a file of score.py --json?") from error


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("scores", type=NAMED_INPUTS, nargs="+", metavar="GROUP/NAME=FILE",
        help="a bar's group and name, and its file")
    parser.add_argument("--metric", choices=METRICS, default="sacrebleu", help="(default: %(default)s)")
    parser.add_argument("--title", type=str, default="Test sets")
    parser.add_argument("--output", required=True, type=OUTPUT, metavar="PNG")
    args = parser.parse_args()
    bars: Dict[str, Dict[str, float]] = defaultdict(dict)
    for score in args.scores:
        where, equals, file = score.partition("=")
        group, slash, name = where.partition("/")
        if not (equals and slash):
            raise UserError(f"{score}: not GROUP/NAME=FILE")
        bars[name][group] = read_score(Path(file), args.metric)
    plot_bars(bars, METRICS[args.metric], args.title, args.output)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    run(main)
