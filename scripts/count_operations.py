#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Count the operations that a training run took, from its checkpoint and its data."""

import argparse

from veco_fairseq.cli import run
from veco_fairseq.operations import count_operations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("checkpoints", nargs="+", help="of fairseq-train, whose data is still where it was")
    parser.add_argument("--sample-updates", type=int, default=20, metavar="N", help="batches to count (default: 20)")
    args = parser.parse_args()
    for checkpoint in args.checkpoints:
        counted = count_operations(checkpoint, args.sample_updates)
        print(
            f"{checkpoint}: {counted.updates:,} updates x {counted.per_update:.3g} = {counted.total:.3g} operations"
        )


if __name__ == "__main__":
    run(main)
