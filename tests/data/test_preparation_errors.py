# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What preparation refuses: arguments, texts and folders that do not fit."""

import gzip
import json
import runpy
import sys

import pytest
from conftest import REPOSITORY
from support.preparation import (
    options_with,
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data.prepare.preparation import MANIFEST_NAME, prepare_root
from veco_fairseq.data.prepare.text import Options, parse_parts
from veco_fairseq.data.sentencepiece import load_sentencepiece, train_sentencepiece
from veco_fairseq.errors import UserError


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mono": ["xx"]}, "--mono xx: must have the form LANG=FILE"),
        ({"mono": ["xx="]}, "must have the form LANG=FILE"),
        ({"mono": ["x.x=FILE"]}, "'x.x' is not a language code"),
        ({"mono": ["../xx=FILE"]}, "'../xx' is not a language code"),
        ({"mono": ["x-y=FILE"]}, "'x-y' is not a language code: use letters, digits and _"),
        ({"bitext": ["en-pt-BR=FILE,FILE"]}, "'pt-BR' is not a language code"),
        ({"mono": ["xx=FILE", "xx=FILE"]}, "xx is given twice"),
        ({"mono": ["xx=gone"]}, "gone: no such file (--mono xx)"),
        ({"mono": ["xx=/dev"]}, "/dev: is a folder (--mono xx)"),
        (
            {"bitext": ["xx-yy=FILE,/dev/null"]},
            "/dev/null: is a pipe, and would be read more than once: write it to a file first (",
        ),
        ({"bitext": ["xxyy=FILE,FILE"]}, "must have the form SRC-TGT=FILE,FILE"),
        ({"bitext": ["xx-yy=FILE"]}, "must have the form SRC-TGT=FILE,FILE"),
        ({"bitext": ["xx-yy=a,b.xx,a.yy"]}, "--bitext xx-yy=a,b.xx,a.yy: has 2 commas, not 1: rename the files"),
        ({"bitext": ["xx-yy=FILE,"]}, "must have the form SRC-TGT=FILE,FILE"),
        ({"bitext": ["xx-xx=FILE,FILE"]}, "both sides are xx"),
        ({"bitext": ["xx-yy=FILE,FILE", "yy-xx=FILE,FILE"]}, "yy-xx is given twice"),
        ({"mono": ["xx=FILE"], "mono_valid": ["yy=FILE"]}, "--mono-valid yy: --mono names no training file"),
    ],
)
def test_bad_arguments(tmp_path, options, message):
    source = write_lines(tmp_path / "file", ["a"])
    options = {name: [a.replace("FILE", str(source)) for a in arguments] for name, arguments in options.items()}
    with pytest.raises(UserError) as error:
        parse_parts(options.get("mono", ()), options.get("bitext", ()), options.get("mono_valid", ()))
    assert message in str(error.value)


def bad_text(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "name, content, valid_lines, message",
    [
        ("empty", b"", 0, "empty: holds no text"),
        ("blank", b"\n \n", 0, "blank: holds no text"),
        ("latin1", "gut\nsch\u00f6n\n".encode("latin-1"), 0, "latin1, line 2: not UTF-8"),
        ("plain.gz", b"abc\n", 0, "plain.gz: is damaged"),
        ("short.gz", gzip.compress(b"abc\n" * 1000, mtime=0)[:-10], 0, "short.gz: is damaged after line"),
        ("few", b"a\nb\n\n", 2, "few: has 2 usable lines, too few to hold out --valid-lines 2"),
    ],
)
def test_bad_text(tmp_path, vocabulary, name, content, valid_lines, message):
    path = bad_text(tmp_path, name, content)
    with pytest.raises(UserError) as error:
        prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={path}"], valid_lines=valid_lines))
    assert message in str(error.value)
    assert not (tmp_path / "root").exists()


def test_bad_vocabulary_options(tmp_path):
    source = write_lines(tmp_path / "x", text_lines("xx", 50))
    parts = parse_parts([f"xx={source}"], [])
    with pytest.raises(
        UserError, match=r"--vocab-size 5000: more than the text has pieces for: give at most \d+, or --soft-vocab-limit$"
    ):
        prepare_root(Options(tmp_path / "root", parts, 0, vocab_size=5000))
    with pytest.raises(UserError, match=r"--vocab-size 5: too few for the characters of the text: give at least 11, "):
        prepare_root(Options(tmp_path / "root", parts, 0, vocab_size=5))  # 7 letters, the space mark, 3 meta pieces
    with pytest.raises(UserError, match="x: not a SentencePiece model"):
        prepare_root(Options(tmp_path / "root", parts, 0, sentencepiece=source, dictionary=source))
    with pytest.raises(UserError, match="give --vocab-size N, or --sentencepiece MODEL and --dict DICT together"):
        Options(tmp_path / "root", parts, 0, sentencepiece=source)
    with pytest.raises(UserError, match="nothing to prepare: give --mono LANG=FILE or --bitext SRC-TGT=FILE,FILE"):
        Options(tmp_path / "root", [], 0, vocab_size=50)
    for coverage in (0.98, 1):  # as SentencePiece has it
        assert Options(tmp_path / "root", parts, 0, vocab_size=50, character_coverage=coverage)
        assert train_sentencepiece(["ab ba"] * 9, 7, character_coverage=coverage)
    for coverage in (0.979, 1.01):
        with pytest.raises(UserError, match="character_coverage"):
            train_sentencepiece(["ab ba"] * 9, 7, character_coverage=coverage)
        with pytest.raises(UserError, match=f"--character-coverage {coverage}: must be from 0.98 to 1"):
            Options(tmp_path / "root", parts, 0, vocab_size=50, character_coverage=coverage)
    with pytest.raises(UserError, match="not both"):
        Options(tmp_path / "root", parts, 0, vocab_size=50, sentencepiece=source)
    assert not (tmp_path / "root/dict.txt").exists()


def test_a_soft_limit_makes_as_many_pieces_as_the_text_has(tmp_path):
    source = write_lines(tmp_path / "x", text_lines("xx", 50))
    parts = parse_parts([f"xx={source}"], [])
    with pytest.raises(UserError, match="at most") as error:
        prepare_root(Options(tmp_path / "root", parts, 0, vocab_size=5000))
    most = int(str(error.value).split("at most ")[1].split(",")[0])
    prepare_root(Options(tmp_path / "root", parts, 0, vocab_size=5000, soft_vocab_limit=True))
    pieces = len(load_sentencepiece(tmp_path / "root/sentencepiece.bpe.model"))
    assert 11 < pieces <= most
    prepare_root(Options(tmp_path / "other", parts, 0, vocab_size=20, soft_vocab_limit=True))
    assert len(load_sentencepiece(tmp_path / "other/sentencepiece.bpe.model")) == 20


def test_foreign_or_damaged_root_is_refused(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x", text_lines("xx", 5))
    root = tmp_path / "root"
    root.mkdir()
    write_lines(root / "dict.txt", ["a 1"])
    options = options_with(vocabulary, root, [f"xx={source}"])
    with pytest.raises(UserError, match="holds a dict.txt that this command did not make"):
        prepare_root(options)
    assert (root / "dict.txt").read_text() == "a 1\n"
    (root / MANIFEST_NAME).write_text("{")
    with pytest.raises(UserError, match="preparation.json: damaged"):
        prepare_root(options)


def test_a_pair_in_the_other_order_is_refused(tmp_path, vocabulary):
    """Training would take the same pairs twice; those that are held out of the one could be trained on in the other."""
    x, y = write_lines(tmp_path / "x", text_lines("xx", 50)), write_lines(tmp_path / "y", text_lines("yy", 50))
    for _ in range(2):
        prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={x}"], [f"xx-yy={x},{y}"]))
    with pytest.raises(UserError, match="root: has bitext/xx-yy already, and would have the pair twice: name it so"):
        prepare_root(options_with(vocabulary, tmp_path / "root", [], [f"yy-xx={y},{x}"]))
    assert [path.name for path in (tmp_path / "root/bitext").iterdir()] == ["xx-yy"]


def test_part_of_another_vocabulary_is_refused(tmp_path, vocabulary):
    x, y = write_lines(tmp_path / "x", text_lines("xx", 50)), write_lines(tmp_path / "y", text_lines("yy", 50))
    prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={x}", f"yy={y}"]))
    with pytest.raises(UserError, match="mono/yy would be left over from another vocabulary"):
        prepare_root(Options(tmp_path / "root", parse_parts([f"xx={x}"], []), 0, vocab_size=40))


def command(monkeypatch, script, *arguments):
    """Run one of the scripts in this process, which spares importing fairseq again; return its exit code."""
    path = REPOSITORY / "scripts" / script
    monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    return end.value.code


def test_command(tmp_path, monkeypatch, capsys):
    x = write_lines(tmp_path / "x", text_lines("xx", 60))
    y = write_lines(tmp_path / "y", text_lines("yy", 60))
    code = command(
        monkeypatch, "prepare_root.py", "--mono", f"xx={x}", "--mono", f"yy={y}", "--bitext", f"xx-yy={x},{y}",
        "--valid-lines", 5, "--vocab-size", 60, "--output", tmp_path / "root", "--workers", 1,
    )  # fmt: skip
    output = capsys.readouterr()
    assert (code, output.err) == (0, "")
    assert "vocabulary: training SentencePiece, 60 pieces, on about 240 lines\n" in output.out  # of each side of a pair, too
    # Four rows of the pair, two of each language, and the heading.
    assert len(output.out.partition("part ")[2].splitlines()) == 9
    manifest = json.loads((tmp_path / "root/preparation.json").read_text(encoding="utf-8"))
    assert manifest["steps"]["bitext/xx-yy"]["report"]["splits"]["valid"]["yy"]["lines"] == 5


def test_command_reports_an_error_in_one_line(tmp_path, monkeypatch, capsys):
    x, y = write_lines(tmp_path / "x", ["a", "b"]), write_lines(tmp_path / "y", ["u"])
    code = command(monkeypatch, "prepare_root.py", "--bitext", f"xx-yy={x},{y}", "--valid-lines", 0,
                   "--vocab-size", 9, "--output", tmp_path / "root")  # fmt: skip
    assert (code, capsys.readouterr().err) == (
        1,
        f"prepare_root.py: error: {x} has 2 lines and {y} has 1: line N of the one must be the translation of line N "
        "of the other\n",
    )
    assert not (tmp_path / "root").exists()


def test_encode_command(tmp_path, vocabulary, monkeypatch, capsys):
    x = text_lines("xx", 3)
    source = write_lines(tmp_path / "x", [x[0], "", x[2]])
    options = ("--sentencepiece", vocabulary / "spm.model", "--outputs", tmp_path / "pieces")
    assert command(monkeypatch, "encode.py", *options, "--inputs", source) == 0
    lines = (tmp_path / "pieces").read_text(encoding="utf-8").split("\n")
    assert [line.replace(" ", "").replace("▁", " ").strip() for line in lines] == [x[0], "", x[2], ""]
    assert command(monkeypatch, "encode.py", *options, "--inputs", source, source) == 1
    assert capsys.readouterr().err == "encode.py: error: 2 --inputs, but 1 --outputs: name one for each\n"


def test_a_mask_that_training_cannot_take_is_refused_before_all_is_encoded(tmp_path, vocabulary):
    rows = (vocabulary / "dict.txt").read_text(encoding="utf-8").split("\n")[:-1]
    options = options_with(vocabulary, tmp_path / "root", [f"xx={write_lines(tmp_path / 'xx', text_lines('xx', 9))}"])
    options.dictionary = write_lines(tmp_path / "dict", ["<mask> 1", *rows])
    with pytest.raises(UserError) as error:
        prepare_root(options)
    told = f"has <mask> as token 4 of {len(rows) + 5}, but it must be the last for training: take the line away"
    assert str(error.value) == f"{options.dictionary}: {told}" and not (tmp_path / "root").exists()
    options.dictionary = write_lines(tmp_path / "dict", [*rows, "<mask> 1"])
    prepare_root(options)
