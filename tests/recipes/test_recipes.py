# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The shell side of the recipes: options, and steps that are skipped, remade, resumed or refused."""

import gzip
import json
import re
import shutil
import subprocess

import pytest
from support.shell import ENVIRONMENT, bash

from recipes import RECIPES, SCRIPTS


def test_the_scripts_are_found():
    assert {f"{path.parent.name}/{path.stem}" for path in SCRIPTS} >= {
        f"{recipe}/{step}" for recipe in ("toy", "multi30k") for step in ("prepare", "train", "finetune")
    } | {"multilingual/prepare", "multilingual/train", "xnli/prepare", "tatoeba/evaluate"}


def test_half_a_text_is_an_error():
    """A recipe ends where a part of a pipe fails."""
    for script in SCRIPTS:
        assert "\nset -euo pipefail\nsource " in script.read_text(encoding="utf-8"), script


PROGRAMS = {"train": "fairseq-train", "finetune": "fairseq-train", "compare": "fairseq-train", "understand": "fairseq-train",
            "backtranslate": "fairseq-train", "distill": "fairseq-train", "evaluate": "fairseq-generate"}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_script_has_help_and_refuses_an_unknown_option(script, tmp_path):
    options = {"capture_output": True, "text": True, "env": ENVIRONMENT, "cwd": tmp_path}
    result = subprocess.run(["bash", script, "--help"], **options)
    assert result.returncode == 0 and f"usage: {script.name} [--out DIR]" in result.stdout
    assert "Copyright" not in result.stdout and "set -e" not in result.stdout
    program = PROGRAMS.get(script.stem)
    if script.parts[-3] == "xtreme" and script.stem == "evaluate":
        task = script.parent.name
        program = f"retrieve.py {task}" if task in ("bucc", "tatoeba") else "evaluate_xtreme.py run"
    assert re.findall(r"\[-- OPTIONS OF (.+)\]", result.stdout) == ([program] if program else [])
    result = subprocess.run(["bash", script, "--no-such"], **options)
    assert result.returncode == 1
    name = f"{script.parent.name}/{script.name}"
    assert result.stderr.startswith(f"{name}: error: --no-such: no such option (there are --out ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--size"], "--size: needs a value"),
        (["--kind", "--size", "3"], "--kind: needs a value"),
        (["--kind", "--"], "--kind: needs a value"),
        (["--size", "3x"], "--size 3x: must be a whole number"),
        (["--size", "00"], "--size 00: must be a whole number"),
        (["--kind", "z"], "--kind z: must be one of: x y"),
        (["stray"], "stray: is not an option (there are --size --kind)"),
    ],
)
def test_bad_options(tmp_path, arguments, message):
    script = 'parse_options size=1 kind=x -- "$@"; require_positive size; require_choice kind x y; echo ran'
    result = bash(tmp_path, script, *arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"my recipe/run.sh: error: {message}\n"


def test_options_and_what_follows_two_dashes(tmp_path):
    script = 'PROGRAM=any; parse_options size=1 kind= -- "$@"; printf "%s|" "${OPTIONS[size]}" "${OPTIONS[kind]}" "${EXTRA[@]}"'
    result = bash(tmp_path, script, "--kind", "a b", "--", "--lr", "1 2")
    assert (result.stderr, result.stdout) == ("", "1|a b|--lr|1 2|")


def test_nothing_may_follow_two_dashes_where_no_program_takes_it(tmp_path):
    result = bash(tmp_path, 'parse_options size=1 -- "$@"', "--", "--cpu")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "my recipe/run.sh: error: --: no program here takes further options: leave out --cpu\n"


@pytest.mark.parametrize("given, expected", [
    ((), "5||"), (("--try",), "1|1|.try"), (("--size", "5", "--try"), "5|1|.try"), (("--try", "--size", "7"), "7|1|.try"),
    (("--try", "--out", "there"), "1|1|there"), (("--out", "there"), "5||there"),
])  # fmt: skip
def test_try_makes_small_what_was_not_given(tmp_path, given, expected):
    script = """parse_options out= size=5 try -- "$@"; in_try size=1; choose_out x
        [[ $OUT != */data-bin/x* ]] || OUT=${OUT#*/data-bin/x}; OUT=${OUT#"$PWD/"}; printf "%s|%s|%s" "${OPTIONS[size]}" "${OPTIONS[try]}" "$OUT" """
    result = bash(tmp_path, script, *given)
    assert (result.stderr, result.stdout) == ("", expected)


def test_a_text_is_taken_plain_or_compressed(tmp_path):
    script = f"source '{RECIPES}/lib/downloads.sh'; for name; do find_text . $name 'both are needed'; first 2 $FILE; done"
    folder = tmp_path / "my recipe"
    folder.mkdir()
    (folder / "a").write_text("1\n2\n3\n")
    (folder / "a.gz").write_bytes(gzip.compress(b"not this\n"))
    (folder / "b.gz").write_bytes(gzip.compress(b"4\n5\n6"))
    assert bash(tmp_path, script, "a", "b").stdout == "1\n2\n4\n5\n"
    missing = bash(tmp_path, script, "a", "c")
    assert (missing.returncode, missing.stderr) == (1, "my recipe/run.sh: error: ./c[.gz]: is not there: both are needed\n")


def prepare_multi30k(tmp_path, *options):
    command = ["bash", RECIPES / "multi30k/prepare.sh", "--out", tmp_path / "out", *options]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)


def test_multi30k_takes_plain_files(tmp_path):
    result = prepare_multi30k(tmp_path, "--local", tmp_path)
    name = "train.en[.gz]: is not there: --local needs {train,val,test_2016_flickr}.{en,de}, plain or .gz"
    assert result.returncode == 1 and f"/{name}\n" in result.stderr and result.stderr.count("\n") == 1
    (tmp_path / "train.en").write_text("A man.\n")
    result = prepare_multi30k(tmp_path, "--local", tmp_path)
    assert result.stderr.startswith("multi30k/prepare.sh: error: train.en: is not the text that this recipe")


@pytest.mark.parametrize("name, text, options, expected", [
    ("a.tsv", "a b\tc\t0\nd\te\t1\n", ["--first", "1"], "a b\tc\t0\n"),
    ("a.tsv", "x\ty\tlabel\na\tb\t0\nc\td\t1\n", ["--first", "1"], "x\ty\tlabel\na\tb\t0\n"),
    ("a.tsv", "a\tb\tlabel_1\nc\td\tlabel_0\n", ["--last", "1"], "c\td\tlabel_0\n"),
    ("a.tsv", "a b\tc\t0\n", ["--first", "5"], "a b\tc\t0\n"),
    ("a.tsv", "a\tB\nb\tO\n\nc\tO\nd\tO\n\n", ["--first", "1"], "a\tB\nb\tO\n\n"),
    ("a.tsv", "a b\tc\t0\nd\te\t1\n", ["--text"], "a b c 0\nd e 1\n"),
    ("a.tsv", "a\tB\nb\tO\n\nc\tO\n\n", ["--text"], "a b\nc\n"),
    ("a.conllu", "# x\n1\ta\t_\tX\n2\tb\t_\tX\n\n# y\n1\tc\t_\tX\n\n", ["--text"], "a b\nc\n"),
    ("a.conllu", "1\ta\n\n1\tb\n\n", ["--first", "1"], "1\ta\n\n"),
    ("a.tsv", "a\n\u00a0\nb\n\n\f\n \t\n\nc\n", ["--first", "2"], "a\n\u00a0\nb\n\n\f\n\n"),
    ("a.source", "a b\nc\n", ["--text"], "a b\nc\n"),
    ("a.json", json.dumps({"data": [{"paragraphs": [{"context": "a\nb", "qas": []}]}]}), ["--text"], "a b\n"),
])  # fmt: skip
def test_examples_for_a_try(tmp_path, run, name, text, options, expected):
    (tmp_path / name).write_text(text, encoding="utf-8")
    result = run("data-bin-recipes/xtreme/examples.py", tmp_path / name, *options)
    assert (result.stderr, result.stdout) == ("", expected)


COPY = 'step first a.out cp "$1" a.out; step second b.out to_file "{}" cat a.out'


def test_steps_run_once_and_again_when_their_file_changes(tmp_path):
    source = tmp_path / "source file"
    source.write_text("1")
    folder = tmp_path / "my recipe"
    assert bash(tmp_path, COPY, source).stdout.count(" done in ") == 2
    again = bash(tmp_path, COPY, source).stdout
    assert again == "[first] already there: a.out\n[second] already there: b.out\n"
    source.write_text("2")
    assert bash(tmp_path, COPY, source).stdout.count(" done in ") == 2
    assert (folder / "b.out").read_text() == "2"
    (folder / "a.out").unlink()
    assert bash(tmp_path, COPY, source).stdout.count(" done in ") == 2
    # Another command, in the second step alone.
    changed = bash(tmp_path, COPY.replace("cat a.out", "cat a.out a.out"), source).stdout
    assert "[first] already there" in changed and "[second] done" in changed
    assert (folder / "b.out").read_text() == "22"


PREFIX = """
step pieces pieces make_pieces "{}" source
step binarise data binarise pieces/train "{}"
training train model train data model model/log
"""
STAND_INS = """
make_pieces() { mkdir "$1" && cp "$2" "$1/train.en"; }
binarise() { mkdir "$2" && cp "$1.en" "$2/bin" && touch "$2/dict.txt"; }
train() { touch "$2/checkpoint_1_1.pt" "$3" "$3.old"; }
"""


def test_a_prefix_of_texts_stands_for_them(tmp_path):
    """What is made from other pieces is another thing, also when the script was killed after making them."""
    folder = tmp_path / "my recipe"
    folder.mkdir()
    (folder / "source").write_text("1")
    assert bash(tmp_path, STAND_INS + PREFIX).stdout.count(" done in ") == 3
    (folder / "source").touch()
    assert bash(tmp_path, STAND_INS + PREFIX).stdout.count("already there") == 3
    # The same pieces, made anew.
    (folder / "pieces.done").unlink()
    again = bash(tmp_path, STAND_INS + PREFIX)
    assert again.returncode == 0 and again.stdout.count(" done in ") == 2 and "[train] already there" in again.stdout
    (folder / "source").write_text("2")
    pieces, *others = PREFIX.strip().splitlines()
    assert bash(tmp_path, STAND_INS + pieces).stdout.count(" done in ") == 1
    rest = bash(tmp_path, STAND_INS + "\n".join(others))
    assert (folder / "data/bin").read_text() == "2"
    assert rest.returncode == 1 and "model: was trained with other options or data" in rest.stderr


def test_failed_step_leaves_no_output_and_ends_the_script(tmp_path):
    script = "make() { echo half >\"$1\"; return 3; }; step broken a.out make '{}'; echo not reached"
    result = bash(tmp_path, script)
    assert result.returncode == 1
    assert result.stderr == "my recipe/run.sh: error: broken failed (exit code 3): see the lines above\n"
    assert "not reached" not in result.stdout
    assert not (tmp_path / "my recipe" / "a.out").exists()
    # The next run starts from nothing.
    assert bash(tmp_path, "step broken a.out touch '{}'").returncode == 0
    assert (tmp_path / "my recipe" / "a.out").read_text() == ""


TRAIN = """
train() { echo "$2" >>"$1/log"; [[ -e ok ]] || return 1; touch "$1/checkpoint_last.pt"; }
training train model train model "$1"
"""


def test_training_is_resumed_and_other_options_are_refused(tmp_path):
    folder = tmp_path / "my recipe"
    assert bash(tmp_path, TRAIN, "1").returncode == 1
    (folder / "ok").touch()
    # Nothing was saved yet, so other options are fine; the folder was not cleared.
    assert bash(tmp_path, TRAIN, "2").returncode == 0
    assert (folder / "model/log").read_text() == "1\n2\n"
    assert "already there" in bash(tmp_path, TRAIN, "2").stdout
    (folder / "model.done").unlink()
    assert bash(tmp_path, TRAIN, "2").returncode == 0
    assert (folder / "model/log").read_text() == "1\n2\n2\n"
    refused = bash(tmp_path, TRAIN, "3")
    assert refused.returncode == 1
    assert refused.stderr == (
        "my recipe/run.sh: error: model: was trained with other options or data: remove it, or choose another --out or --name\n"
    )


def test_a_training_that_is_made_anew_and_stopped_is_not_done(tmp_path):
    """Its folder was removed, and what notes that it was done is beside it."""
    folder = tmp_path / "my recipe"
    folder.mkdir()
    (folder / "ok").touch()
    assert bash(tmp_path, TRAIN, "2").returncode == 0
    shutil.rmtree(folder / "model")
    (folder / "ok").unlink()
    assert bash(tmp_path, TRAIN, "2").returncode == 1 and (folder / "model/log").exists()
    (folder / "ok").touch()
    assert "already there" not in bash(tmp_path, TRAIN, "2").stdout
    assert (folder / "model/log").read_text() == "2\n2\n"


@pytest.mark.parametrize("call", ["training train model ./train", "step translation out to_file out ./train"])
def test_sigterm_goes_on_to_the_training(tmp_path, call):
    folder = tmp_path / "my recipe"
    folder.mkdir()
    # It kills the recipe, and takes a while to save.
    (folder / "train").write_text(
        "#!/bin/bash\ntrap 'sleep 0.2; touch saved; exit 143' TERM; kill $PPID; for i in {1..40}; do sleep 0.05; done\n"
    )
    (folder / "train").chmod(0o755)
    result = bash(tmp_path, f"{call}; echo not reached")
    assert (result.returncode, result.stderr) == (143, "") and "not reached" not in result.stdout
    assert (folder / "saved").exists() and not list(folder.glob("*.done"))


def test_sigterm_reaches_a_program_that_has_just_begun(tmp_path):
    """Its number is not known yet."""
    folder = tmp_path / "my recipe"
    folder.mkdir()
    (folder / "train").write_text("#!/bin/bash\nsleep 3; touch trained\n")
    (folder / "train").chmod(0o755)
    trap = "set -T; trap '[[ $BASH_COMMAND != child=\\$!* ]] || kill $$' DEBUG"
    result = bash(tmp_path, f"{trap}; run ./train; echo not reached")
    assert (result.returncode, result.stdout, result.stderr) == (143, "", "") and not (folder / "trained").exists()


def test_multi30k_refuses_a_text_that_is_not_multi30k(tmp_path):
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(b"A man.\n"))
    result = prepare_multi30k(tmp_path, "--local", tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("multi30k/prepare.sh: error: train.en: is not the text that this recipe")
    assert not (tmp_path / "out/raw/train.en").exists()


def test_multi30k_refuses_a_language_with_itself(tmp_path):
    result = prepare_multi30k(tmp_path, "--src", "de", "--tgt", "de")
    assert (result.returncode, result.stderr) == (1, "multi30k/prepare.sh: error: --src and --tgt are both de\n")


def test_examples_lines_end_at_line_feeds_alone(tmp_path, run):
    (tmp_path / "a.tsv").write_bytes("a\rb\tc\t0\nd\u2028e\tf\t1\ng\th\t0\n".encode())
    result = run("data-bin-recipes/xtreme/examples.py", tmp_path / "a.tsv", "--but-last", "1")
    assert result.stdout == "a\rb\tc\t0\nd\u2028e\tf\t1\n" and result.stderr == ""
