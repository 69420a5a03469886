#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print the results of all comparisons as Markdown tables: translation by direction, and understanding with retrieval.

--plot draws BLEU over the training pairs, and --page makes the page of all results with its picture.
"""

import argparse
import statistics
from pathlib import Path

from figures import ARMS, of_best_settings, read_results, scores, table, understood
from page import write_page

from veco_fairseq.cli import run
from veco_fairseq.errors import UserError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, help="a line of JSON for each run, as compare.sh leaves it")
    parser.add_argument(
        "--metric", choices=("sacrebleu", "chrf", "valid_loss", "updates", "seconds", "sentences_per_second"), default="sacrebleu"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also draw the first direction's figures over the pairs")
    parser.add_argument("--page", type=Path, metavar="MD", help="make the page of all results, and its picture beside it")
    parser.add_argument("--measured", metavar="TEXT", help="for --page: the machine and the date")
    args = parser.parse_args()
    if args.page and not args.measured:
        raise UserError('--page: a figure needs its machine and date: give --measured "two cores of ..., 2026-11-23"')
    runs = of_best_settings(read_results(args.results))
    if args.page:
        write_page(runs, args.page, source=str(args.results), measured=args.measured)
        print(f"wrote {args.page}")
        return
    found = scores(runs, args.metric)
    digits = 3 if args.metric == "valid_loss" else 1
    tables = [*(table(of_direction, direction, digits) for direction, of_direction in found.items()), understood(runs)]
    print("\n\n".join("\n".join(lines) for lines in tables if lines))
    if args.plot and found:
        from veco_fairseq.plots import plot_curves

        direction, of_direction = next(iter(found.items()))
        curves = {
            name: [(size, statistics.mean(of_direction[size][arm])) for size in sorted(of_direction) if arm in of_direction[size]]
            for arm, name in ARMS.items()
        }
        curves = {name: points for name, points in curves.items() if len(points) > 1}
        if not curves:
            raise UserError(f"--plot: a line needs two numbers of pairs, and no model of {direction} has them: leave it out")
        plot_curves(curves, xlabel="pairs of fine-tuning", ylabel=args.metric, title=direction, output=args.plot, log_x=True)
        print(f"wrote {args.plot}")


if __name__ == "__main__":
    run(main)
