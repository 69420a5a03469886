# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""All trials in turn, noted as they are made; the table and the JSON file of them."""

import json
import platform
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from veco_fairseq.commands.doctor import processor
from veco_fairseq.errors import UserError
from veco_fairseq.files import write_json, write_text
from veco_fairseq.kills.kinds import KINDS
from veco_fairseq.kills.plan import WAYS, Trial, make_plan, signal_of
from veco_fairseq.kills.trials import Runner
from veco_fairseq.parallel import default_workers

RESULTS = "results.jsonl"
NOTED = {"number", "kind", "way", "early", "failures", "seconds", "processor_seconds"}  # of each kill
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")

Result = dict[str, Any]


def check_kills(args: Namespace, train: Callable[[], object], prepare: Callable[[], object]) -> int:
    """Make all kills that were not made yet, print the table, and return the command's exit code.

    Args:
        args: the options of scripts/check_kills.py.
        train, prepare: fairseq-train and prepare_root.py, on sys.argv.

    Raises:
        UserError: options that ask for nothing or for the impossible, or a folder of other options or another machine.
    """
    names = args.kinds or list(KINDS)
    for name in names:
        if name not in KINDS:
            raise UserError(f"--kinds {name}: there is {', '.join(KINDS)}")
    if not 0 <= args.inside_saves <= args.kills or args.kills < 1:
        raise UserError(f"--kills {args.kills} --inside-saves {args.inside_saves}: give 1 or more, and not more of them")
    plan = make_plan(names, args.kills, args.inside_saves, args.seed)
    options = {"kills": args.kills, "inside_saves": args.inside_saves, "seed": args.seed, "kinds": names}
    runner, made_on = Runner(args.folder, train, prepare, args.seed), machine()
    if args.only:
        for number in args.only:
            if not 1 <= number <= len(plan):
                raise UserError(f"--only {number}: there are the kills 1 to {len(plan)}")
        results = [runner.run(trial) for trial in plan if trial.number in args.only]
        print(json.dumps(results, indent=1))
    else:
        results = make_all(plan, runner, {**options, "machine": made_on})
        print("\n".join(table(results)))
    if args.json:
        times = {name: round(sum(result[name] for result in results)) for name in ("seconds", "processor_seconds")}
        content = {"options": options, "machine": made_on, **times, "by_kind": by_kind(results), "trials": results}
        write_json(args.json, content)
    return int(any(result["failures"] for result in results))


def make_all(plan: Sequence[Trial], runner: Runner, options: dict[str, Any]) -> list[Result]:
    """Every trial's result: from the folder's notes, or made and noted there now.

    Args:
        plan: the trials.
        runner: makes them.
        options: what the notes must be of, with the machine and its versions.
    """
    path = runner.folder / RESULTS
    runner.folder.mkdir(parents=True, exist_ok=True)
    results = read_results(path, options)
    # without the rest of a line that was cut off, which the next result would else be written behind
    write_text(path, "".join(f"{json.dumps(line)}\n" for line in (options, *results)))
    done = {result["number"] for result in results}
    with open(path, "a", encoding="utf-8") as notes, tqdm(total=len(plan), initial=len(done), unit="kill") as bar:
        for trial in plan:
            if trial.number in done:
                continue
            bar.set_description(trial.kind)
            result = runner.run(trial)
            print(json.dumps(result), file=notes, flush=True)
            results.append(result)
            bar.update()
            for failure in result["failures"]:
                bar.write(f"kill {trial.number} ({trial.kind}, {trial.way}): {failure}")
    return results


def read_results(path: Path, options: dict[str, Any]) -> list[Result]:
    """The notes of a run that was interrupted, whose last line may be cut off.

    Raises:
        UserError: they are of other options, or of another machine or version; or a line is damaged.
    """
    whole = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []
    lines = []
    for number, line in enumerate(whole, 1):
        try:
            lines.append(json.loads(line))
            if number > 1 and not NOTED <= lines[-1].keys():
                raise ValueError("no result of a kill")
        except (ValueError, AttributeError) as error:
            raise UserError(
                f"{path}, line {number}: is damaged ({error}): remove the file, or choose another --folder"
            ) from error
    if lines and lines[0] != options:
        raise UserError(
            f"{path}: is of other options, or of another machine or version, {whole[0]}: give those, or another --folder"
        )
    return lines[1:]


def by_kind(results: Sequence[Result]) -> dict[str, dict[str, int]]:
    """The table's figures."""
    rows: dict[str, dict[str, int]] = {}
    for name in dict.fromkeys(result["kind"] for result in results):
        of_kind = [result for result in results if result["kind"] == name]
        signals = Counter(signal_of(result["way"]).name for result in of_kind)
        failed = sum(bool(result["failures"]) for result in of_kind)
        rows[name] = {
            "kills": len(of_kind),
            "inside a save": sum(bool(result.get("writing")) for result in of_kind),
            "epoch 2 or later": sum(KINDS[name].trains and not result["early"] for result in of_kind),
            **{signal: signals[signal] for signal in SIGNALS},
            "resumed exactly": len(of_kind) - failed,
            "failed": failed,
        }
    return rows


def table(results: Sequence[Result]) -> list[str]:
    """The lines of the table: by kind, and how many of each way of being stopped."""
    rows = {KINDS[name].title: figures for name, figures in by_kind(results).items()}
    names = list(next(iter(rows.values())))
    rows["all"] = {name: sum(figures[name] for figures in rows.values()) for name in names}
    width = max(map(len, rows))
    lines = [" | ".join([f"{'':{width}}", *names])]
    for title, figures in rows.items():
        lines.append(" | ".join([f"{title:{width}}", *(f"{figures[name]:{len(name)}}" for name in names)]))
    ways = Counter(result["way"] for result in results)
    return [*lines, "; ".join(f"{way}: {ways[way]}" for way in WAYS if ways[way])]


def machine() -> dict[str, Any]:
    """What the kills were made on."""
    return {"processor": processor()[0], "cores": default_workers(), "python": platform.python_version(),
            "torch": torch.__version__}  # fmt: skip
