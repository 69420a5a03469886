# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Data whose preparation was cut off are not taken for whole ones: a model would be of fewer languages, and so its scores."""

import os
import subprocess

import pytest
from support.sourced import sourced

from recipes import RECIPES, Place


@pytest.fixture
def call(tmp_path):
    """A script of a recipe with --out and options: its exit code and its last line."""

    def run(script, *options):
        command = ["bash", RECIPES / f"{script}.sh", "--out", tmp_path / "out", *options]
        result = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "VECO_SKIP_SETUP": "1"}
        )
        return result.returncode, result.stdout.splitlines()[-1]

    return run


def test_a_task_without_its_last_set_is_not_trained_on(tmp_path, call):
    local = tmp_path / "local"
    local.mkdir()
    (tmp_path / "model.pt").touch()
    for split in ("train", "dev"):
        (local / f"{split}-en.tsv").write_text("a\tb\tyes\n")
    prepare = ("xtreme/xnli/prepare", "--local", local, "--langs", "en")
    assert call(*prepare)[0] == 1
    told = f"error: {tmp_path}/out: the data are not whole: prepare.sh was interrupted, or runs: let it come to its end"
    for script, *options in (("finetune", "--pretrained", tmp_path / "model.pt"), ("evaluate",)):
        assert call(f"xtreme/xnli/{script}", *options) == (1, f"xnli/{script}.sh: {told}")
    (local / "test-en.tsv").write_text("a\tb\tyes\n")
    assert call(*prepare)[0] == 0
    assert call("xtreme/xnli/evaluate")[1].endswith("checkpoint_best.pt: is not there: run finetune.sh first")


@pytest.mark.parametrize("retrieval", ["tatoeba", "bucc"])
def test_sentences_that_are_not_all_there_are_not_looked_through(tmp_path, call, retrieval):
    (tmp_path / "out/data").mkdir(parents=True)
    (tmp_path / "out/data.unfinished").touch()
    (tmp_path / "model.pt").touch()
    code, last = call(f"xtreme/{retrieval}/evaluate", "--pretrained", tmp_path / "model.pt")
    assert code == 1 and "out: the data are not whole" in last


def test_a_root_that_is_not_whole_is_not_trained_on(tmp_path):
    (tmp_path / "pretrain").mkdir()
    (tmp_path / "pretrain/dict.txt").touch()
    train = 'fairseq-train() { echo trained; touch "$OUT/checkpoints/camlm/checkpoint_last.pt"; }; pretrain "$OUT" camlm 1 1'
    (tmp_path / "pretrain/.progress.json").touch()
    result = sourced(tmp_path, train)
    assert result.returncode == 1 and f"{tmp_path}/pretrain: the data are not whole" in result.stderr
    (tmp_path / "pretrain/.progress.json").unlink()
    assert "trained\n" in sourced(tmp_path, train).stdout


@pytest.mark.parametrize(
    "task, gone", [("pud", "LOCAL/ud/cs_pud-ud-test.conllu.gz"), ("flores", "LOCAL/flores101/spa.devtest.gz")]
)
def test_languages_of_the_comparisons_that_are_not_all_there_are_not_trained_on(tmp_path, task, gone):
    """The scripts of XTREME look at the mark."""
    place = Place(tmp_path)
    case = "evidence/prepare_understanding --out OUT --local LOCAL"
    mark = place.folder / f"OUT/understanding/{task}/data.unfinished"
    assert "!" not in place.call(case) and not mark.exists()
    fill = place.fill
    place.fill = lambda script: (fill(script), (place.folder / gone).unlink())
    assert "local needs it" in place.call(case) and mark.exists()


def test_the_data_are_not_whole_from_the_first_text_that_is_downloaded(tmp_path):
    """A new test set would be the reference of the old one's translations."""
    download = 'download() { [[ -e $OUT/data.unfinished ]] && echo "a line"; }'
    result = sourced(tmp_path, f"{download}; raw test download")
    assert result.returncode == 0 and (tmp_path / "data.unfinished").exists(), result.stderr
    assert (tmp_path / "raw/test.en").read_text() == (tmp_path / "raw/test.de").read_text() == "a line\n"


@pytest.mark.parametrize("recipe, texts, wrong", [
    ("toy", "", "--words x"),
    ("multi30k", "--local LOCAL", "--local OTHER"),
    ("many-to-many", "--local LOCAL", "--local OTHER"),
    ("wmt14.en-de", "--local LOCAL --pretrained MODEL", "--local LOCAL --pretrained LOCAL/mono"),
])  # fmt: skip
def test_a_test_set_is_not_the_reference_of_another_ones_translations(tmp_path, monkeypatch, recipe, texts, wrong):
    """... nor is a model trained on other texts than those of the folder: from the first text to the last data they are not whole."""
    place = Place(tmp_path)
    place.fill(f"{recipe}/prepare")
    monkeypatch.setattr(place, "fill", lambda script: None)
    python, out = place.programs / "python", place.folder / "OUT"
    works = python.read_text()
    python.write_text(works.replace('case "$*" in', '[[ $* != *binarize.py* ]] || exit 1\ncase "$*" in', 1))
    for pair in ("", ".aa-bb", ".en-de"):
        place.write(f"OUT/mt{pair}/dict.en.txt", "of an earlier call")
    place.write("OUT/checkpoints/finetune.veco.s1/checkpoint_last.pt")
    prepare = f"{recipe}/prepare --out OUT"
    assert "binarise failed" in place.call(f"{prepare} {texts}")
    error = "error: OUT: the data are not whole: prepare.sh was interrupted, or runs: let it come to its end\n"
    model = "--pretrained MODEL" * recipe.startswith("wmt")
    scripts = {"finetune": model, "evaluate": "", "distill": model, "backtranslate": f"{model} --monolingual LOCAL/mono"}
    for script, options in scripts.items():
        if (RECIPES / recipe / f"{script}.sh").exists():
            told = place.call(f"GPUS=1 {recipe}/{script} --out OUT {options}")
            assert told.endswith(f"! {recipe}/{script}.sh: {error}") and "scripts/" not in told and "fairseq-" not in told
    python.write_text(works)
    assert "!" not in place.call(f"{prepare} {texts}") and not (out / "data.unfinished").exists()
    assert "error: " in place.call(f"{prepare} {wrong}") and not (out / "data.unfinished").exists()


UNFINISHED = "the training was interrupted, or runs: what is made of it now is not of the whole training\n"


@pytest.mark.parametrize("script, options, folder", [
    ("toy/finetune", "", "OUT/checkpoints/camlm"), ("toy/evaluate", "", "OUT/checkpoints/finetune.veco.s1"),
    ("wmt14.en-de/finetune", "--pretrained {}/checkpoint_last.pt", "OUT/checkpoints/camlm"),
    ("wmt14.en-de/evaluate", "", "OUT/checkpoints/finetune.veco.s1"),
    ("wmt14.en-de/distill", "--pretrained MODEL", "OUT/checkpoints/finetune.veco.s1"),
    ("evidence/attention", "--arm veco", "OUT/checkpoints/camlm.veco.s1"),
])  # fmt: skip
def test_a_model_whose_training_has_not_ended_is_told(tmp_path, monkeypatch, script, options, folder):
    """... as where its job came to its time limit."""
    place, told, start = Place(tmp_path), [], subprocess.run
    place.fill(script)
    monkeypatch.setattr(place, "fill", lambda script: None)
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: told.append(start(*words, **options)) or told[-1])
    for name in ("dict.txt", "sentencepiece.bpe.model", "checkpoint_last.pt"):
        place.write(f"{folder}/{name}")
    for ending in ("none", "begun", "done"):
        place.write(f"{folder}.{ending}")
        place.call(f"GPUS=1 {script} --out OUT {options.format(folder)}")
    assert [f"{place.folder}/{folder}: {UNFINISHED}" in result.stdout for result in told] == [False, True, False]
