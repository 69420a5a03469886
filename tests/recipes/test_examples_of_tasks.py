# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which files of a folder a task of understanding takes, which it keeps, and what it says of the others."""

import gzip
import json
import os
import subprocess
import sys

import pytest
from conftest import REPOSITORY, error_line
from support.modules import load_script

LIB = REPOSITORY / "data-bin-recipes/lib"


def sourced(folder, script, *arguments):
    """Lines of bash that have sourced understanding.sh and know its options of prepare.sh."""
    names = "hold-out=0 train=train-@.tsv dev=dev-@.tsv test=test-@.tsv langs='en de fr'"
    source = f"set -euo pipefail; source {LIB}/understanding.sh; python() {{ echo python ${{*:2}}; }}; prepare_options {names} --"
    command = [
        "bash",
        "-c",
        f'{source} "$@"; unpacked; {script}',
        "run.sh",
        "--out",
        folder / "out",
        "--local",
        folder,
        *arguments,
    ]
    environment = {**os.environ, "VECO_SKIP_SETUP": "1"}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)


def leave(folder, **texts):
    for name, text in texts.items():
        name = name.replace("__", "-").replace("_", ".")
        (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_languages_without_a_file_are_told_and_the_plain_file_counts(tmp_path):
    leave(tmp_path, train__en_tsv="a\n", train__en_tsv_gz="not this\n", train__de_tsv_gz="b\n", train__x_tsv="of no language\n")
    result = sourced(tmp_path, "examples train tsv none any; tidy")
    assert result.returncode == 0 and "no train set for fr\n" in result.stdout, result.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "out/data").glob("*.tsv")} == {
        "train-en.tsv": "a\n", "train-de.tsv": "b\n",
    }  # fmt: skip
    assert "no train set for" not in sourced(tmp_path, "examples train tsv none any", "--langs", "en de").stdout


@pytest.mark.parametrize("arguments, message", [
    (("--train", "t*-@.tsv"), "train-en.tsv {0}/two-en.tsv: are several files of one language: --train must match only one"),
    (("--dev", "none-@"), "{0}: has no dev set: no file none-@[.gz], with a language for @ (en de fr): give --dev PATTERN for other "
     "names, or --hold-out N, which takes it from the training set"),
    (("--test", "none"), "--test none: has no @ for the language: put one in, or give --langs LANG"),
    (("--test", "none", "--langs", "en"), "{0}: has no test set: no file none[.gz], with a language for @ (en): "
     "give --test PATTERN for other names"),
])  # fmt: skip
def test_files_that_are_not_taken(tmp_path, arguments, message):
    leave(tmp_path, train__en_tsv="a\n", two__en_tsv="b\n")
    split = arguments[0].removeprefix("--")
    assert error_line(sourced(tmp_path, f"examples {split} tsv none any", *arguments)).endswith(message.format(tmp_path))


def test_gold_of_other_languages_is_nothing_to_train_on(tmp_path):
    """What a download has of them is no translation; the end of it may be their development set."""
    leave(tmp_path, train__en_tsv="a\nb\n", train__de_tsv="c\nd\n")
    script = f"OPTIONS[local]=; SOURCE={tmp_path}; GOLD=1; examples train tsv train-@.tsv first 0; tidy"

    def made(*arguments):
        result = sourced(tmp_path, script, *arguments)
        assert result.returncode == 0 and "of de" not in result.stdout and "differ" not in result.stdout, result.stderr
        return sorted(path.name for path in (tmp_path / "out/data").glob("*.tsv"))

    assert made("--langs", "en de", "--hold-out", "1") == ["dev-de.tsv", "dev-en.tsv", "train-en.tsv"]
    assert made("--langs", "en de") == ["train-en.tsv"] and made("--langs", "de") == []
    (tmp_path / "out/data").mkdir(exist_ok=True)
    (tmp_path / "out/data/train-de.tsv").write_text("of the user\n")
    assert made("--langs", "en de") == ["train-de.tsv", "train-en.tsv"]
    (tmp_path / "train-en.tsv").unlink()
    assert "has no train set: no file train-@.tsv[.gz]" in error_line(sourced(tmp_path, script))


@pytest.mark.parametrize("split, more", [("train", ""), ("dev", ", or --hold-out N, which takes it from the training set")])
def test_a_download_without_a_set_of_these_languages_needs_another_language(tmp_path, split, more):
    """... such as SQuAD's, which is English: its names are not those of --train, which is for --local."""
    leave(tmp_path, train__en_tsv="a\n", dev__en_tsv="b\n")
    script = f"OPTIONS[local]=; SOURCE={tmp_path}; examples {split} tsv {split}-@.tsv first 0"
    assert error_line(sourced(tmp_path, script, "--langs", "de fr")).endswith(
        f"{tmp_path}: has no {split} set: no file {split}-@.tsv[.gz], with a language for @ (de fr): add a language that has one to "
        f"--langs{more}"
    )


def test_treebanks_of_a_language_are_several_files(tmp_path):
    """... plain or .gz, of which the last sentence may lack its blank line."""
    leave(tmp_path, b__en_conllu_gz="two", a__en_conllu="one\n", B__en_conllu="none\n", a__en_conllu_gz="not this\n")
    result = sourced(
        tmp_path, "examples train conllu none any; cat $OUT/data/train-en.conllu", "--train", "[ab]-@.conllu", "--langs", "en"
    )
    assert result.stdout.endswith("\none\n\ntwo\n"), result.stderr


@pytest.mark.parametrize("longer, told", [("a\nb\nc\n", True), ("d\ne\n", False)])
def test_held_out_examples_are_the_dev_set(tmp_path, longer, told):
    """... and rows that cannot be translations of each other are told."""
    leave(tmp_path, train__en_tsv="a\nb\n", train__de_tsv=longer, dev__en_tsv="not this\n")
    script = "examples train tsv none any; examples dev tsv none any; tidy; head $OUT/data/*-en.tsv"
    result = sourced(tmp_path, script, "--hold-out", "2", "--langs", "en de")
    raw = tmp_path / "out/raw/train-en.tsv"
    assert f"dev-en.tsv <==\npython {raw} --last 2\n" in result.stdout, result.stderr
    assert f"train-en.tsv <==\npython {raw} --but-last 2\n" in result.stdout and raw.read_text() == "a\nb\n"
    assert ("the training sets differ in length, so their rows" in result.stdout) == told


def test_the_small_model_has_the_texts_by_language(tmp_path):
    """Of all splits, but of no file that says what is right, and the English sides as English."""
    data = tmp_path / "out/data"
    data.mkdir(parents=True)
    for name in (
        "train-de.tsv",
        "test-de.tsv",
        "test-de.source",
        "test-de.en",
        "test-deu.eng",
        "dev-zh-Hans.tsv",
        "test-de.gold",
        "test-de.tsv.done",
    ):
        (data / name).touch()
    (tmp_path / "out/text").mkdir()
    (tmp_path / "out/text/fr").touch()  # of an earlier call
    script = 'small_model() { echo "$@"; }; OPTIONS[pretrained]=$P; small_model_of_data'
    script_again = f"P=; {script}; cd $OUT/text; tail -n 9 de en zh_Hans"
    told, again = (sourced(tmp_path, script_again, "--try").stdout for _ in range(2))
    text = tmp_path / "out/text"
    assert again.count("already there") == 3 and "makes" not in again  # newer texts would be those of another model
    assert [line for line in told.splitlines() if not line.startswith("[")] == [
        f"--mono de={text}/de en={text}/en zh_Hans={text}/zh_Hans",
        "==> de <==", *(f"python {data}/{name} --text" for name in ("test-de.source", "test-de.tsv", "train-de.tsv")), "",
        "==> en <==", *(f"python {data}/{name} --text" for name in ("test-de.en", "test-deu.eng")), "",
        "==> zh_Hans <==", f"python {data}/dev-zh-Hans.tsv --text",
    ]  # fmt: skip
    assert sourced(tmp_path, f"P=; {script}").stdout == sourced(tmp_path, f"P=mine; {script}", "--try").stdout == ""


def test_points_of_a_grid_that_are_not_finished_are_told(tmp_path):
    folder = tmp_path / "out/checkpoints/transfer.out.s1"
    for point in ("lr1", "lr2"):
        (folder / point).mkdir(parents=True)
    (folder / "lr1/score").touch()
    (folder / "checkpoint_best.pt").touch()
    for name in ("data", "predictions/transfer.out", "predictions/other"):
        (tmp_path / "out" / name).mkdir(parents=True)
    script = 'tidy; evaluate_options -- --out "$OUT" --seed 1; evaluate_task'
    told = sourced(tmp_path, script).stdout
    assert told.startswith("lr2 of transfer.out.s1 is not finished: this evaluates the best of the others\npython run ")
    assert [path.name for path in (tmp_path / "out/predictions").iterdir()] == ["other"]
    out = tmp_path / "out"
    for given, name in ((["--split", "dev"], "transfer.out.dev"), (["--split=test"], "transfer.out"), ([], "transfer.out")):
        told = sourced(tmp_path, script.replace(" --seed 1", f" --seed 1 -- {' '.join(given)}")).stdout
        assert (
            f"--json {out}/scores/{name}.json --predictions {out}/predictions/{name}{''.join(f' {word}' for word in given)}\n"
            in told
        )


@pytest.mark.parametrize("suffix", ["tsv", "conllu"])
@pytest.mark.parametrize("text", [
    "a\tX\nb\tY\n\nc\tX\nd\tY\n\ne\tX\nf\tY\n", "a\tX\r\nb\tY\r\n\r\nc\tX\r\nd\tY\r\n\r\ne\tX\r\nf\tY\r\n",
    "\ufeffa\tX\nb\tY\n \nc\tX\nd\tY\n\n\n\n\ne\tX\nf\tY\n\n  \n",
])  # fmt: skip
def test_sentences_are_those_between_blank_lines_of_any_kind(suffix, text, tmp_path, run):
    """Lines that end with CR LF had been words of one sentence, or sentences of one word, and each further blank line counted."""
    (tmp_path / f"a.{suffix}").write_text(text.replace("\t", "\t\t" if suffix == "conllu" else "\t"), newline="")
    kept = {"--last 1": "ef", "--but-last 1": "abcd", "--first 2": "abcd", "--first 1": "ab"}
    for given, words in kept.items():
        made = run("data-bin-recipes/xtreme/examples.py", tmp_path / f"a.{suffix}", *given.split()).stdout
        assert "".join(line[0] for line in made.split("\n") if line) == words and made.count("\n\n") == len(words) / 2
    if suffix == "tsv":
        made = run("data-bin-recipes/xtreme/examples.py", tmp_path / "a.tsv", "--text").stdout
        assert made == "a b\nc d\ne f\n"


@pytest.mark.parametrize("suffix, comment, kept", [
    ("conllu", "# newdoc", "cd"), ("tsv", "# sent_id = 1", "cd"), ("tsv", "#\tX", "#"), ("tsv", "#a\tX", "#"),
])  # fmt: skip
def test_comments_alone_are_no_example(suffix, comment, kept, tmp_path, run):
    """... as for the training, and in a .tsv # may be a word. They had been held out as a sentence."""
    path = tmp_path / f"a.{suffix}"
    path.write_text(f"a\tX\nb\tY\n\n# sent_id = 2\nc\tX\nd\tY\n\n{comment}\n\n")
    made = run("data-bin-recipes/xtreme/examples.py", path, "--last", 1).stdout
    assert "".join(line[0] for line in made.split("\n") if line and not line.startswith("# ")) == kept
    assert run("data-bin-recipes/xtreme/examples.py", path, "--text").stdout.count("\n") == 2 + (kept == "#")


def test_a_row_of_empty_cells_does_not_end_a_sentence(tmp_path, run):
    (tmp_path / "a.tsv").write_text("a\tb\tx\n\t\t\nc\td\ty\n")
    assert run("data-bin-recipes/xtreme/examples.py", tmp_path / "a.tsv", "--last", 2).stdout == "\t\t\nc\td\ty\n"
    data = {"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "1"}, {"id": "2"}]}]}]}
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps(data))
    assert '"id": "1"' in run("data-bin-recipes/xtreme/examples.py", tmp_path / "a.json", "--but-last", 1).stdout


@pytest.mark.parametrize(
    "given, kept", [("--ids fi", "fi-1"), ("--first 1", "en-1"), ("--last 1", "fi-1"), ("--but-last 1", "en-1")]
)
def test_questions_that_are_kept(tmp_path, run, given, kept):
    """... with their passages alone."""
    entries = [{"context": name, "qas": [{"id": name, "question": "ü"}]} for name in ("en-1", "fi-1")]
    (tmp_path / "a.json").write_text(json.dumps({"version": 1, "data": [{"paragraphs": [entry]} for entry in entries]}))
    made = run("data-bin-recipes/xtreme/examples.py", tmp_path / "a.json", *given.split()).stdout
    (entry,) = (entry for entry in entries if entry["context"] == kept)
    assert json.loads(made) == {"version": 1, "data": [{"paragraphs": [entry]}]} and "ü" in made


@pytest.mark.parametrize("name, text, error", [
    ("a.json", b"{", "cannot be read (JSONDecodeError"), ("a.json", b'{"x": 1}', "cannot be read (KeyError: 'data'"),
    ("a.json", b"[1]", "cannot be read (TypeError"), ("a.txt", b"a", "cannot be read (KeyError: '.txt'"),
    ("none.json", None, "no such file or folder"), ("a.tsv", b"", "has no text"),
    ("a.json", b'{"data": [{"paragraphs": [{"context": "\\ud83d", "qas": [{"id": 1}]}]}]}', "cannot be read (UnicodeEncodeError"),
])  # fmt: skip
def test_examples_that_cannot_be_read_are_one_line(tmp_path, monkeypatch, name, text, error):
    if text is not None:
        (tmp_path / name).write_bytes(text)
    monkeypatch.setattr(sys, "argv", ["examples.py", str(tmp_path / name), "--first", "1"])
    with pytest.raises(SystemExit) as ended:
        load_script(REPOSITORY / "data-bin-recipes/xtreme/examples.py").main()
    assert str(ended.value).startswith(f"examples.py: error: {tmp_path / name}: {error}")


def test_examples_are_written_in_utf8_whatever_the_locale(tmp_path, run):
    (tmp_path / "a.tsv").write_text("ü\tb\n", encoding="utf-8")
    assert (
        run("data-bin-recipes/xtreme/examples.py", tmp_path / "a.tsv", "--first", 1, PYTHONIOENCODING="latin-1").stdout
        == "ü\tb\n"
    )


@pytest.mark.parametrize("given, message", [
    ("--last 2", "2 of its 2 examples would be kept: give another number"),
    ("--but-last 2", "0 of its 2 examples would be kept: give another number"),
])  # fmt: skip
def test_none_or_all_examples_are_no_choice(tmp_path, given, message):
    (tmp_path / "a.tsv").write_text("a\nb\n")
    script = [sys.executable, REPOSITORY / "data-bin-recipes/xtreme/examples.py"]
    error = error_line(subprocess.run([*script, tmp_path / "a.tsv", *given.split()], capture_output=True, text=True))
    assert error == f"examples.py: error: {tmp_path}/a.tsv: {message}"
    (tmp_path / "b.tsv").write_bytes(b"a\nb\xff\n")
    assert "b.tsv, line 2: not UTF-8 (byte 0xff at 2): convert the file" in error_line(
        subprocess.run([*script, tmp_path / "b.tsv", "--text"], capture_output=True, text=True)
    )
