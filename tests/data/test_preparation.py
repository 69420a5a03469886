# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""prepare_root.py: token files against fairseq-preprocess, held-out lines by hand, resuming, bad input."""

import gzip
import json
import os
import random
import re
import runpy
import signal
import sys
from dataclasses import replace

import pytest
from conftest import REPOSITORY
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.options import get_preprocessing_parser
from fairseq_cli import preprocess

from veco_fairseq.data.pairs import AdjacentSegments, BitextPairs
from veco_fairseq.data.prepare import growing, preparation
from veco_fairseq.data.prepare.preparation import MANIFEST_NAME, prepare_root
from veco_fairseq.data.prepare.text import Plan, Survey, is_spread, parse_parts, survey_mono
from veco_fairseq.data.roots import load_tokens
from veco_fairseq.data.sentencepiece import Encoder, dictionary_text, encode_text, load_sentencepiece, train_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines

LETTERS = {"xx": "abcdefg", "yy": "uvwxyz"}


def text_lines(language, count, seed=0):
    """``count`` lines of random words over the language's letters, the same for the same seed."""
    rng = random.Random(f"{language} {seed}")
    words = ["".join(rng.choices(LETTERS[language], k=rng.randint(2, 5))) for _ in range(60)]
    return [" ".join(rng.choices(words, k=rng.randint(3, 8))) for _ in range(count)]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A SentencePiece model of both languages with 80 pieces, and its dictionary."""
    folder = tmp_path_factory.mktemp("vocabulary")
    lines = text_lines("xx", 300) + text_lines("yy", 300)
    (folder / "spm.model").write_bytes(train_sentencepiece(lines, 80, character_coverage=1.0))
    model = load_sentencepiece(folder / "spm.model")
    (folder / "dict.txt").write_text(dictionary_text(model, folder / "spm.model"), encoding="utf-8")
    return folder


def plan_with(vocabulary, output, mono=(), bitext=(), valid_lines=0, **options):
    parts = parse_parts(mono, bitext, options.pop("mono_valid", ()), options.pop("bitext_valid", ()))
    files = {"sentencepiece": vocabulary / "spm.model", "dictionary": vocabulary / "dict.txt"}
    return Plan(output=output, parts=parts, valid_lines=valid_lines, workers=2, **files, **options)


def decoded(prefix, vocabulary):
    """The lines in a token file, through the dictionary's text and SentencePiece, not through our tables."""
    rows = (vocabulary / "dict.txt").read_text(encoding="utf-8").split("\n")[:-1]
    symbols = ["<s>", "<pad>", "</s>", "<unk>"] + [row.split(" ")[0] for row in rows]
    model = load_sentencepiece(vocabulary / "spm.model")
    lines = []
    for item in MMapIndexedDataset(str(prefix)):
        pieces = [symbols[i] for i in item.tolist()]
        assert pieces[-1] == "</s>"
        lines.append(model.decode(pieces[:-1]))
    return lines


# Vocabulary ------------------------------------------------------------------------------------------


def test_ids_are_the_lines_of_the_dictionary(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x.txt", text_lines("xx", 5) + ["", "ab☃☃ "])
    prepare_root(plan_with(vocabulary, tmp_path / "root", [f"xx={source}"]))
    rows = (tmp_path / "root" / "dict.txt").read_text(encoding="utf-8").split("\n")[:-1]
    # Four symbols of fairseq's own come first: the token in line 1 of dict.txt is number 4.
    number = {row.split(" ")[0]: line + 4 for line, row in enumerate(rows)}
    model = load_sentencepiece(vocabulary / "spm.model")
    dataset = MMapIndexedDataset(str(tmp_path / "root/mono/xx/train"))
    for item, line in zip(dataset, text_lines("xx", 5), strict=False):
        assert item.tolist() == [number[piece] for piece in model.encode(line, out_type=str)] + [2]
    assert dataset[5].tolist() == [2]
    assert dataset[6].tolist()[-2:] == [3, 2]
    assert len(dataset) == 7


def test_dictionary_leaves_out_the_three_meta_pieces(vocabulary):
    rows = (vocabulary / "dict.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(rows) == 77
    model = load_sentencepiece(vocabulary / "spm.model")
    assert [row.split(" ")[0] for row in rows] == [model.id_to_piece(i) for i in range(3, 80)]


def test_token_files_are_those_of_fairseq_preprocess(tmp_path, vocabulary):
    lines = text_lines("xx", 20) + [""] + text_lines("xx", 20, seed=1)
    source = write_lines(tmp_path / "x.txt", lines)
    prepare_root(plan_with(vocabulary, tmp_path / "root", [f"xx={source}"]))
    encode_text(vocabulary / "spm.model", source, tmp_path / "pieces", 1)
    options = {"trainpref": "pieces", "srcdict": vocabulary / "dict.txt", "destdir": "bin"}
    arguments = [str(word) for name, value in options.items() for word in (f"--{name}", tmp_path / value)]
    preprocess.main(get_preprocessing_parser().parse_args(["--only-source", *arguments]))
    for suffix in ("bin", "idx"):
        expected = (tmp_path / "bin" / f"train.{suffix}").read_bytes()
        assert (tmp_path / "root/mono/xx" / f"train.{suffix}").read_bytes() == expected


def test_trains_a_vocabulary_of_the_size_asked_for_without_held_out_text(tmp_path):
    # The held-out last document alone has the letter q, so no piece may have it.
    x = write_lines(tmp_path / "x.txt", text_lines("xx", 200) + ["", "q qqq qq", "qq q"])
    y = write_lines(tmp_path / "y.txt", text_lines("yy", 200) + ["", "u v", "w x"])
    plan = Plan(tmp_path / "root", parse_parts([f"xx={x}", f"yy={y}"], []), valid_lines=2, vocab_size=70)
    reports = prepare_root(plan)
    pieces = (tmp_path / "root/dict.txt").read_text(encoding="utf-8")
    assert pieces.count("\n") == 67
    assert "q" not in pieces and "g" in pieces and "z" in pieces
    assert reports["mono/xx"]["splits"]["valid"]["xx"]["unknown"] == 5  # one for each word of q's


def test_equal_shares():
    assert preparation.equal_shares({"a": 10, "b": 100, "c": 1000}, 300) == {"a": 10, "b": 100, "c": 190}
    assert preparation.equal_shares({"a": 10, "b": 100, "c": 1000}, 60) == {"a": 10, "b": 25, "c": 25}
    assert preparation.equal_shares({"a": 10, "b": 5}, 100) == {"a": 10, "b": 5}


def test_vocabulary_lines_are_shared_among_languages(tmp_path):
    x = write_lines(tmp_path / "x.txt", ["a b", "", *["c d"] * 7])
    y = write_lines(tmp_path / "y.txt", ["u v"] * 100)
    plan = Plan(tmp_path / "root", parse_parts([f"xx={x}", f"yy={y}"], []), valid_lines=0, vocab_size=9, vocab_lines=30)
    surveys = {part.name: survey_mono(part.train[0], 0) for part in plan.parts}
    lines = list(preparation.training_lines(plan, surveys))
    assert (lines.count("a b"), lines.count("c d"), lines.count("u v")) == (1, 7, 22)


@pytest.mark.parametrize("change", [{"vocab_size": 10}, {"vocab_lines": 31}, {"character_coverage": 0.99}, {"valid_lines": 1}])
def test_another_choice_makes_the_vocabulary_anew(tmp_path, change):
    """What a finished step was made from is compared: with it, there would be the old vocabulary in silence."""
    x = write_lines(tmp_path / "x.txt", ["a b", "", "c d"])
    plan = Plan(
        tmp_path / "root", parse_parts([f"xx={x}"], []), valid_lines=0, vocab_size=9, vocab_lines=30, character_coverage=0.95
    )
    made_from = preparation._vocabulary_inputs(plan)
    assert preparation._vocabulary_inputs(replace(plan, workers=3)) == made_from
    assert preparation._vocabulary_inputs(replace(plan, **change)) != made_from
    write_lines(x, ["a b", "", "c e"])
    assert preparation._vocabulary_inputs(plan) != made_from


def test_is_spread():
    assert [i for i in range(10) if is_spread(i, 3, 10)] == [3, 6, 9]
    assert [i for i in range(4) if is_spread(i, 4, 4)] == [0, 1, 2, 3]
    assert not any(is_spread(i, 0, 4) for i in range(4))


# Documents and pairs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, valid_lines, rows, kept, valid_start, cut",
    [
        ("a b - c d - e", 1, 7, 5, 6, False),
        ("a b - c d - e", 2, 7, 5, 3, False),
        ("a b - c d - e", 3, 7, 5, 3, False),
        ("a b - c d - e", 4, 7, 5, 1, True),  # whole documents would be all of them
        ("a b - c d - e - -", 1, 9, 5, 6, False),
        ("- - a - - b c - d", 3, 9, 4, 5, False),
        ("a b c d", 1, 4, 4, 3, True),
        ("a b - c d", 0, 5, 4, 5, False),
    ],
)
def test_whole_documents_are_held_out(tmp_path, text, valid_lines, rows, kept, valid_start, cut):
    path = write_lines(tmp_path / "text", ["" if word == "-" else word for word in text.split()])
    assert survey_mono(path, valid_lines) == Survey(rows, kept, valid_start, cut)


def test_documents_keep_their_borders(tmp_path, vocabulary):
    x = text_lines("xx", 7)
    source = write_lines(tmp_path / "x.txt", [x[0], x[1], "", x[2], x[3], " ", x[4], x[5], x[6]])
    reports = prepare_root(plan_with(vocabulary, tmp_path / "root", [f"xx={source}"], valid_lines=2))
    mono = tmp_path / "root/mono/xx"
    assert decoded(mono / "train", vocabulary) == [x[0], x[1], "", x[2], x[3], ""]
    assert decoded(mono / "valid", vocabulary) == [x[4], x[5], x[6]]
    train = reports["mono/xx"]["splits"]["train"]["xx"]
    tokens = sum(len(item) for item in MMapIndexedDataset(str(mono / "train"))) - 6  # less six </s>
    assert train == {"lines": 4, "documents": 2, "tokens": tokens, "unknown": 0}
    assert reports["mono/xx"]["splits"]["valid"]["xx"]["documents"] == 1


def test_pairs_with_an_empty_side_are_dropped_and_held_out_ones_spread(tmp_path, vocabulary):
    x, y = text_lines("xx", 8), text_lines("yy", 8)
    a = write_lines(tmp_path / "a", [*x[:3], "", *x[4:]])
    b = write_lines(tmp_path / "b", [*y[:5], "  ", *y[6:]])
    reports = prepare_root(plan_with(vocabulary, tmp_path / "root", [], [f"yy-xx={b},{a}"], valid_lines=2))
    folder = tmp_path / "root/bitext/yy-xx"
    # Rows 0 1 2 4 6 7 are left; of every three the last is held out.
    assert decoded(folder / "valid.yy-xx.xx", vocabulary) == [x[2], x[7]]
    assert decoded(folder / "valid.yy-xx.yy", vocabulary) == [y[2], y[7]]
    assert decoded(folder / "train.yy-xx.xx", vocabulary) == [x[0], x[1], x[4], x[6]]
    assert decoded(folder / "train.yy-xx.yy", vocabulary) == [y[0], y[1], y[4], y[6]]
    assert reports["bitext/yy-xx"]["dropped"] == 2
    assert "  2  " in preparation.report_table(reports).split("\n")[1]


def test_validation_files_instead_of_held_out_lines(tmp_path, vocabulary):
    x, y = text_lines("xx", 8), text_lines("yy", 8)
    files = [tmp_path / name for name in ("a", "b", "va", "vb", "m", "vm")]
    for path, lines in zip(files, (x[:6], y[:6], [x[6], x[7]], [y[6], ""], x[:4], x[4:])):
        write_lines(path, lines)
    a, b, va, vb, m, vm = files
    # The validation files are named the other way round than the training files.
    reports = prepare_root(
        plan_with(
            vocabulary,
            tmp_path / "root",
            [f"xx={m}"],
            [f"xx-yy={a},{b}"],
            valid_lines=3,
            mono_valid=[f"xx={vm}"],
            bitext_valid=[f"yy-xx={vb},{va}"],
        )
    )
    root = tmp_path / "root"
    assert decoded(root / "mono/xx/train", vocabulary) == x[:4]
    assert decoded(root / "mono/xx/valid", vocabulary) == x[4:]
    assert decoded(root / "bitext/xx-yy/train.xx-yy.yy", vocabulary) == y[:6]
    assert decoded(root / "bitext/xx-yy/valid.xx-yy.xx", vocabulary) == [x[6]]
    assert decoded(root / "bitext/xx-yy/valid.xx-yy.yy", vocabulary) == [y[6]]
    assert reports["bitext/xx-yy"]["dropped"] == 1


def test_reads_gzip_and_ends_lines_at_newlines_only(tmp_path):
    with gzip.open(tmp_path / "x.gz", "wb") as stream:
        stream.write("a\u2028b\r\nc\x0cd".encode())
    assert list(read_lines(tmp_path / "x.gz")) == ["a\u2028b", "c\x0cd"]


# Resuming --------------------------------------------------------------------------------------------


def times(root):
    return {path.relative_to(root).as_posix(): path.stat().st_mtime_ns for path in root.rglob("*.*") if path.is_file()}


def test_second_run_does_only_what_changed(tmp_path, vocabulary, capsys):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    y = write_lines(tmp_path / "y", text_lines("yy", 30))
    pair = write_lines(tmp_path / "px", text_lines("xx", 9)), write_lines(tmp_path / "py", text_lines("yy", 9))
    plan = plan_with(vocabulary, tmp_path / "root", [f"xx={x}", f"yy={y}"], [f"xx-yy={pair[0]},{pair[1]}"], valid_lines=3)
    first = prepare_root(plan)
    before = times(tmp_path / "root")
    seconds = re.findall(r"lines encoded in ([\d.]+) s", capsys.readouterr().out)
    assert len(seconds) == 3 and all(float(took) < 300 for took in seconds)
    assert prepare_root(plan) == first
    assert times(tmp_path / "root") == before
    assert capsys.readouterr().out.count("already there") == 4

    write_lines(y, text_lines("yy", 31))
    reports = prepare_root(plan)
    assert reports["mono/yy"]["splits"]["train"]["yy"]["lines"] == 28
    changed = {name for name, when in times(tmp_path / "root").items() if before[name] != when}
    assert changed == {f"mono/yy/{name}" for name in ("train.bin", "train.idx", "valid.bin", "valid.idx")} | {MANIFEST_NAME}


def test_changed_pair_is_refused_before_anything_is_touched(tmp_path, vocabulary):
    x, y = write_lines(tmp_path / "x", text_lines("xx", 30)), write_lines(tmp_path / "y", text_lines("yy", 30))
    plan = plan_with(vocabulary, tmp_path / "root", [f"xx={x}"], [f"xx-yy={x},{y}"], valid_lines=3)
    prepare_root(plan)
    before = times(tmp_path / "root")
    write_lines(x, text_lines("xx", 29))
    with pytest.raises(UserError, match=r"x has 29 lines and .*y has 30"):
        prepare_root(plan)
    before.pop(MANIFEST_NAME)
    assert before.items() <= times(tmp_path / "root").items()


def test_validation_files_go_when_they_are_no_longer_asked_for(tmp_path, vocabulary):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    prepare_root(plan_with(vocabulary, tmp_path / "root", [f"xx={x}"], valid_lines=3))
    assert (tmp_path / "root/mono/xx/valid.idx").exists()
    prepare_root(plan_with(vocabulary, tmp_path / "root", [f"xx={x}"], valid_lines=0))
    assert sorted(path.name for path in (tmp_path / "root/mono/xx").iterdir()) == ["train.bin", "train.idx"]
    assert len(MMapIndexedDataset(str(tmp_path / "root/mono/xx/train"))) == 30


def test_removed_or_truncated_file_is_made_again(tmp_path, vocabulary):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    plan = plan_with(vocabulary, tmp_path / "root", [f"xx={x}"])
    prepare_root(plan)
    tokens = tmp_path / "root/mono/xx/train.bin"
    content = tokens.read_bytes()
    tokens.write_bytes(content[:10])
    prepare_root(plan)
    assert tokens.read_bytes() == content


def test_interrupted_step_has_no_file_under_its_name_and_goes_through_the_second_time(tmp_path, vocabulary, monkeypatch):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    plan = plan_with(vocabulary, tmp_path / "root", [f"xx={x}"], valid_lines=3)
    encode = Encoder.__call__
    calls = []

    def interrupted(self, lines):
        calls.append(lines)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(self, lines)

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "LINES_A_BATCH", 10)
        patch.setattr(Encoder, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare_root(plan)
    assert [path.name for path in (tmp_path / "root/mono/xx").iterdir() if not path.name.startswith(".")] == []
    # What a killed process could not clean up is cleaned up by the next one.
    (tmp_path / "root/mono/xx/.train.bin.1.tmp").touch()
    prepare_root(plan)
    assert len(MMapIndexedDataset(str(tmp_path / "root/mono/xx/train"))) == 27
    assert len(list((tmp_path / "root/mono/xx").iterdir())) == 4


def killed(plan, at: str, number: int) -> int:
    """Make the root in a fork that is killed with -9 when ``at`` is called for the ``number``-th time (0: never).

    Returns how many lines it encoded.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        calls = {"encode": 0, "finish": 0}
        originals = {"encode": Encoder.__call__, "finish": growing.GrowingTokens.finish}

        def counted(name):
            def call(self, *lines):
                calls[name] += 1
                if name == at and calls[name] == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = originals[name](self, *lines)
                os.write(writer, b"." * len(lines[0]) if lines else b"")
                return result

            return call

        Encoder.__call__, growing.GrowingTokens.finish = counted("encode"), counted("finish")
        preparation.LINES_A_BATCH, preparation.SECONDS_BETWEEN_MARKS = 10, 0
        try:
            prepare_root(plan)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        lines = len(pipe.read())
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if number else 0)
    return lines


@pytest.mark.parametrize("stops", [
    [("encode", 3)], [("encode", 2), ("encode", 3), ("encode", 9)], [("encode", 13), ("finish", 1)], [("finish", 2)],
    [("finish", 4)], [("encode", 16)],
], ids=str)  # fmt: skip
def test_killed_inside_a_file_goes_on_there(tmp_path, vocabulary, stops):
    """The same bytes in the end, and nothing encoded twice but the batch that a kill cut off."""
    x, y = text_lines("xx", 93), text_lines("yy", 93)
    x[40] = y[17] = ""
    a, b = write_lines(tmp_path / "a", x), tmp_path / "b.gz"
    b.write_bytes(gzip.compress("".join(f"{line}\n" for line in y).encode()))
    plans = [plan_with(vocabulary, tmp_path / root, [f"xx={a}"], [f"xx-yy={a},{b}"], valid_lines=7)
             for root in ("whole", "root")]  # fmt: skip
    prepare_root(plans[0])
    lines = sum(killed(plans[1], at, number) for at, number in stops) + killed(plans[1], "", 0)
    roots = [{path.relative_to(plan.output): path.read_bytes() for path in plan.output.rglob("*") if path.is_file()}
             for plan in plans]  # fmt: skip
    assert roots[0] == roots[1] and len(roots[0]) == 15
    assert 93 + 2 * 91 <= lines <= 93 + 2 * 91 + 10 * sum(at == "encode" for at, _ in stops)


def test_text_that_changed_in_between_is_encoded_anew(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x", text_lines("xx", 55))
    plan = plan_with(vocabulary, tmp_path / "root", [f"xx={source}"], valid_lines=3)
    killed(plan, "encode", 4)
    write_lines(source, text_lines("xx", 55, seed=1))
    assert killed(plan, "", 0) == 55
    assert decoded(tmp_path / "root/mono/xx/train", vocabulary) == text_lines("xx", 55, seed=1)[:52]


def test_files_that_were_cut_in_between_are_made_anew(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x", text_lines("xx", 55))
    plan = plan_with(vocabulary, tmp_path / "root", [f"xx={source}"])
    killed(plan, "encode", 4)
    (hidden, _) = growing.hidden_paths(tmp_path / "root/mono/xx/train")
    hidden.write_bytes(hidden.read_bytes()[:-1])
    assert killed(plan, "", 0) == 55
    assert decoded(tmp_path / "root/mono/xx/train", vocabulary) == text_lines("xx", 55)


def test_a_full_disk_ends_in_one_line_and_goes_on(tmp_path, vocabulary, monkeypatch):
    source = write_lines(tmp_path / "x", text_lines("xx", 55))
    plan = plan_with(vocabulary, tmp_path / "root", [f"xx={source}"])
    mark, marks = growing.GrowingTokens.mark, []

    def full(self):
        marks.append(self.lines)
        if len(marks) == 3:
            raise OSError(28, "No space left on device")
        return mark(self)

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "LINES_A_BATCH", 10)
        patch.setattr(preparation, "SECONDS_BETWEEN_MARKS", 0)
        patch.setattr(growing.GrowingTokens, "mark", full)
        with pytest.raises(UserError, match=r"root/mono/xx: cannot be written \(No space left on device\): free some"):
            prepare_root(plan)
    assert killed(plan, "", 0) == 35


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mono": ["xx"]}, "--mono xx: must have the form LANG=FILE"),
        ({"mono": ["xx="]}, "must have the form LANG=FILE"),
        ({"mono": ["x.x=FILE"]}, "'x.x' is no language code"),
        ({"mono": ["../xx=FILE"]}, "'../xx' is no language code"),
        ({"mono": ["x-y=FILE"]}, "must have the form LANG=FILE"),
        ({"mono": ["xx=FILE", "xx=FILE"]}, "xx is given twice"),
        ({"mono": ["xx=gone"]}, "gone: no such file (--mono xx)"),
        ({"bitext": ["xxyy=FILE,FILE"]}, "must have the form SRC-TGT=FILE,FILE"),
        ({"bitext": ["xx-yy=FILE"]}, "must have the form SRC-TGT=FILE,FILE"),
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
        ("plain.gz", b"abc\n", 0, "plain.gz: damaged"),
        ("short.gz", gzip.compress(b"abc\n" * 1000, mtime=0)[:-10], 0, "short.gz: damaged after line"),
        ("few", b"a\nb\n\n", 2, "few: has 2 usable lines, too few to hold out --valid-lines 2"),
    ],
)
def test_bad_text(tmp_path, vocabulary, name, content, valid_lines, message):
    path = bad_text(tmp_path, name, content)
    with pytest.raises(UserError) as error:
        prepare_root(plan_with(vocabulary, tmp_path / "root", [f"xx={path}"], valid_lines=valid_lines))
    assert message in str(error.value)
    assert not (tmp_path / "root").exists()


def test_a_line_of_a_hundred_thousand_words(tmp_path, vocabulary):
    """It is kept whole, and training cuts it; as one side of a pair it is dropped there."""
    long, short = tmp_path / "long", tmp_path / "short"
    long.write_text("ab " * 100_000 + "\n" + "ab\n" * 3, encoding="utf-8")
    short.write_text("ab\n" * 4, encoding="utf-8")
    root = tmp_path / "root"
    prepare_root(plan_with(vocabulary, root, [f"xx={long}"], bitext=[f"xx-yy={long},{short}"]))
    lines = load_tokens(root / "mono/xx/train")
    assert len(lines) == 4 and lines.sizes[0] >= 100_000
    segments = AdjacentSegments("xx", lines, 128)
    assert segments.dropped == 0 and segments.lengths.max() == 128 and segments.bounds[-1, 2] == lines.sizes.sum() - 4
    sides = (load_tokens(root / f"bitext/xx-yy/train.xx-yy.{side}") for side in ("xx", "yy"))
    pairs = BitextPairs("xx-yy", *sides, 128)
    assert (len(pairs), pairs.dropped) == (3, 1)


def test_bad_vocabulary_options(tmp_path):
    source = write_lines(tmp_path / "x", text_lines("xx", 50))
    parts = parse_parts([f"xx={source}"], [])
    with pytest.raises(UserError, match=r"--vocab-size 5000: more than the text has pieces for: at most \d+$"):
        prepare_root(Plan(tmp_path / "root", parts, 0, vocab_size=5000))
    with pytest.raises(UserError, match=r"--vocab-size 5: too few for the characters of the text: at least 11, "):
        prepare_root(Plan(tmp_path / "root", parts, 0, vocab_size=5))  # 7 letters, the space mark, 3 meta pieces
    with pytest.raises(UserError, match="x: not a SentencePiece model"):
        prepare_root(Plan(tmp_path / "root", parts, 0, sentencepiece=source, dictionary=source))
    with pytest.raises(UserError, match="give --vocab-size N, or --sentencepiece MODEL and --dict DICT together"):
        Plan(tmp_path / "root", parts, 0, sentencepiece=source)
    with pytest.raises(UserError, match="not both"):
        Plan(tmp_path / "root", parts, 0, vocab_size=50, sentencepiece=source)
    assert not (tmp_path / "root/dict.txt").exists()


def test_foreign_or_damaged_root_is_refused(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x", text_lines("xx", 5))
    root = tmp_path / "root"
    root.mkdir()
    write_lines(root / "dict.txt", ["a 1"])
    plan = plan_with(vocabulary, root, [f"xx={source}"])
    with pytest.raises(UserError, match="holds a dict.txt that this command did not make"):
        prepare_root(plan)
    assert (root / "dict.txt").read_text() == "a 1\n"
    (root / MANIFEST_NAME).write_text("{")
    with pytest.raises(UserError, match="preparation.json: damaged"):
        prepare_root(plan)


def test_part_of_another_vocabulary_is_refused(tmp_path, vocabulary):
    x, y = write_lines(tmp_path / "x", text_lines("xx", 50)), write_lines(tmp_path / "y", text_lines("yy", 50))
    prepare_root(plan_with(vocabulary, tmp_path / "root", [f"xx={x}", f"yy={y}"]))
    with pytest.raises(UserError, match="mono/yy would be left over from another vocabulary"):
        prepare_root(Plan(tmp_path / "root", parse_parts([f"xx={x}"], []), 0, vocab_size=40))


# Command ---------------------------------------------------------------------------------------------


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
