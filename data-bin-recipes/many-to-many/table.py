#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The scores that evaluate.sh left in a folder, as a Markdown table: sacreBLEU by direction and model, over the seeds."""

import argparse
import re
import statistics
from collections import defaultdict
from pathlib import Path

from veco_fairseq.cli import run
from veco_fairseq.commands.plot_scores import read_score, tell_of_older_score
from veco_fairseq.errors import UserError

NAME = re.compile(
    r"(?P<run>finetune\.(?P<model>.+)\.s(?P<seed>\d+))(?:\.(?P<checkpoint>checkpoint_\w+))?\.(?P<direction>[^.-]+-[^.-]+)\.json"
)

Scores = dict[str, dict[str, list[float]]]  # direction -> model -> sacreBLEU of each seed


def read_scores(folder: Path) -> Scores:
    """What evaluate.sh left there."""
    scores: Scores = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*.json")):
        if name := NAME.fullmatch(path.name):
            score = read_score(path, "sacrebleu")
            last_of_mean = name["checkpoint"] or "checkpoint_last"
            tell_of_older_score(path, folder.parent / "checkpoints" / name["run"] / f"{last_of_mean}.pt")
            model = name["model"]
            if name["checkpoint"] != "checkpoint_last":  # another model, of the same training
                model += f", {name['checkpoint'] or 'mean'}"
            scores[name["direction"]][model].append(score)
    if not scores:
        raise UserError(f"{folder}: no scores: run evaluate.sh first")
    return scores


def rows(scores: Scores, zero_shot: list[str]) -> list[list[str]]:
    """A line for each direction, the zero-shot ones last, with the mean over the seeds of each model."""
    models = list(dict.fromkeys(model for of_model in scores.values() for model in of_model))
    lines = [["direction", *models], ["---"] * (1 + len(models))]
    for direction in sorted(scores, key=lambda name: (name in zero_shot, name)):
        name = f"{direction}, zero-shot" if direction in zero_shot else direction
        cells = [scores[direction].get(model, []) for model in models]
        lines.append([name, *(f"{statistics.mean(cell):.1f}" if cell else "" for cell in cells)])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path, help="the folder of the recipe's scripts")
    parser.add_argument("--zero-shot", default="", metavar="'SRC-TGT ...'", help="directions that were not trained")
    args = parser.parse_args()
    for cells in rows(read_scores(args.out / "scores"), args.zero_shot.split()):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    run(main)
