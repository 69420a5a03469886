# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Run the cases, print a table of how they ended, and how those that failed did; exit code 1 if any did."""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from malformed import Case, good
from malformed.running import error_lines, prepare, run

# modules of this package with a function cases(rng, good)
SOURCES = ("good_ones", "binaries", "texts", "results", "options", "outputs", "checkpoints")


def all_cases(seed: int, good_files: Path) -> Iterator[Case]:
    """Every case of every source."""
    for source in SOURCES:
        yield from importlib.import_module(f"malformed.{source}").cases(random.Random(f"{source} {seed}"), good_files)


def chosen(args: argparse.Namespace, good_files: Path) -> list[Case]:
    """The cases that are asked for, each kind's in their order."""
    cases = [case for case in all_cases(args.seed, good_files)
             if not args.only or any(word in f"{case.kind}: {case.name}" for word in args.only)]  # fmt: skip
    if args.each:
        rng = random.Random(args.seed)
        kinds: dict[str, list[Case]] = {}
        for case in cases:
            kinds.setdefault(case.kind, []).append(case)
        few = [rng.sample(of_kind, min(args.each, len(of_kind))) for of_kind in kinds.values()]
        cases = list(itertools.chain.from_iterable(few))
    return cases[args.skip :]


def table(counts: dict[str, Counter]) -> str:
    """A row for each kind: its cases, and how they ended."""
    rows = [("kind", "cases", "exit 0", "one line", "failed")]
    total: Counter = Counter()
    for kind, of_kind in counts.items():
        rows.append((kind, *(str(n) for n in (of_kind.total(), of_kind[0], of_kind[1], of_kind["failed"]))))
        total += of_kind
    rows.append(("all", *(str(n) for n in (total.total(), total[0], total[1], total["failed"]))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="cases whose KIND: NAME has it (or one of several)"
    )
    parser.add_argument("--each", type=int, metavar="N", help="so many of each kind, drawn by the seed")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N, to go on after them")
    parser.add_argument("--together", type=int, default=2, metavar="N", help="commands at a time (default: 2)")
    parser.add_argument("--good", type=Path, metavar="DIR", help="keep the good files there, and take those that are")
    parser.add_argument("--verbose", action="store_true", help="tell how each case ended")
    parser.add_argument("--failures", type=Path, metavar="FILE", help="write the failed ones there as JSON lines")
    args = parser.parse_args()
    started = time.time()
    prepare()
    counts: dict[str, Counter] = {}
    failures = []
    with tempfile.TemporaryDirectory(prefix="malformed-") as scratch:
        kept = args.good or Path(scratch, "good")
        kept.mkdir(parents=True, exist_ok=True)
        good.make(good.RECIPES, kept)
        made = time.time() - started
        cases = chosen(args, kept)
        for case, result, failure, seconds in run(cases, kept, Path(scratch), args.together):
            counts.setdefault(case.kind, Counter())["failed" if failure else min(result.code, 1)] += 1
            if failure or args.verbose:
                said = error_lines(result.err)[:1] or ["exit code 0"]
                print(
                    f"{'FAILED ' if failure else ''}{case.kind}: {case.name} ({seconds:.1f} s): {failure or said[0]}", flush=True
                )
            if failure:
                failures.append({"kind": case.kind, "name": case.name, "why": failure, "command": case.command,
                                 "out": result.out[-3000:], "err": result.err[-3000:]})  # fmt: skip
    if args.failures:
        args.failures.write_text("".join(json.dumps(failure) + "\n" for failure in failures))
    print(table(counts))
    print(f"seed {args.seed}, {time.time() - started:.0f} s, of them {made:.0f} s to import all and make the good files")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
