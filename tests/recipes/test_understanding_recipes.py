# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""From files of one's own to figures by language, and the papers' grid of settings."""

import json
import shutil
import subprocess

import pytest
from conftest import REPOSITORY, save_with_vocabulary
from support.xtreme import RECIPES, WORDS, ids, recipe

from veco_fairseq.checkpoints.reading import read_checkpoint


@pytest.fixture
def local(tmp_path):
    """Pairs of sentences in two languages, one of them compressed; the label is in the first word."""
    folder = tmp_path / "local files"
    folder.mkdir()
    for split, count in (("dev", 40), ("test_a", 10)):
        for lang in ("en", "de"):
            rows = (
                f"{'yes' if row % 2 else 'no'} {WORDS[row]} {lang}\t{WORDS[row + 9]}\t{'ab'[row % 2]}\n" for row in range(count)
            )
            (folder / f"{split}-{lang}.tsv").write_text("".join(rows))
    subprocess.run(["gzip", folder / "dev-de.tsv"], check=True)
    return folder


def test_from_local_files_to_figures_by_language(tmp_path, local, make_model):
    pretrained = save_with_vocabulary(tmp_path / "pretrained", make_model, ["yes no en de", *WORDS], 44)
    out = tmp_path / "out"
    prepare = ("--out", out, "--local", local, "--train", "dev-@.tsv", "--test", "test_a-@.tsv")
    assert "no dev set for" in recipe("xnli", "prepare", *prepare, "--dev", "dev-@.tsv", "--langs", "de en sw")
    recipe("xnli", "prepare", *prepare, "--hold-out", 8)
    assert [len(rows) for rows in ids(out, "dev", "classification").values()] == [8, 8]
    assert ids(out, "train", "classification")["de"][-1] == "row 32"

    finetune = ("--out", out, "--pretrained", pretrained, "--arch", "veco_nlu_tiny", "--setting", "translate-train", "--plug", "in",
                "--lrs", "0 2e-2", "--epochs", 2, "--batches", 4)  # fmt: skip
    shape = (
        "--",
        "--cpu",
        "--encoder-layers",
        3,
        "--encoder-embed-dim",
        16,
        "--encoder-ffn-embed-dim",
        32,
        "--max-positions",
        64,
        "--max-length",
        32,
    )
    told = recipe("xnli", "finetune", *finetune, *shape)
    assert told.count("on the dev sets; best of") == 2
    folder = out / "checkpoints/translate-train.in.s1"
    grid = json.loads((folder / "grid.json").read_text())
    assert set(grid) == {"batch4.epochs2.lr0", "batch4.epochs2.lr2e-2"}
    best = read_checkpoint(folder / "checkpoint_best.pt")
    assert best["extra_state"]["best"] == max(grid.values())
    assert not list(folder.glob("*/checkpoint_*.pt"))
    assert (folder / "batch4.epochs2.lr0/score").read_text() == f"{grid['batch4.epochs2.lr0']}\n"

    (folder / "batch4.epochs2.lr0/checkpoint_last.pt").touch()  # as if killed at the very end
    again = recipe("xnli", "finetune", *finetune, *shape)
    assert again.count("already there") == 2 and not list(folder.glob("*/checkpoint_*.pt"))
    other = recipe("xnli", "finetune", *finetune, *shape, "--dropout", 0.3, code=1)
    assert "was trained with other options or data" in other and other.count("\n") == 1

    with open(out / "data/train-de.tsv", "a") as file:
        file.write("a\tb\ta\n")
    assert "was trained with other options or data" in recipe("xnli", "finetune", *finetune, *shape, code=1)

    told = recipe("xnli", "evaluate", "--out", out, "--name", "translate-train.in", "--", "--cpu")
    assert "accuracy" in told and "mean" in told
    assert set(json.loads((out / "scores/translate-train.in.json").read_text())["seeds"][0]) == {"de", "en"}
    assert (out / "predictions/translate-train.in/test-de.txt").read_text().count("\n") == 10


@pytest.mark.parametrize(
    "task, expected",
    [("pawsx", "--nlu-task classification"), ("udpos", "--nlu-task tagging"), ("panx", "--nlu-task tagging"),
     ("xquad", "--nlu-task span --max-length 384"), ("mlqa", "--answer-metric mlqa"), ("tydiqa", "--nlu-task span")],
)  # fmt: skip
def test_the_papers_grid(task, expected, tmp_path):
    """fairseq-train is called with every point of it; here by a stand-in that fails at the last."""
    (tmp_path / "data").mkdir()
    for lang in ("en", "de"):
        (tmp_path / f"data/train-{lang}.tsv").touch()
    (tmp_path / "model.pt").touch()
    (tmp_path / "fairseq-train").write_text(f'#!/bin/bash\nprintf "%s " "$@" >>{tmp_path}/calls; echo >>{tmp_path}/calls\n')
    (tmp_path / "python").write_text(
        '#!/bin/bash\n[[ $2 == *batch64.epochs10.lr9e-6 ]] && exit 9\nmkdir -p "$2"; touch "$2/score"\n'
    )
    for name in ("fairseq-train", "python"):
        (tmp_path / name).chmod(0o755)
    arguments = ("--out", tmp_path, "--pretrained", tmp_path / "model.pt", "--setting", "translate-train", "--", "--cpu")
    recipes = tmp_path / "repository/data-bin-recipes"  # where there is no .venv
    shutil.copytree(RECIPES, recipes)
    recipe(task, "finetune", *arguments, code=9, path=[tmp_path], recipes=recipes)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == len(set(calls)) == 5 * 3 * 3
    assert all(expected in call and "--task veco_nlu" in call and "--train-langs" not in call for call in calls)
    assert "--batch-size 16 --max-epoch 3 --lr 5e-6" in calls[0]
    (tmp_path / "data/train-en.tsv").write_text("other data than those of the scores\n")
    refused = recipe(task, "finetune", *arguments, code=1, path=[tmp_path], recipes=recipes)
    assert "was trained with other options or data: remove it" in refused


@pytest.mark.parametrize("code, calls, message", [
    (143, 2, "fine-tuning failed (exit code 143): see the lines above"),
    (1, 3, "batch4.epochs2.lr2: failed, see the lines above; the best of the others is kept"),
])  # fmt: skip
def test_a_point_that_diverged_is_left_out_and_a_killed_training_ends_the_grid(code, calls, message, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "model.pt").touch()
    (tmp_path / "fairseq-train").write_text(
        f'#!/bin/bash\necho "$@" >>{tmp_path}/calls\n[[ "$*" != *"--lr 2 "* ]] || exit {code}\n'
    )
    (tmp_path / "python").write_text('#!/bin/bash\nmkdir -p "$2"; touch "$2/score" "$3/grid.json"\n')
    for name in ("fairseq-train", "python"):
        (tmp_path / name).chmod(0o755)
    recipes = tmp_path / "repository/data-bin-recipes"
    shutil.copytree(RECIPES, recipes)
    grid = ("--lrs", "1 2 3", "--epochs", "2", "--batches", "4")
    failed = recipe("udpos", "finetune", "--out", tmp_path, "--pretrained", tmp_path / "model.pt", *grid, "--", "--cpu", code=1,
                    path=[tmp_path], recipes=recipes)  # fmt: skip
    assert message in failed and len((tmp_path / "calls").read_text().splitlines()) == calls


@pytest.mark.parametrize(
    "task, script, arguments, message",
    [
        ("xnli", "prepare", ("--local", "{0}/none"), "none: is not there: --local must be the folder with the task's files"),
        ("xnli", "prepare", ("--local", "{0}"), "has no train set: no file train-@.tsv[.gz], with a language for @ (ar bg"),
        ("xnli", "prepare", ("--local", "{0}", "--train", "t.tsv"), "--train t.tsv: has no @ for the language"),
        ("xnli", "prepare", ("--langs", "en xx"), "--langs xx: must be one of ar bg"),
        ("mlqa", "prepare", ("--local", "{0}", "--translations", "{0}"), "--translations: is for downloads"),
        ("xnli", "finetune", ("--pretrained", "{0}/model.pt", "--epochs", "3 x"), "--epochs 3 x: must be whole numbers"),
        ("udpos", "prepare", ("--hold-out", "x"), "--hold-out x: must be a whole number"),
        ("xnli", "finetune", ("--pretrained", "{0}/none.pt"), "none.pt: is not there: --pretrained must be a checkpoint"),
        ("xnli", "finetune", ("--pretrained", "{0}/model.pt", "--plug", "in"), "give --setting translate-train"),
        ("xnli", "finetune", ("--pretrained", "{0}/model.pt"), "data: is not there: run prepare.sh first"),
        ("panx", "evaluate", (), "data: is not there: run prepare.sh first"),
        ("bucc", "prepare", ("--local", "{0}"), "give --dev PATTERN for other names\n"),  # it has no --hold-out
        ("bucc", "evaluate", (), "--pretrained is needed"),
    ],
)
def test_bad_input(task, script, arguments, message, tmp_path):
    (tmp_path / "model.pt").touch()
    given = [argument.format(tmp_path) for argument in arguments]
    refused = recipe(task, script, "--out", tmp_path / "out", *given, code=1)
    assert message in refused and refused.count("\n") == 1


def test_predictions_of_an_earlier_evaluation_are_gone(tmp_path):
    """It may have had more languages."""
    for path in (
        "checkpoints/m.s1/checkpoint_best.pt",
        "data/test-en.tsv",
        "predictions/m/test-de.txt",
        "predictions/m.valid/de.txt",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    script = f"source {REPOSITORY}/data-bin-recipes/lib/understanding.sh; OUT={tmp_path} EXTRA=(); run() {{ :; }}"
    options = "declare -A OPTIONS=([name]=m [from]= [seeds]=1)"
    subprocess.run(["bash", "-c", f"set -euo pipefail; {script}; {options}; evaluate_task"], check=True, capture_output=True)
    assert [path.name for path in (tmp_path / "predictions").iterdir()] == ["m.valid"]  # of --split valid


@pytest.mark.parametrize("folder, beside", [("there", "there"), ("here", "here"), ("none", "there")])
def test_a_linked_checkpoint_is_that_with_the_vocabulary(tmp_path, folder, beside):
    for name in ("here", "there", "none"):
        (tmp_path / name).mkdir()
    (tmp_path / "there/model.pt").touch()
    for name in {folder, "there"} - {"none"}:
        (tmp_path / name / "sentencepiece.bpe.model").touch()
    if folder != "there":
        (tmp_path / folder / "model.pt").symlink_to("../there/model.pt")
    script = f"set -euo pipefail; source {REPOSITORY}/data-bin-recipes/lib/understanding.sh; OPTIONS[pretrained]=$1; require_pretrained"
    command = [
        "bash",
        "-c",
        f'declare -A OPTIONS=(); {script}; printf %s "$PRETRAINED"',
        "recipe",
        tmp_path / folder / "model.pt",
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == str(tmp_path / beside / "model.pt")
