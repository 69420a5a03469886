# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Count the operations that a training run took, from its checkpoint and its data."""

import argparse
import math

from veco_fairseq.arguments import INPUT, Number, Parser


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "checkpoints", type=INPUT, nargs="+", help="checkpoints of fairseq-train, whose data is still where it was"
    )
    parser.add_argument(
        "--sample-updates",
        type=Number(int, least=1, most=1_000_000),
        default=20,
        metavar="N",
        help="batches to count (default: 20); more batches make the error smaller",
    )
    parser.add_argument(
        "--equal", action="store_true", help="print how many updates of the first run cost as much as all runs together"
    )


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.checkpoints.skeleton import making_sense_of
    from veco_fairseq.cost.flops import count_operations

    if args.equal:
        with making_sense_of(", ".join(map(str, args.checkpoints))):
            runs = [count_operations(str(checkpoint), args.sample_updates) for checkpoint in args.checkpoints]
        print(round(sum(run.total for run in runs) / runs[0].per_update))
        return
    for checkpoint in args.checkpoints:
        with making_sense_of(checkpoint):
            counted = count_operations(str(checkpoint), args.sample_updates)
        error = "" if math.isnan(counted.error) else f" (± {counted.error:.1g})"
        cost = f"{counted.updates:,} updates x {counted.per_update:.3g}{error}"
        print(f"{checkpoint}: {cost} = {counted.total:.3g} operations")
