# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The command in a line of results is the one that ran, with the options that the user gave."""

import re
import shlex
import sys

import pytest
from support.modules import load_script
from support.shell import bash

from recipes import RECIPES, Place

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
results = load_script(RECIPES / "evidence/results.py")


@pytest.mark.parametrize("case, training, set_by_grid", [
    ("evidence/finetune --out OUT --arm veco --data en-de.500 --lr 5e-4 --dropout 0.2 -- --cpu --autocast bf16 --dropout 0.35",
     "finetuned/veco.p1.en-de.500.lr5e-4.dropout0.2.s1", ()),
    ("GPUS=4 xtreme/udpos/finetune --out OUT --pretrained MODEL --name mine --seeds 3 --epochs 2 --batches 8 --lrs 7e-6 -- --dropout 0.35",
     "checkpoints/mine.s3", ("--batch-size", "--max-epoch", "--lr")),
])  # fmt: skip
def test_the_recorded_command_is_the_one_that_ran(tmp_path, monkeypatch, case, training, set_by_grid):
    place = Place(tmp_path)
    monkeypatch.setattr(results, "REPOSITORY", place.folder / "REPO")
    *_, ran = (line for line in place.call(case).splitlines() if "--save-dir" in line)
    model = str(place.folder / "PRETRAINED/model.pt")
    expected = [model if word == "MODEL" else word.removeprefix("REPO/") for word in shlex.split(ran)]
    for option in ("--save-dir", *set_by_grid):
        at = expected.index(option)
        del expected[at : at + 2]
    told = shlex.split(results.command(place.folder / "OUT", training))
    assert told == expected and told[-2:] == ["--dropout", "0.35"]


def test_a_training_of_an_older_version_tells_what_is_before_its_folder(tmp_path):
    """... since checksums follow the words in its only file."""
    (tmp_path / "a.begun").write_text(f"logged l fairseq-train {tmp_path}/d --seed 2 --save-dir x --cpu 3107562214 18 ")
    assert results.command(tmp_path, "a") == "fairseq-train OUT/d --seed 2"
    (tmp_path / "a.command").write_text(f"logged l fairseq-train {tmp_path}/d --seed 2 --save-dir x --cpu ")
    assert results.command(tmp_path, "a") == "fairseq-train OUT/d --seed 2 --cpu"


def test_a_second_training_leaves_what_the_first_has_noted(tmp_path):
    """... which has saved nothing yet: with its own note there, the second one would go on from the other's checkpoints."""
    script = """model() { mkdir -p out; [[ $1 != 1 ]] || { (training two "$PWD/out" model 2) || cat out.command out.begun; }; }
        training one "$PWD/out" model 1; training one "$PWD/out" model 1; rm out.done; training two "$PWD/out" model 2"""
    result = bash(tmp_path, script)
    folder = tmp_path / "my recipe/out"
    assert result.stderr == (
        f"my recipe/run.sh: error: {folder}: another process trains into it: wait for its end, or give another --out or --name\n"
    )
    assert re.sub(r"done in \d+ s", "done", result.stdout).splitlines() == [
        f"[one] makes {folder}", "model 1 model 1 [one] done", f"[one] already there: {folder}", f"[two] makes {folder}",
        "[two] done",
    ]  # fmt: skip
    assert result.returncode == 0


def test_points_of_a_grid_are_trained_by_one_process(tmp_path):
    script = """same_training grid ./train --lr 1; (same_training grid ./train --lr 1) || echo $?; let_train
        (same_training grid ./train --lr 1) && let_train && let_train"""
    result = bash(tmp_path, script)
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
