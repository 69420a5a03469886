# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Draw the accuracy of retrieval by layer, one line for each model, from what veco retrieve tatoeba --json has written."""

import argparse

from veco_fairseq.arguments import NAMED_INPUTS, OUTPUT, Parser
from veco_fairseq.named import named_files


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("figures", type=NAMED_INPUTS, nargs="+", metavar="NAME=FILE", help="a model's name, and its JSON file")
    parser.add_argument("--pair", default="mean", metavar="NAME", help="a name of --pairs (default: mean, over all pairs)")
    parser.add_argument(
        "--title", type=str, default="Retrieval by layer (0: the embeddings)", help="title of the picture (default: %(default)s)"
    )
    parser.add_argument("--output", required=True, type=OUTPUT, metavar="PNG", help="the picture to write; also .pdf or .svg")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.plots import plot_curves
    from veco_fairseq.retrieval.tatoeba import read_accuracies

    curves = {}
    for name, file in named_files(args.figures).items():
        accuracies = read_accuracies(file, args.pair)
        curves[name] = [(layer, 50 * sum(directions)) for layer, directions in accuracies.items()]
    plot_curves(curves, ylabel="accuracy, mean of both directions (%)", title=args.title, output=args.output, xlabel="layer")
    print(f"wrote {args.output}")
