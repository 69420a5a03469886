#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The scores that evaluate.sh left in a folder, as a Markdown table: BLEU by arm and updates, over the seeds."""

import argparse
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Dict, List

from veco_fairseq.cli import run
from veco_fairseq.errors import UserError

NAME = re.compile(r"finetune\.(?P<arm>.+)\.s(?P<seed>\d+)\.checkpoint_(?:\d+_(?P<updates>\d+)|last)\.json")


def read_scores(folder: Path) -> Dict[str, Dict[str, List[float]]]:
    """arm -> updates ("last" for the end) -> sacreBLEU of each seed."""
    scores: Dict[str, Dict[str, List[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*.json")):
        name = NAME.fullmatch(path.name)
        if name:
            score = json.loads(path.read_text(encoding="utf-8"))["sacrebleu"]["score"]
            scores[name["arm"]][name["updates"] or "last"].append(score)
    if not scores:
        raise UserError(f"{folder}: no scores: run evaluate.sh first")
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path, help="the folder of the recipe's scripts")
    folder = parser.parse_args().out / "scores"
    print("| arm | updates | sacreBLEU of each seed | mean | spread |\n| --- | --- | --- | --- | --- |")
    for arm, points in sorted(read_scores(folder).items()):
        for updates in sorted(points, key=lambda u: (u == "last", u.zfill(9))):
            bleu = points[updates]
            spread = f"{statistics.stdev(bleu):.2f}" if len(bleu) > 1 else "-"
            each = " ".join(f"{score:.2f}" for score in bleu)
            print(f"| {arm} | {updates} | {each} | {statistics.mean(bleu):.2f} | {spread} |")


if __name__ == "__main__":
    run(main)
