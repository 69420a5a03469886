# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Grids of settings, their scores and tables."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from conftest import REPOSITORY, error_line, lines_of
from support.modules import load_script
from support.shell import ENVIRONMENT, bash


@pytest.mark.parametrize("trained", ["point/checkpoint_last.pt", "point/score"])
def test_a_grid_that_was_begun_is_not_gone_on_with_by_other_options(tmp_path, trained):
    folder = tmp_path / "my recipe/grid"
    assert bash(tmp_path, "same_training grid ./train --lr 1").returncode == 0
    assert bash(tmp_path, "same_training grid ./train --lr 2").returncode == 0  # nothing was trained yet
    (folder / "point").mkdir()
    (folder / trained).touch()
    assert bash(tmp_path, "same_training grid ./train --lr 2").returncode == 0
    assert "grid: was trained with other options or data" in bash(tmp_path, "same_training grid ./train --lr 1").stderr


def test_the_data_of_a_grid_are_the_same_in_every_locale(tmp_path, monkeypatch):
    """... although the order of their names is not: the cat of this test tells the locale that the names are sorted in."""
    script = f"""source '{REPOSITORY}/data-bin-recipes/lib/understanding.sh'; OUT=$PWD PRETRAINED=model WORKERS=1
        declare -A OPTIONS=([seeds]=1 [setting]=transfer [arch]=any [plug]=out [lrs]=1 [batches]=8 [arm]=veco [langs]=)
        small_model_of_data() {{ :; }}; choose_device() {{ DEVICE=(); }}; grid() {{ touch "$1/checkpoint_1.pt"; }}
        cat() {{ echo "$LC_ALL"; }}; mkdir -p data; finetune_task"""
    for locale in ("C.UTF-8", "POSIX"):
        monkeypatch.setitem(ENVIRONMENT, "LC_ALL", locale)
        assert bash(tmp_path, script).stderr == ""


@pytest.mark.parametrize("scores, best", [([0.0, 0.0], "a"), ([0.5, 0.75, 0.625], "b"), ([0.5, 0.25, 0.5], "a")])
def test_the_first_of_the_best_points_of_a_grid_is_kept(tmp_path, run, scores, best):
    for name, score in zip("abc", scores):
        folder = tmp_path / "grid" / name
        folder.mkdir(parents=True)
        torch.save({"extra_state": {"best": score}, "model": {}}, folder / "checkpoint_best.pt")
        for vocabulary in ("dict.txt", "sentencepiece.bpe.model"):
            (folder / vocabulary).write_text(name)
        result = run("data-bin-recipes/xtreme/keep_better.py", folder, tmp_path / "grid")
        so_far = scores[: len(list(folder.parent.glob("*/score")))]
        chosen = "abc"[so_far.index(max(so_far))]
        told = f"{name}: {score:.2f} on the dev sets; best of {len(so_far)}: {chosen}, {max(so_far):.2f}\n"
        assert result.stdout == told, result.stderr
        assert [path.name for path in sorted(folder.iterdir())] == ["dict.txt", "score", "sentencepiece.bpe.model"]
    assert json.loads((tmp_path / "grid/grid.json").read_text()) == dict(zip("abc", scores))
    kept = torch.load(tmp_path / "grid/checkpoint_best.pt")["extra_state"]["best"]
    assert (kept, (tmp_path / "grid/dict.txt").read_text()) == (max(scores), best)


def test_the_best_point_is_copied_where_there_are_no_links(tmp_path, run, monkeypatch):
    """... and a kill before its checkpoint was removed changes nothing."""
    folder, script = tmp_path / "grid/a", "data-bin-recipes/xtreme/keep_better.py"
    folder.mkdir(parents=True)
    error = error_line(run(script, folder, tmp_path / "grid"))
    assert error.endswith(f"{folder}: has no checkpoint_best.pt: there was no validation")
    for vocabulary in ("dict.txt", "sentencepiece.bpe.model"):
        (folder / vocabulary).write_text("a")
    monkeypatch.setattr(os, "link", lambda *paths: (tmp_path / "none").stat())  # an OSError
    for _ in range(2):
        torch.save({"extra_state": {"best": 0.5}, "model": {}}, folder / "checkpoint_best.pt")
        assert "best of 1: a, 0.50" in run(script, folder, tmp_path / "grid").stdout
    assert torch.load(tmp_path / "grid/checkpoint_best.pt")["extra_state"]["best"] == 0.5
    assert (tmp_path / "grid/sentencepiece.bpe.model").read_text() == "a"


def test_a_point_has_its_score_before_its_checkpoints_go(tmp_path, monkeypatch):
    """After a kill between the two there would be neither, and the point would be trained again."""
    folder = tmp_path / "grid/a"
    folder.mkdir(parents=True)
    torch.save({"extra_state": {"best": 0.5}, "model": {}}, folder / "checkpoint_best.pt")
    for vocabulary in ("dict.txt", "sentencepiece.bpe.model"):
        (folder / vocabulary).write_text("a")
    unlink = Path.unlink

    def killed(path, **options):
        if path == folder / "checkpoint_best.pt":
            raise KeyboardInterrupt
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", killed)
    monkeypatch.setattr(sys, "argv", ["keep_better.py", str(folder), str(tmp_path / "grid")])
    with pytest.raises(KeyboardInterrupt):
        load_script(REPOSITORY / "data-bin-recipes/xtreme/keep_better.py").main()
    assert (folder / "score").read_text() == "0.5\n"


def test_table_of_directions(tmp_path, run):
    scores = tmp_path / "scores"
    scores.mkdir()
    for name, score in (("veco.s1.checkpoint_last.en-de", 20.0), ("veco.s2.checkpoint_last.en-de", 21.0), ("veco.s1.de-fr", 8.04),
                        ("veco.s1.checkpoint_1_100.de-en", 25.25), ("mlm.s1.en-de", 0.0), ("en-de.s1.checkpoint_last.en-de", 30.0)):  # fmt: skip
        (scores / f"finetune.{name}.json").write_text(json.dumps({"sacrebleu": {"score": score}}))
    (scores / "finetune.veco.s1.json").write_text("{}")  # of another recipe
    table = "data-bin-recipes/many-to-many/table.py"
    assert run(table, tmp_path, "--zero-shot", "de-fr fr-de").stdout.splitlines() == [
        "| direction | en-de | mlm, mean | veco | veco, checkpoint_1_100 | veco, mean |",
        "| --- | --- | --- | --- | --- | --- |",
        "| de-en |  |  |  | 25.2 |  |",
        "| en-de | 30.0 | 0.0 | 20.5 |  |  |",
        "| de-fr, zero-shot |  |  |  |  | 8.0 |",
    ]
    assert "no scores: run evaluate.sh first" in error_line(run(table, tmp_path / "none"))
    for name, text in ("many-to-many", "{}"), ("multi30k", "{"):  # which ended in a traceback
        (scores / "finetune.veco.s1.checkpoint_last.json").write_text(text)
        (scores / "finetune.veco.s1.checkpoint_last.en-de.json").write_text(text)
        assert "finetune.veco.s1.checkpoint_last" in error_line(run(f"data-bin-recipes/{name}/table.py", tmp_path))


@pytest.mark.parametrize("recipe, names, old", [
    ("multi30k", ["veco.s1.checkpoint_1_100", "veco.s1.checkpoint_last", "xlm.s1.checkpoint_last"], ["veco.s1.checkpoint_1_100"]),
    ("many-to-many", ["veco.s1.checkpoint_1_100.en-de", "veco.s1.checkpoint_last.de-en", "veco.s1.de-en", "mlm.s1.de-en"],
     ["veco.s1.checkpoint_1_100.en-de"]),
])  # fmt: skip
def test_a_score_of_a_training_before_the_last_one_is_told(tmp_path, run, recipe, names, old):
    scores, trained = tmp_path / "scores", tmp_path / "checkpoints/finetune.veco.s1"
    scores.mkdir()
    trained.mkdir(parents=True)
    for name, time in ("checkpoint_last.pt", 1000), ("checkpoint_1_100.pt", 1000):
        (trained / name).write_text("")
        os.utime(trained / name, (time, time))
    for name in names:
        path = scores / f"finetune.{name}.json"
        path.write_text(json.dumps({"sacrebleu": {"score": 20.0}}))
        os.utime(path, (999, 999) if name in old else (1001, 1001))
    result = run(f"data-bin-recipes/{recipe}/table.py", tmp_path)
    (of,) = old
    told = f"{scores}/finetune.{of}.json: is older than {trained}/checkpoint_1_100.pt: run evaluate.sh again to score that one\n"
    assert (result.returncode, result.stderr) == (0, told)
    os.utime(trained / "checkpoint_last.pt", (2000, 2000))
    told_of = run(f"data-bin-recipes/{recipe}/table.py", tmp_path).stderr.splitlines()
    assert len(told_of) == (2 if recipe == "multi30k" else 3)  # with the mean's score; xlm's and mlm's models are not there


def test_table_of_scores(tmp_path, run, drawn):
    scores = tmp_path / "scores"
    scores.mkdir()
    for name, score in (("veco.s1.checkpoint_1_100", 20.0), ("veco.s1.checkpoint_last", 30.0),
                        ("veco.s2.checkpoint_last", 31.0), ("random.s1.checkpoint_2_300", 8.04), ("veco.s1.checkpoint_10_1000", 25.0),
                        ("xlm.s3.checkpoint_1_100", 7.0), ("xlm.s3.checkpoint_3_400", 9.5), ("veco-8.s1.checkpoint_last", 12.0)):  # fmt: skip
        (scores / f"finetune.{name}.json").write_text(json.dumps({"sacrebleu": {"score": score}}))
    result = run("data-bin-recipes/multi30k/table.py", tmp_path)
    assert result.stdout.splitlines() == [
        "| arm | 100 | 300 | 400 | 1000 | last |",
        "| --- | --- | --- | --- | --- | --- |",
        "| random |  | 8.0 |  |  |  |",
        "| veco | 20.0 |  |  | 25.0 | 30.5 ± 0.7 (2) |",
        "| veco-8 |  |  |  |  | 12.0 |",
        "| xlm | 7.0 |  | 9.5 |  |  |",
    ]
    (tmp_path / "checkpoints/finetune.veco.s1").mkdir(parents=True)
    history = {"optimizer_history": [{"num_updates": 7}, {"num_updates": 1454}], "model": {}}
    torch.save(history, last := tmp_path / "checkpoints/finetune.veco.s1/checkpoint_last.pt")
    os.utime(last, (0, 0))  # before its score
    (scores / "finetune.veco.s2.checkpoint_last.json").unlink()
    (axes,) = drawn("data-bin-recipes/multi30k/table.py", tmp_path, "--plot", tmp_path / "curve.png")
    assert lines_of(axes) == {
        "veco, seed 1": [(100, 20.0), (1000, 25.0), (1454, 30.0)], "xlm, seed 3": [(100, 7.0), (400, 9.5)],
    }  # fmt: skip
    assert (axes.get_ylabel(), axes.get_title()) == ("sacreBLEU", "BLEU of the test set while fine-tuning")
    assert (tmp_path / "curve.png").exists()
    for path in scores.glob("*.s[13].checkpoint_1*"):
        path.unlink()
    error = error_line(run("data-bin-recipes/multi30k/table.py", tmp_path, "--plot", tmp_path / "none.png"))
    assert error.endswith("--plot: no fine-tuning has scores of several checkpoints: see evaluate.sh --checkpoint")
    assert "no scores: run evaluate.sh first" in error_line(run("data-bin-recipes/multi30k/table.py", tmp_path / "none"))
