# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Grids of settings, their scores and tables."""

import json

import pytest
import torch
from conftest import error_line, lines_of
from support.shell import bash


@pytest.mark.parametrize("trained", ["point/checkpoint_last.pt", "point/score"])
def test_a_grid_that_was_begun_is_not_gone_on_with_by_other_options(tmp_path, trained):
    folder = tmp_path / "my recipe/grid"
    assert bash(tmp_path, "same_training grid ./train --lr 1").returncode == 0
    assert bash(tmp_path, "same_training grid ./train --lr 2").returncode == 0  # nothing was trained yet
    (folder / "point").mkdir()
    (folder / trained).touch()
    assert bash(tmp_path, "same_training grid ./train --lr 2").returncode == 0
    assert "grid: was trained with other options or data" in bash(tmp_path, "same_training grid ./train --lr 1").stderr


def test_a_grid_whose_scores_are_all_0_has_a_best(tmp_path, run):
    for name in ("grid/a", "grid/b"):
        (tmp_path / name).mkdir(parents=True)
        torch.save({"extra_state": {"best": 0.0}, "model": {}}, tmp_path / name / "checkpoint_best.pt")
        for vocabulary in ("dict.txt", "sentencepiece.bpe.model"):
            (tmp_path / name / vocabulary).write_text(name)
        result = run("data-bin-recipes/xtreme/keep_better.py", tmp_path / name, tmp_path / "grid")
        assert "0.00 on the dev sets; best of" in result.stdout, result.stderr
    assert (tmp_path / "grid/checkpoint_best.pt").exists() and (tmp_path / "grid/dict.txt").read_text() == "grid/a"


def test_table_of_directions(tmp_path, run):
    scores = tmp_path / "scores"
    scores.mkdir()
    for name, score in (("veco.s1.checkpoint_last.en-de", 20.0), ("veco.s2.checkpoint_last.en-de", 21.0), ("veco.s1.de-fr", 8.04),
                        ("veco.s1.checkpoint_1_100.de-en", 25.25), ("en-de.s1.checkpoint_last.en-de", 30.0)):  # fmt: skip
        (scores / f"finetune.{name}.json").write_text(json.dumps({"sacrebleu": {"score": score}}))
    table = "data-bin-recipes/many-to-many/table.py"
    assert run(table, tmp_path, "--zero-shot", "de-fr fr-de").stdout.splitlines() == [
        "| direction | en-de | veco |",
        "| --- | --- | --- |",
        "| de-en |  | 25.2 |",
        "| en-de | 30.0 | 20.5 |",
        "| de-fr, zero-shot |  | 8.0 |",
    ]
    assert "no scores: run evaluate.sh first" in error_line(run(table, tmp_path / "none"))


def test_table_of_scores(tmp_path, run, drawn):
    scores = tmp_path / "scores"
    scores.mkdir()
    for name, score in (("veco.s1.checkpoint_1_100", 20.0), ("veco.s1.checkpoint_last", 30.0),
                        ("veco.s2.checkpoint_last", 31.0), ("random.s1.checkpoint_2_300", 8.04), ("veco.s1.checkpoint_9_1000", 25.0)):  # fmt: skip
        (scores / f"finetune.{name}.json").write_text(json.dumps({"sacrebleu": {"score": score}}))
    result = run("data-bin-recipes/multi30k/table.py", tmp_path)
    assert result.stdout.splitlines() == [
        "| arm | 100 | 300 | 1000 | last |",
        "| --- | --- | --- | --- | --- |",
        "| random |  | 8.0 |  |  |",
        "| veco | 20.0 |  | 25.0 | 30.5 ± 0.7 (2) |",
    ]
    (tmp_path / "checkpoints/finetune.veco.s1").mkdir(parents=True)
    history = {"optimizer_history": [{"num_updates": 1454}], "model": {}}
    torch.save(history, tmp_path / "checkpoints/finetune.veco.s1/checkpoint_last.pt")
    (scores / "finetune.veco.s2.checkpoint_last.json").unlink()
    (axes,) = drawn("data-bin-recipes/multi30k/table.py", tmp_path, "--plot", tmp_path / "curve.png")
    assert lines_of(axes) == {"veco, seed 1": [(100, 20.0), (1000, 25.0), (1454, 30.0)]} and (tmp_path / "curve.png").exists()
    assert "no scores: run evaluate.sh first" in error_line(run("data-bin-recipes/multi30k/table.py", tmp_path / "none"))
