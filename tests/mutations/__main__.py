# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Make the changes one at a time, run the tests that reach each, and print a table by area."""

import argparse
import json
import math
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutations import AREAS, Change, by_hand, reasons
from mutations.reach import Reach, measure
from mutations.report import table
from mutations.running import copy_repository, run

try:
    import coverage  # noqa: F401

    from mutations.by_tool import draw
except ImportError as error:
    sys.exit(f"mutations: error: {error.name} is not installed: pip install 'cosmic-ray>=8.4' 'coverage>=7.13'")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="for copies, notes and results; goes on with what is there"
    )
    parser.add_argument("--area", action="append", choices=list(AREAS), help="(or several; default: all)")
    parser.add_argument("--tool", type=int, default=15, metavar="N", help="changes of an area that the tool makes (default: 15)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hand", type=int, metavar="N", help="of those made by hand, drawn by the seed (default: all)")
    parser.add_argument(
        "--skip",
        type=int,
        default=0,
        metavar="N",
        help="leave out the first N of an area and a kind, which a run before has tried",
    )
    parser.add_argument("--together", type=int, default=2, metavar="N", help="runs at a time (default: 2)")
    parser.add_argument("--within", type=float, default=math.inf, metavar="S",
                        help="of each change's tests, quick ones first, those that take so many seconds (default: all)")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="those that were not noticed: with the tests as they are now")
    parser.add_argument("--table", action="store_true", help="print the table of what was run, and nothing else")
    args = parser.parse_args()
    out, known = args.out.resolve(), reasons()
    out.mkdir(parents=True, exist_ok=True)
    results_file = out / "results.jsonl"
    results = {}
    if results_file.exists():
        results = {entry["key"]: entry for entry in map(json.loads, results_file.read_text(encoding="utf-8").splitlines())}
    if not args.table:
        for result in run_all(args, out, results):
            results[result["key"]] = result
            with open(results_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
            if result["how"] != "noticed" and result["key"] not in known:
                print(
                    f"{result['how']}: {result['file']}:{result['line']} [{result['key']}] {result['what']}",
                    *result["diff"],
                    sep="\n    ",
                    flush=True,
                )
    print(table(list(results.values()), known))
    return 0


def run_all(args: argparse.Namespace, out: Path, results: dict[str, dict]):
    """Those that were not run yet, or not noticed, as they end."""
    areas = args.area or list(AREAS)
    hand, changes = list(by_hand()), []
    for area in areas:
        of_area = [change for change in hand if change.area == area]
        random.Random(f"{area} {args.seed}").shuffle(of_area)
        last = None if args.hand is None else args.skip + args.hand
        changes += [*of_area[args.skip : last], *list(draw(area, args.skip + args.tool, args.seed))[args.skip :]]
    new = {change.key: change for change in changes}  # the same can come twice
    wanted = [change for key, change in new.items() if key not in results or (args.again and results[key]["how"] != "noticed")]
    suites: SimpleQueue = SimpleQueue()
    for number in range(args.together):
        suites.put(copy_repository(out / f"suite{number}"))
    measure(out / "suite0", out / "notes", args.together)
    reach = Reach(out / "suite0", out / "notes")
    print(f"{len(wanted)} changes to make; {len(reach.seconds)} tests, of which {len(reach.failed)} fail as it is", flush=True)

    def one(change: Change) -> dict:
        suite = suites.get()
        try:
            outcome = run(change, suite, reach, args.within)
        finally:
            suites.put(suite)
        return {"key": change.key, "area": change.area, "file": change.file, "line": change.lines[0], "what": change.what,
                "origin": change.origin, "diff": change.diff, **outcome._asdict()}  # fmt: skip

    with ThreadPoolExecutor(args.together) as pool:
        yield from pool.map(one, wanted)


if __name__ == "__main__":
    sys.exit(main())
