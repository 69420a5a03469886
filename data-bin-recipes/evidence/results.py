#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the fine-tunings of a folder gave: the learning rate and dropout that validation prefers, and a line of JSON for each.

The lines are enough to go on with the comparisons on another machine: they tell what has ended, and what validation preferred.
"""

import argparse
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

from figures import read_results as read_lines
from figures import set_of

from veco_fairseq.cli import run
from veco_fairseq.curves import read_curve
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json
from veco_fairseq.understanding.xtreme import read_results

REPOSITORY = Path(__file__).parents[2]
NAME = re.compile(
    r"(?P<arm>.+)\.p(?P<pretraining>\d+)\.(?P<data>\S+\.\d+)\.lr(?P<lr>\S+)\.dropout(?P<dropout>\S+)\.s(?P<seed>\d+)"
)

SAMPLE = 200  # batches to count: with 20, the standard error of a translation model's operations is 19%
FIRST = {"pretraining": "1", "seed": "1"}  # the seeds of a grid
JUDGED = re.compile(r"(?P<task>\w+)/(?P<arm>.+)\.(?P<plug>in|out)\.p(?P<pretraining>\d+)\.s(?P<seed>\d+)")


class Run(NamedTuple):
    """A fine-tuning that has ended.

    Attributes:
        name: of its folder.
        settings: arm, seed of pre-training, data, learning rate, dropout and seed.
        curve: (updates, validation loss in bits a token) of each validation.
    """

    name: str
    settings: dict[str, str]
    curve: list[tuple[int, float]]

    @property
    def best(self) -> tuple[float, int]:
        """Lowest validation loss, and the updates until then: of equal losses until the last, whose checkpoint fairseq keeps."""
        updates, loss = min(self.curve, key=lambda point: (point[1], -point[0]))
        return loss, updates


def finished(out: Path) -> list[Run]:
    """The fine-tunings that have ended, by name."""
    names = sorted(path.name.removesuffix(".done") for path in (out / "finetuned").glob("*.done"))
    return [
        Run(name, found.groupdict(), read_curve(out / f"finetuned/{name}/train.log", "loss"))
        for name in names
        if (found := NAME.fullmatch(name))
    ]


def grid_of(runs: list[Run], arm: str, data: str) -> list[Run]:
    """The runs of this arm and data among which validation chooses: those of the first seeds."""
    return [run for run in runs if run.settings.items() >= {"arm": arm, "data": data, **FIRST}.items()]


def chosen(runs: list[Run], arm: str, data: str) -> Run:
    """The run of this arm and data, of the first seeds, that has the lowest validation loss; the test set has no say."""
    grid = grid_of(runs, arm, data)
    if not grid:
        raise UserError(f"{arm}, {data}: no fine-tuning to choose from has ended: run finetune.sh with some --lr first")
    return min(grid, key=lambda run: run.best)


def preferred(out: Path, arm: str, data: str, results: Path | None) -> dict[str, str]:
    """The settings that validation prefers for this arm and data: those of the line in the results, if one has a grid."""
    for line in read_lines(results) if results and results.is_file() else []:
        if line.get("grid") and line.items() >= {"kind": "translation", "arm": arm, "data": data}.items():
            return line
    return chosen(finished(out), arm, data).settings


def ended(lines: list[dict]) -> list[str]:
    """The names that compare.sh gives to the jobs with these results, and grid.ARM.DATA for the grids."""
    names = []
    for line in lines:
        prefix = "" if set_of(line) == "captions" else f"{set_of(line)}."
        if line["kind"] == "translation":
            run = "{arm}.p{pretraining}.{data}.s{seed}".format(**line)
            names += [f"{prefix}finetune.{run}", f"{prefix}evaluate.{run}"]
            if line.get("grid"):
                names.append(f"{prefix}grid.{line['arm']}.{line['data']}")
        elif line["kind"] == "cost":
            names.append("cost.{arm}.s{seed}".format(**line))
        else:
            names.append("understand.{task}.{arm}.{plug}.p{pretraining}.s{seed}".format(**line))
    return names


def command(out: Path, training: str) -> str:
    """The command of a training, without --save-dir and with the recipe's folder as OUT.

    A training of an older version has only the file .begun, where checksums follow the words: of it, the words before --save-dir;
    without that, as in understanding, all.
    """
    written, begun = (out / f"{training}.{ending}" for ending in ("command", "begun"))
    words = shlex.split((written if written.exists() else begun).read_text(encoding="utf-8"))
    if words[0] == "logged":  # the recipe's, with the name of the log
        words = words[2:]
    if "--save-dir" in words:
        place = words.index("--save-dir")
        words = words[:place] + (words[place + 2 :] if written.exists() else [])
    return shlex.join(word.replace(str(out), "OUT").replace(f"{REPOSITORY}/", "") for word in words)


def commit() -> str:
    """The repository's commit."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    return found.stdout.strip()


def translation(out: Path, name: str) -> dict:
    """All that is to be known of a translation: settings, validation, scores, cost, command and commit."""
    from veco_fairseq.checkpoints.reading import read_checkpoint
    from veco_fairseq.cost.flops import count_operations

    runs = finished(out)
    run = next((run for run in runs if run.name == name), None)
    if run is None:
        raise UserError(f"{out / 'finetuned' / name}: is not there, or has not ended: run finetune.sh first")
    scores = read_json(out / f"scores/{name}.json")
    best, updates = run.best
    told = (out / f"scores/{name}.log").read_text(encoding="utf-8")
    speed = re.findall(r"\(([\d.]+) sentences/s", told)
    checkpoint = out / f"finetuned/{name}/checkpoint_best.pt"
    state = read_checkpoint(checkpoint, mapped=True)
    grid = grid_of(runs, run.settings["arm"], run.settings["data"]) if run.settings.items() >= FIRST.items() else []
    return {
        "kind": "translation",
        **run.settings,
        "updates": updates,
        "valid_loss": best,
        "operations": count_operations(str(checkpoint), SAMPLE).total,  # of these updates
        "sacrebleu": scores["sacrebleu"]["score"],
        "chrf": scores["chrf"]["score"],
        "details": scores["sacrebleu"]["details"],  # with the penalty for translations that are too short
        "signatures": [scores[metric]["signature"] for metric in ("sacrebleu", "chrf")],
        "seconds": round(state["extra_state"]["previous_training_time"]),
        "sentences_per_second": float(speed[-1]) if speed else None,
        "curve": run.curve,
        **({"grid": {"lr{lr}.dropout{dropout}".format(**of.settings): of.best[0] for of in grid}} if len(grid) > 1 else {}),
        "command": command(out, f"finetuned/{name}"),
        "commit": commit(),
    }


def judged(out: Path, name: str) -> dict:
    """The same of a task of understanding, or of retrieval by the last layer (the score is XTREME's: English searches)."""
    settings = JUDGED.fullmatch(name)
    folder, _, model = name.partition("/")
    scores = out / f"understanding/{folder}/scores/{model}.json"
    if settings is None or not scores.is_file():
        raise UserError(f"{scores}: is not there: run understand.sh first")
    result = read_results([scores])
    line = {"kind": "understanding", **settings.groupdict(), "score": result.average(), "figures": result.seeds[0]}
    trained = f"understanding/{folder}/checkpoints/{model}.s{settings['seed']}"
    if (out / trained).is_dir():
        line |= {"grid": read_json(out / trained / "grid.json"), "command": command(out, trained)}
    else:
        line |= {"kind": "retrieval", "layers": read_json(scores)["accuracy"], "note": result.note}
    return {**line, "commit": commit()}


def cost(out: Path, folder: str) -> dict:
    """The updates, operations and seconds of a pre-training, by the folder of its checkpoints."""
    from veco_fairseq.checkpoints.reading import read_checkpoint
    from veco_fairseq.cost.flops import count_operations

    checkpoint = out / f"checkpoints/{folder}/checkpoint_last.pt"
    counted = count_operations(str(checkpoint), SAMPLE)
    arm, _, seed = re.sub(r"^(camlm|mlm)\.", "", folder).rpartition(".s")
    seconds = read_checkpoint(checkpoint, mapped=True)["extra_state"]["previous_training_time"]
    return {
        "kind": "cost",
        "arm": arm,
        "seed": seed,
        "updates": counted.updates,
        "operations": counted.total,
        "seconds": round(seconds),
        "commit": commit(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path, help="the folder of the recipe's scripts")
    commands = parser.add_subparsers(dest="command", required=True)
    best = commands.add_parser("best", help="print the learning rate and the dropout that validation prefers")
    best.add_argument("arm")
    best.add_argument("data")
    best.add_argument("--results", type=Path, metavar="FILE", help="lines of results; one of this arm and data counts first")
    record = commands.add_parser("record", help="add a run's line to a file")
    record.add_argument("name", help="of a fine-tuning; TASK/NAME of understanding; cost/NAME of a pre-training's folder")
    record.add_argument("file", type=Path)
    record.add_argument("--set", default="captions", help="the texts, where the results tell of more than one set")
    told = commands.add_parser("ended", help="print the names of the jobs whose results are in a file")
    told.add_argument("file", type=Path)
    args = parser.parse_args()
    if args.command == "best":
        settings = preferred(args.out, args.arm, args.data, args.results)
        print(settings["lr"], settings["dropout"])
        return
    if args.command == "ended":
        print("\n".join(ended(read_lines(args.file))))
        return
    if args.name.startswith("cost/"):
        line = cost(args.out, args.name.removeprefix("cost/"))
    else:
        line = (judged if "/" in args.name else translation)(args.out, args.name)
    line |= {"set": args.set} if args.set != "captions" else {}
    args.file.parent.mkdir(parents=True, exist_ok=True)
    with open(args.file, "a", encoding="utf-8") as file:  # several processes may add lines
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    run(main)
