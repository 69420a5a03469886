#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Keep the checkpoint with the best score on the dev sets of all runs of a grid, and every run's score.

usage: keep_better.py RUN FOLDER

RUN/checkpoint_best.pt goes to FOLDER, with its vocabulary, if it is better than the one there. FOLDER/grid.json has the
scores. The run's checkpoints are removed, and RUN/score is written. After a kill at any time, the script can run again.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.cli import run
from veco_fairseq.data.sentencepiece import DICT_NAME, MODEL_NAME
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output, write_text


def main() -> None:
    this, folder = map(Path, sys.argv[1:])
    checkpoint, grid = this / "checkpoint_best.pt", folder / "grid.json"
    if not checkpoint.is_file():
        raise UserError(f"{this}: has no checkpoint_best.pt: there was no validation")
    scores = json.loads(grid.read_text()) if grid.is_file() else {}
    best = max((score for name, score in scores.items() if name != this.name), default=float("-inf"))
    scores[this.name] = read_checkpoint(checkpoint)["extra_state"]["best"]
    if scores[this.name] > best:
        for name in (DICT_NAME, MODEL_NAME, checkpoint.name):
            with atomic_output(folder / name) as temporary:
                temporary.unlink(missing_ok=True)
                try:
                    os.link(this / name, temporary)
                except OSError:  # a file system without links
                    shutil.copyfile(this / name, temporary)
    write_text(grid, json.dumps(scores, indent=1) + "\n")
    (this / "score").write_text(f"{scores[this.name]}\n")
    for path in this.glob("checkpoint_*.pt"):
        path.unlink()
    chosen = max(scores, key=scores.get)
    print(f"{this.name}: {scores[this.name]:.2f} on the dev sets; best of {len(scores)}: {chosen}, {scores[chosen]:.2f}")


if __name__ == "__main__":
    run(main)
