# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options of the recipes of understanding that cannot be, and what is said of a grid or a set that is not as it should be."""

import re

import pytest
from support.shell import bash

from recipes import RECIPES

FINETUNE = "finetune_options"
EVALUATE = "evaluate_options"
NUMBERS = "must be whole numbers"
BAD = [
    (FINETUNE, "--arm none", "must be one of: pretrained random"),
    (FINETUNE, "--setting none", "must be one of: transfer translate-train"),
    (FINETUNE, "--plug none", "must be one of: out in"),
    (FINETUNE, "--workers x", "must be a whole number"),
    *((FINETUNE, f"--{name} x3", NUMBERS) for name in ("epochs", "batches", "seeds")),
    *((EVALUATE, f"--{name} 1,2", NUMBERS) for name in ("seeds",)),
]


def understanding(tmp_path, script):
    return bash(tmp_path, f"source '{RECIPES}/lib/understanding.sh'\nOUT='{tmp_path}'\n{script}")


def errors(result):
    return [line.split(": error: ", 1)[1] for line in result.stderr.splitlines()]


def test_options_that_cannot_be_are_refused(tmp_path):
    calls = "\n".join(f"({reader} -- {given}) || :" for reader, given, _ in BAD)
    result = understanding(tmp_path, f"require_pretrained() {{ :; }}\n{calls}\n({EVALUATE} -- --seed x) || :")
    assert errors(result) == [f"{given}: {message}" for _, given, message in BAD] + [f"--seeds x: {NUMBERS}"]


def test_a_batch_is_divided_among_the_workers(tmp_path):
    (tmp_path / "data").mkdir()
    script = f"require_pretrained() {{ PRETRAINED=x/y; }}; grid() {{ echo $WORKERS; }}; {FINETUNE} -- --out {tmp_path} --workers"
    given = "--batches '6 9' -- --amp; finetune_task"
    assert understanding(tmp_path, f"{script} 3 {given}").stdout == "3\n"
    assert errors(understanding(tmp_path, f"{script} 2 {given}")) == [
        "--batches 9: cannot be divided among 2 workers: give --workers N"
    ]


def test_what_the_grid_sets_is_not_passed_over(tmp_path):
    for given, option in (("--lr 1e-3", "--lr"), ("--cpu --max-epoch=2", "--max-epoch"), ("--save-dir x", "--save-dir")):
        result = understanding(tmp_path, f"require_pretrained() {{ :; }}; {FINETUNE} -- -- {given}")
        assert errors(result) == [f"{option}: is the grid's: give --lrs, --epochs, --batches or --name before the --"]


def test_translations_are_of_several_languages(tmp_path):
    (tmp_path / "data").mkdir()
    script = f"require_pretrained() {{ PRETRAINED=x/y; }}; grid() {{ echo $1; }}; {FINETUNE} -- --out {tmp_path} --workers 1"
    for name in ("train-en.tsv", "train-en.tsv.done", "dev-de.tsv"):
        (tmp_path / "data" / name).touch()
    call = f"{script} --setting translate-train -- --cpu; finetune_task"
    assert errors(understanding(tmp_path, call)) == [
        f"--setting translate-train: {tmp_path}/data has training data in one language alone: put the translations there, as "
        "train-LANG, or give --setting transfer"
    ]
    (tmp_path / "data/train-de.tsv").touch()
    assert understanding(tmp_path, call).stdout == f"{tmp_path}/checkpoints/translate-train.out.s1\n"


SETS = "declare -A OPTIONS=([local]= [train]= [hold-out]=1) MADE=() SOURCE={0}; some() {{ cat $1; }}; LANGS=(en de); examples train json {1}"


def test_several_files_of_one_language_are_refused(tmp_path):
    """... but where they can follow each other."""
    for name in ("a.en", "b.en", "c.de"):
        (tmp_path / name).write_text(f"{name}\n")
    script = SETS.format(tmp_path, "'*.@'")
    assert errors(understanding(tmp_path, script)) == [
        f"{tmp_path}/a.en {tmp_path}/b.en: are several files of one language: --train must match only one"
    ]
    assert understanding(tmp_path, script.replace("json", "conllu")).returncode == 0
    assert (tmp_path / "data/train-en.conllu").read_text() == "a.en\n\nb.en\n"


@pytest.mark.parametrize("folder", ["R&D texts", "[a]*'\\\\"])
def test_texts_are_found_in_a_folder_of_any_name(tmp_path, folder):
    """Where bash replaces a pattern, it takes an & that is not in quotes for what the pattern matched."""
    (tmp_path / folder).mkdir()
    for lang in ("en", "de"):
        (tmp_path / folder / f"a.{lang}").write_text(f"{lang}\n")
    script = SETS.replace("SOURCE={0}", 'SOURCE="$1"').format("", "a.@").replace("json", "conllu")
    result = bash(tmp_path, f"source '{RECIPES}/lib/understanding.sh'; OUT='{tmp_path}'; {script}", tmp_path / folder)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "data/train-de.conllu").read_text() == "de\n"


def test_a_text_without_a_line_is_refused(tmp_path):
    for lang in ("en", "de"):
        (tmp_path / f"t.{lang}").write_text("1\n" * (lang == "en"))
    script = SETS.replace("[local]= [train]=", "[local]={0} [train]={1}").format(tmp_path, "t.@")
    assert errors(understanding(tmp_path, script)) == [f"{tmp_path}/t.de: has no text"]


def test_it_is_said_that_rows_are_no_translations(tmp_path):
    script = SETS.format(tmp_path, "t.@")
    for lines, told in (("1\n2\n", False), ("1\n2\n3\n", True)):
        (tmp_path / "t.en").write_text("1\n2\n")
        (tmp_path / "t.de").write_text(lines)
        result = understanding(tmp_path, script)
        assert ("the training sets differ in length" in result.stdout) == told and result.returncode == 0, result.stderr


def test_a_point_that_is_not_finished_is_named(tmp_path):
    for name in (
        "data/x",
        "checkpoints/mine.s2/checkpoint_best.pt",
        "checkpoints/mine.s2/lr1/score",
        "checkpoints/mine.s2/lr2/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    script = f"python() {{ :; }}; {EVALUATE} -- --out {tmp_path} --name mine --seed 2; evaluate_task"
    result = understanding(tmp_path, script)
    assert result.stdout == "lr2 of mine.s2 is not finished: this evaluates the best of the others\n", result.stderr


def test_other_data_of_any_kind_are_another_training(tmp_path):
    """... whose scores are none of the grid's."""
    script = f"""require_pretrained() {{ PRETRAINED=x/y; }}; same_training() {{ echo "${{@: -1}}"; }}; grid() {{ :; }}
        mkdir {tmp_path}/data; {FINETUNE} -- --out {tmp_path} --workers 1 -- --cpu; finetune_task
        for name in a.tsv b.conllu c.json; do echo $name >{tmp_path}/data/$name; finetune_task; done"""
    sums = understanding(tmp_path, script).stdout.splitlines()
    assert len(sums) == len(set(sums)) == 4


def test_a_grid_whose_first_training_fails_is_at_an_end(tmp_path):
    """It is the command that is wrong, and all other points would fail, too."""
    script = "train() { echo trains; return 1; }; OPTIONS[batches]=2 OPTIONS[epochs]=1 WORKERS=1; grid made '1 2' train"
    result = understanding(tmp_path, f"declare -A OPTIONS=(); {script}")
    assert errors(result) == ["fine-tuning failed (exit code 1): see the lines above"] and result.stdout.count("trains") == 1


def test_points_that_were_not_asked_for_and_count_are_told(tmp_path):
    """The best of all is kept, as where a grid is made larger call by call."""
    for point in ("batch2.epochs1.lr1", "batch2.epochs1.lr2", "batch2.epochs1.lr3", "batch2.epochs1.lr11"):
        (tmp_path / "my recipe/made" / point).mkdir(parents=True)
    for point in ("batch2.epochs1.lr1", "batch2.epochs1.lr2", "batch2.epochs1.lr11"):
        (tmp_path / "my recipe/made" / point / "score").touch()
    script = "declare -A OPTIONS=(); OPTIONS[batches]=2 OPTIONS[epochs]=1 WORKERS=1; grid made"
    told = "batch2.epochs1.lr11 batch2.epochs1.lr2 of earlier calls count, too: to leave them out, give another --name"
    assert understanding(tmp_path, f"{script} 1 train").stdout.splitlines()[1:] == [f"[fine-tuning] {told}"]
    assert "earlier" not in understanding(tmp_path, f"{script} '1 2 11' train").stdout


def test_a_point_of_a_grid_that_was_cut_off_is_trained_again(tmp_path):
    (tmp_path / "my recipe/made/batch2.epochs1.lr1").mkdir(parents=True)
    (tmp_path / "my recipe/made/batch2.epochs1.lr2").mkdir()
    (tmp_path / "my recipe/made/batch2.epochs1.lr2/score").touch()
    script = "train() { echo trains $6; }; python() { :; }; OPTIONS[batches]=2 OPTIONS[epochs]=1 WORKERS=1; grid made '1 2' train"
    result = understanding(tmp_path, f"declare -A OPTIONS=(); {script}")
    assert re.findall(r"trains (\S+)|already there: (\S+)", result.stdout) == [("1", ""), ("", "made/batch2.epochs1.lr2")]


def test_help_tells_the_grid_that_is_run(tmp_path):
    script = f"""require_pretrained() {{ PRETRAINED=x/y; }}; same_training() {{ :; }}; grid() {{ echo "$2"; }}; mkdir {tmp_path}/data; touch {tmp_path}/data/train-{{en,de}}.tsv
        for setting in transfer translate-train; do {FINETUNE} -- --out {tmp_path} --workers 1 --setting $setting -- --cpu; finetune_task; done
        echo "${{ABOUT[lrs]}}" """
    transfer, translated, *_, about = understanding(tmp_path, script).stdout.splitlines()
    assert about == f"the grid's learning rates (default: {transfer}, for translate-train {translated})"


def test_translations_are_found_from_where_the_recipe_was_called(tmp_path):
    name = "squad.translate.train.en-de.json"
    (tmp_path / "my recipe/mine").mkdir(parents=True)
    (tmp_path / f"my recipe/mine/{name}").touch()
    script = 'declare -A OPTIONS=([translations]=mine [local]=); archive() { :; }; step() { echo "${@: -1}"; }; squad'
    assert understanding(tmp_path, script).stdout == f"{tmp_path}/my recipe/mine/{name}\n"


def test_translations_of_another_folder_are_refused(tmp_path):
    script = f"declare -A OPTIONS=([translations]={tmp_path} [local]=); archive() {{ :; }}; squad"
    assert errors(understanding(tmp_path, script)) == [f"{tmp_path}: has no squad.translate.train.en-LANG.json"]
