#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print the scores that evaluate.sh left in a folder as a Markdown table: sacreBLEU by arm and updates, over the seeds.

--plot draws the arms that have scores of several checkpoints, one curve a seed.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path

from veco_fairseq.cli import run
from veco_fairseq.commands.plot_scores import read_score, tell_of_older_score
from veco_fairseq.errors import UserError
from veco_fairseq.understanding.xtreme import spread

NAME = re.compile(
    r"(?P<run>finetune\.(?P<arm>.+)\.s(?P<seed>\d+))\.(?P<checkpoint>checkpoint_(?:\d+_(?P<updates>\d+)|last))\.json"
)


Runs = dict[tuple[str, str], dict[str, float]]  # (arm, seed) -> updates ("last" for the end) -> sacreBLEU


def read_scores(folder: Path) -> Runs:
    """Read what evaluate.sh has left there."""
    runs: Runs = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        name = NAME.fullmatch(path.name)
        if name:
            score = read_score(path, "sacrebleu")
            tell_of_older_score(path, folder.parent / "checkpoints" / name["run"] / f"{name['checkpoint']}.pt")
            runs[name["arm"], name["seed"]][name["updates"] or "last"] = score
    if not runs:
        raise UserError(f"{folder}: no scores: run evaluate.sh first")
    return runs


def curves_of(runs: Runs, checkpoints: Path) -> dict[str, list[tuple[int, float]]]:
    """Return (updates, sacreBLEU) of every run with several scores; the checkpoint says at which update the run ended."""
    from veco_fairseq.checkpoints.reading import read_checkpoint

    curves = {}
    for (arm, seed), points in runs.items():
        if len(points) > 1:
            by_update = {int(updates): score for updates, score in points.items() if updates != "last"}
            if "last" in points:
                last = read_checkpoint(checkpoints / f"finetune.{arm}.s{seed}/checkpoint_last.pt", mapped=True)
                by_update[last["optimizer_history"][-1]["num_updates"]] = points["last"]
            curves[f"{arm}, seed {seed}"] = sorted(by_update.items())
    if not curves:
        raise UserError("--plot: no fine-tuning has scores of several checkpoints: see evaluate.sh --checkpoint")
    return curves


def cell(scores: list[float]) -> str:
    """Return the mean over the seeds, with standard deviation and number of seeds if there are several."""
    return (spread(scores) if scores else "") + (f" ({len(scores)})" if len(scores) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path, help="the folder of the recipe's scripts")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also draw BLEU over the updates")
    args = parser.parse_args()
    runs = read_scores(args.out / "scores")
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (arm, _), points_of_run in runs.items():
        for updates, score in points_of_run.items():
            scores[arm][updates].append(score)
    points = {updates for of_arm in scores.values() for updates in of_arm}
    points = sorted(points, key=lambda updates: (updates == "last", updates.zfill(9)))
    print(f"| arm | {' | '.join(points)} |\n| --- |{' --- |' * len(points)}")
    for arm, of_arm in sorted(scores.items()):
        print(f"| {arm} | {' | '.join(cell(of_arm.get(updates, [])) for updates in points)} |")
    if args.plot:
        from veco_fairseq.plots import plot_curves

        curves = curves_of(runs, args.out / "checkpoints")
        plot_curves(curves, ylabel="sacreBLEU", title="BLEU of the test set while fine-tuning", output=args.plot)
        print(f"wrote {args.plot}")


if __name__ == "__main__":
    run(main)
