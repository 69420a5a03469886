#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Draw what S has gained on H over the updates of each pre-training: bits of H minus bits of S, above 0 where S is better.

Each point is the mean over some lines of the training log, because single batches differ by more than S and H do.
"""

import argparse
import re
import statistics
from pathlib import Path

from veco_fairseq.arguments import COUNT
from veco_fairseq.cli import run
from veco_fairseq.curves import read_curve
from veco_fairseq.errors import UserError
from veco_fairseq.plots import plot_curves

NAME = re.compile(r"train\.(?P<arm>.+)\.s(?P<seed>\d+)\.log")
KINDS = {"bitext": "bitext", "mono": "adjacent monolingual segments"}

Curve = list[tuple[int, float]]  # updates, bits


def gain(log: Path, kind: str, lines: int) -> Curve | None:
    """H minus S of this kind of batch, as means over so many lines, the last one of up to twice as many; None: there is no S."""
    try:
        h, s = (dict(read_curve(log, f"{kind}_{term}_loss", training=True)) for term in ("h", "s"))
    except UserError:
        return None
    updates = sorted(h.keys() & s.keys())
    if not updates:
        return None
    starts = range(0, max(1, len(updates) - lines + 1), lines)
    parts = [updates[first : first + lines] for first in starts[:-1]] + [updates[starts[-1] :]]
    return [(part[-1], statistics.mean(h[update] - s[update] for update in part)) for part in parts]


def curves(out: Path, kind: str, lines: int) -> dict[str, Curve]:
    """The curves of all pre-trainings in the recipe's folder, by arm; with several seeds of an arm, that of the first."""
    found: dict[str, Curve] = {}
    for log in sorted(out.glob("jobs/train.*.log")):
        name = NAME.fullmatch(log.name)
        curve = gain(log, kind, lines) if name else None
        if name and curve:
            found.setdefault(name["arm"], curve)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path, help="the folder of the recipe's scripts, with jobs/train.ARM.sN.log")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="only these (default: all that have S)")
    parser.add_argument("--lines", type=COUNT, default=10, metavar="N", help="lines of the log to a point (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="the folder of gain-bitext.png and gain-mono.png"
    )
    args = parser.parse_args()
    drawn = False
    for kind, name in KINDS.items():
        found = curves(args.out, kind, args.lines)
        chosen = {arm: curve for arm, curve in found.items() if arm in (args.arms or found)}
        for arm in args.arms or ():
            if arm not in chosen:
                print(f"{arm}: no S on {name} in jobs/train.{arm}.sN.log")
        if not chosen:
            continue
        drawn = True
        args.output.mkdir(parents=True, exist_ok=True)
        picture = args.output / f"gain-{kind}.png"
        plot_curves(chosen, ylabel="H minus S (bits)", title=f"What S knows more than H: {name}", output=picture)
        ends = ", ".join(f"{arm} {curve[-1][1]:.2f}" for arm, curve in chosen.items())
        print(f"wrote {picture}; at the end: {ends}")
    if not drawn:
        raise UserError(f"{args.out / 'jobs'}: has no train.ARM.sN.log with S and H: run compare.sh first")


if __name__ == "__main__":
    run(main)
