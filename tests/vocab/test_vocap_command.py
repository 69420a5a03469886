# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The command on generated text: its stages, interruptions and errors."""

import errno
import gzip
import json
import math
import random
import shutil
from dataclasses import replace

import pytest
from conftest import error_line
from support.vocab import text

from veco_fairseq.data.sentencepiece import load_sentencepiece, train_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.vocab import vocap
from veco_fairseq.vocab.corpora import drawn, find_corpora, sample
from veco_fairseq.vocab.sizes import Vocabularies
from veco_fairseq.vocab.vocap import Options, make_vocabulary


@pytest.fixture
def corpora(tmp_path):
    """Three languages, one of them in two files, one with other letters."""
    folder = tmp_path / "corpora"
    folder.mkdir()
    (folder / "aa.txt").write_text("\n".join(text(1)) + "\n", encoding="utf-8")
    (folder / "news.bb").write_text("\n".join(text(2)) + "\n\n", encoding="utf-8")
    with gzip.open(folder / "web.bb.gz", "wt", encoding="utf-8") as stream:
        stream.write("\n".join(text(3)) + "\n")
    (folder / "cc.txt").write_text("\n".join(text(4, lines=60, letters="αβγδεζη")) + "\n", encoding="utf-8")
    return folder


def test_corpora_by_name_and_a_line_of_each_part(corpora):
    found = find_corpora([str(corpora), f"dd={corpora / 'aa.txt'}"])
    names = {language: [path.name for path in paths] for language, paths in found.items()}
    assert names == {"aa": ["aa.txt"], "bb": ["news.bb", "web.bb.gz"], "cc": ["cc.txt"], "dd": ["aa.txt"]}
    lines, instances = sample(found["bb"], 8)
    everything = [*text(2), *text(3)]
    parts = [everything[start : start + 100] for start in range(0, 800, 100)]
    assert instances == 800 and [sum(line in part for line in lines) for part in parts] == [1] * 8
    assert [part.index(line) for part, line in zip(parts, lines, strict=True)] == [81, 54, 93, 59, 53, 95, 62, 68]


VOCAP = "--largest 200 --step 40 --workers 1".split()


def test_command_makes_a_vocabulary_and_keeps_every_stage(corpora, run, drawn, tmp_path):
    def vocap(*options):
        return run("scripts/vocap.py", "--corpora", corpora, "--output", tmp_path / "out", *VOCAP, *options)

    first = vocap("--size", "260", "--joint")
    assert first.returncode == 0, first.stderr
    assert "bb (" in first.stdout and "257 in the union" in first.stdout
    out = tmp_path / "out"
    processor = load_sentencepiece(out / "sentencepiece.bpe.model")
    assert len(processor) == 260 == len(load_sentencepiece(out / "joint/sentencepiece.bpe.model"))
    assert len((out / "dict.txt").read_text("utf-8").splitlines()) == 257
    for name in ("aa.txt", "cc.txt"):
        for line in (corpora / name).read_text("utf-8").splitlines():
            assert processor.unk_id() not in processor.encode(line) and processor.decode(processor.encode(line)) == line
    table = [line.split("\t") for line in (out / "allocation.tsv").read_text().splitlines()]
    assert first.stdout.endswith((out / "allocation.tsv").read_text())
    assert table[0] == ["language", "instances", "q", "largest", "size", "alp", "alp_in_union"]
    allocated = {row[0]: int(row[4]) for row in table[1:]}
    assert {row[0]: int(row[1]) for row in table[1:]} == {"aa": 400, "bb": 800, "cc": 60}
    assert allocated["bb"] >= allocated["cc"] and list(allocated.values()) == sorted(allocated.values(), reverse=True)
    gains = [line.split("\t") for line in (out / "languages/cc.tsv").read_text().splitlines()]
    assert gains[0] == ["size", "alp", "gain"] and gains[1][2] == "inf" and [row[0] for row in gains[1:4]] == ["40", "80", "96"]
    assert float(gains[2][2]) == pytest.approx(float(gains[2][1]) - float(gains[1][1]), abs=0.002)
    (out / "allocation.png").unlink()
    (axes,) = drawn("scripts/vocap.py", "--corpora", corpora, "--output", out, *VOCAP, "--size", "260")
    assert [label.get_text() for label in axes.get_xticklabels()] == list(allocated)
    assert [bar.get_height() for bar in axes.containers[0]] == pytest.approx([size / 1000 for size in allocated.values()])

    again = vocap("--size", "260")
    assert again.stdout.count("already there") == 4
    # A stage is made anew when its text or its file is another one; another size needs the union alone.
    (out / "languages/cc.npz").unlink()
    with open(corpora / "aa.txt", "a", encoding="utf-8") as stream:
        stream.write("abc\n")
    other = vocap("--size", "300")
    assert "bb: already there" in other.stdout and "aa (" in other.stdout and "cc (" in other.stdout
    assert len(load_sentencepiece(out / "sentencepiece.bpe.model")) == 300

    measured = run("scripts/vocap.py", "--corpora", corpora, "--output", out, "--alp",
                   f"joint={out}/joint/sentencepiece.bpe.model", f"vocap={out}/sentencepiece.bpe.model")  # fmt: skip
    assert measured.returncode == 0, measured.stderr
    rows = [line.split("\t") for line in measured.stdout.splitlines()]
    assert rows[0] == ["language", "joint", "vocap"] and [row[0] for row in rows[1:]] == ["aa", "bb", "cc"]
    in_table = dict(line.split("\t")[::6] for line in (out / "allocation.tsv").read_text().splitlines()[1:])
    assert {row[0]: row[2] for row in rows[1:]} == in_table
    assert (out / "alp.tsv").read_text() == measured.stdout and (out / "alp.png").exists()

    # Pre-training's data is made with it as with any other vocabulary.
    root = run("scripts/prepare_root.py", "--mono", f"aa={corpora}/aa.txt", "--valid-lines", "9",
               "--sentencepiece", out / "sentencepiece.bpe.model", "--dict", out / "dict.txt", "--output",
               tmp_path / "root")  # fmt: skip
    assert root.returncode == 0 and "0.000" in root.stdout


def test_interrupted_work_goes_on(corpora, tmp_path, monkeypatch):
    """A run that ends after its first language does not begin with it again."""
    options = Options(find_corpora([str(corpora)]), tmp_path / "out", 260, largest=200, step=40, workers=1)
    said = []

    def interrupt(message):
        said.append(message)
        if "(1 of 3)" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_vocabulary(options, interrupt)
    done = json.loads((tmp_path / "out/vocap.json").read_text())["steps"]
    assert len(done) == 1 and not (tmp_path / "out/dict.txt").exists()
    ((language, step),) = done.items()
    assert set(step["files"]) == {f"languages/{language}.{kind}" for kind in ("model", "tsv", "npz")}
    said.clear()
    make_vocabulary(options, said.append)
    assert [message.split(",")[0] for message in said if "already" in message] == [f"{next(iter(done))}: already there"]
    done = json.loads((tmp_path / "out/vocap.json").read_text())["steps"]
    assert set(done["union"]["files"]) == {"sentencepiece.bpe.model", "dict.txt", "allocation.tsv", "allocation.png"}
    # Another vocabulary that is half made is not taken for the first one.
    monkeypatch.setattr(vocap, "_write_table", lambda *_: interrupt("(1 of 3)"))
    with pytest.raises(KeyboardInterrupt):
        make_vocabulary(replace(options, size=250), lambda message: None)
    assert "union" not in json.loads((tmp_path / "out/vocap.json").read_text())["steps"]
    # Nor are languages that are being made from other options those of the first ones.
    with pytest.raises(KeyboardInterrupt):
        make_vocabulary(replace(options, step=20), interrupt)
    done = json.loads((tmp_path / "out/vocap.json").read_text())["steps"]
    assert [step["made_from"]["step"] for step in done.values()] == [20]
    assert {path.stem for path in (tmp_path / "out/languages").iterdir()} == set(done)


def test_a_language_that_fails_does_not_take_the_others_with_it(corpora, tmp_path):
    (corpora / "zz.txt").write_bytes(b"abc\n\xff\n")
    options = Options(find_corpora([str(corpora)]), tmp_path / "out", 260, largest=200, step=40, workers=2)
    with pytest.raises(UserError, match="zz.txt, line 2: not UTF-8"):
        make_vocabulary(options, lambda message: None)
    done = set(json.loads((tmp_path / "out/vocap.json").read_text())["steps"])
    (corpora / "zz.txt").write_text("abc\n")
    said = []
    make_vocabulary(replace(options, workers=1), said.append)
    assert done and {message.split(":")[0] for message in said if "already there" in message} == done


def test_processes_do_not_need_the_threads_of_this_one(tmp_path):
    """SentencePiece sorts 64 kB and more in OpenMP's threads: a fork misses those of its parent, and was killed."""
    rng = random.Random(1)
    for language in ("aa", "bb"):
        lines = [" ".join("".join(rng.choices("abcdefgh", k=9)) for _ in range(9)) for _ in range(800)]
        (tmp_path / f"{language}.txt").write_text("\n".join(lines) + "\n")
    train_sentencepiece(lines, 100, character_coverage=1.0)
    options = Options(find_corpora([str(tmp_path)]), tmp_path / "out", 200, largest=160, step=80, workers=2)
    make_vocabulary(options, lambda message: None)
    assert len(load_sentencepiece(tmp_path / "out/sentencepiece.bpe.model")) == 200


def test_a_data_root_is_nobodys_output(corpora, run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/dict.txt").write_text("a 1\n")
    refused = run("scripts/vocap.py", "--corpora", corpora, "--output", tmp_path / "out", *VOCAP, "--size", "260")
    assert "holds a dict.txt that this command did not make" in error_line(refused)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dict.txt"]


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (None, ["--corpora", "nowhere"], "--corpora nowhere: no such folder, and not of the form LANG=FILE"),
        (None, ["--corpora", "zh-Hans=x"], "zh-Hans=x: 'zh-Hans' is not a language code: use letters, digits and _"),
        (None, ["--corpora", "en=nowhere"], "nowhere: no such file (--corpora en=nowhere)"),
        (None, ["--size", "20"], "--size 20: is too small: the smallest vocabularies of"),
        (None, ["--size", "0"], "--size 0: must be at least 1"),
        (None, ["--step", "300"], "--step 300: must be at most --largest 200"),
        (None, ["--alpha", "-1"], "--alpha -1: must be at least 0"),
        (lambda f: (f / "aa.txt").write_bytes(b"abc\n\xff\xfe\n"), [], "aa.txt, line 2: not UTF-8"),
        (lambda f: (f / "aa.txt").write_text("\n \n"), [], "aa.txt: holds no text"),
        (lambda f: (f / "aa.txt").write_text("\u200b\n", "utf-8"), [], "aa: nothing is left of the text when it is normalised: "),
        (lambda f: (f / "x-y").write_text("abc"), [], "x-y: its name has no language: call it LANG.txt or NAME.LANG"),
        (lambda f: shutil.rmtree(f) or f.mkdir(), [], "holds no file"),
        (lambda f: (f / "aa.txt.gz").write_text("abc"), [], "has aa.txt.gz and aa.txt: remove one of them"),
        (None, ["--corpora", "en=tests"], "tests: is a folder (--corpora en=tests)"),
        (None, ["--alp", "x", "--lines", "0"], "--lines 0: must be at least 1"),
        (None, ["--alp", "nowhere.model"], "nowhere.model: no such file"),
    ],
    ids=[
        "folder",
        "code",
        "file",
        "size",
        "zero",
        "step",
        "alpha",
        "encoding",
        "empty",
        "nothing to see",
        "name",
        "no file",
        "twice",
        "is a folder",
        "lines",
        "model",
    ],
)
def test_bad_input_ends_in_one_line(corpora, run, tmp_path, spoil, options, message):
    if spoil:
        spoil(corpora)
    making = [] if "--alp" in options else ["--size", "260", *VOCAP]
    arguments = ["--corpora", corpora, "--output", tmp_path / "out", *making, *options]
    assert message in error_line(run("scripts/vocap.py", *arguments))
    assert not (tmp_path / "out/dict.txt").exists()


@pytest.mark.parametrize("share, expected", [
    (4, ["a", "b", "c", "d"]),
    (2, ["b", "d"]),
    (1, ["d"]),
    (6, ["a", "b", "b", "c", "d", "d"]),
    (8, ["a", "a", "b", "b", "c", "c", "d", "d"]),
])  # fmt: skip
def test_sentences_are_drawn_once_each_and_again_where_there_are_few(tmp_path, share, expected):
    (tmp_path / "text").write_text("a\nb\n\nc\nd\n")
    assert list(drawn([tmp_path / "text"], 4, share)) == expected


@pytest.mark.parametrize("change", [{"alpha": -0.1}, {"beta": -0.1}, {"alpha": math.nan}, {"size": 0}, {"lines": 0}, {"workers": 0},
                                    {"step": 51}, {"coverage": 0.979}, {"coverage": 1.01}])  # fmt: skip
def test_numbers_from_python_are_checked_too(tmp_path, change):
    good = Options({}, tmp_path, 10, largest=50, step=10, workers=1)
    assert not good.joint and not good.every_size
    ((name, value),) = change.items()
    with pytest.raises(UserError, match=f"{name} {value}: must be"):
        replace(good, **change)


def test_vocabularies_that_cannot_be_read_are_not_damaged(tmp_path, monkeypatch):
    """... and need not be removed, which would cost their making."""

    def refuse(path, mode):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PermissionError):  # which the command tells in one line
        Vocabularies.load(tmp_path / "x.npz")
