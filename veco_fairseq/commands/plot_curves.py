# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Draw learning curves from what fairseq-train printed on validation (--log-format simple or json)."""

import argparse

from veco_fairseq.arguments import NAMED_INPUTS, OUTPUT, Parser
from veco_fairseq.named import named_files


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "logs",
        type=NAMED_INPUTS,
        nargs="+",
        metavar="NAME=FILE",
        help="a curve's name, and a file with what fairseq-train printed",
    )
    parser.add_argument(
        "--metric", nargs="+", default=["loss"], metavar="NAME", help="names of metrics in the log (default: loss)"
    )
    parser.add_argument("--train", action="store_true", help="draw the lines of training, not those of validation")
    parser.add_argument("--label", type=str, help="label of the y axis (default: the metric and its unit)")
    parser.add_argument("--title", type=str, default="Learning curves", help="title of the picture (default: %(default)s)")
    parser.add_argument("--output", type=OUTPUT, required=True, metavar="PNG", help="the picture to write; also .pdf or .svg")


def with_unit(metric: str) -> str:
    """Return a metric of the log with its unit."""
    last = metric.rsplit("_", 1)[-1]
    unit = {"loss": "bits", "ppl": "perplexity", "acc": "share that is right", "score": "%"}.get(last)
    return f"{metric} ({unit})" if unit else metric


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.curves import read_curve
    from veco_fairseq.plots import plot_curves

    curves = {
        " ".join([name] + [metric] * (len(args.metric) > 1)): read_curve(file, metric, args.train)
        for name, file in named_files(args.logs).items()
        for metric in args.metric
    }
    plot_curves(curves, ylabel=args.label or ", ".join(map(with_unit, args.metric)), title=args.title, output=args.output)
    print(f"wrote {args.output}")
