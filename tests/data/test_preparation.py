# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""prepare_root.py: token files against fairseq-preprocess, held-out lines by hand, resuming, bad input."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype
from fairseq.options import get_preprocessing_parser
from fairseq_cli import preprocess
from support.preparation import (
    decoded,
    options_with,
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data.pairs import AdjacentSegments, BitextPairs
from veco_fairseq.data.prepare import encoding, growing, preparation
from veco_fairseq.data.prepare.growing import smallest_type
from veco_fairseq.data.prepare.preparation import prepare_root
from veco_fairseq.data.prepare.text import Options, Survey, parse_parts, survey_mono
from veco_fairseq.data.sentencepiece import Encoder, encode_text, load_sentencepiece
from veco_fairseq.data.symbols import read_symbols
from veco_fairseq.data.tokens import load_tokens
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines

# Vocabulary ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines_a_time", [1, 2, 7])
def test_the_index_is_written_in_parts(tmp_path, monkeypatch, lines_a_time):
    """... of so many lines, whatever their number, and each line begins where the one before has ended."""
    monkeypatch.setattr(growing, "SIZES_A_TIME", lines_a_time)
    lines = [[4, 5, 2], [2], [6, 2], [7, 8, 9, 10, 2], [11, 2]]
    tokens = growing.GrowingTokens(tmp_path / "train", 100)
    for some in (lines[:3], lines[3:]):
        tokens.add(np.concatenate(some), np.array([len(line) for line in some], dtype=np.int32))
    tokens.finish()
    assert [item.tolist() for item in MMapIndexedDataset(str(tmp_path / "train"))] == lines


def test_processes_make_the_same_root(tmp_path, vocabulary, monkeypatch):
    """... from texts that are read by processes, too; an error of one of them is a line."""
    monkeypatch.setattr(encoding, "LINES_A_BATCH", 7)
    monkeypatch.setattr(preparation, "BYTES_FOR_PROCESSES", 0)
    a, b = (write_lines(tmp_path / lang, [*text_lines(lang, 20), "", *text_lines(lang, 15)]) for lang in ("xx", "yy"))
    texts = {"mono": [f"xx={a}", f"yy={b}"], "bitext": [f"xx-yy={a},{b}"], "valid_lines": 4}
    all_options = [replace(options_with(vocabulary, tmp_path / str(n), **texts), workers=n) for n in (1, 2)]
    for options in all_options:
        prepare_root(options)
    one, two = ({path.relative_to(root): path.read_bytes() for path in root.rglob("*.*") if path.suffix != ".json"}
                for root in (options.output for options in all_options))  # fmt: skip
    assert one == two and len(one) > 16
    b.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match="yy, line 1: not UTF-8"):
        prepare_root(replace(all_options[1], output=tmp_path / "new"))


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_pairs_without_an_empty_side_go_to_the_same_split_in_blocks_of_any_size(tmp_path, vocabulary, monkeypatch, size):
    """Three in a row are left out, and so is a held-out one."""
    monkeypatch.setattr(encoding, "LINES_A_BATCH", size)
    left, right = text_lines("xx", 12), text_lines("yy", 12)
    for row, side in ((3, left), (4, right), (5, left), (8, right), (11, right)):
        side[row] = " "
    files = [write_lines(tmp_path / name, lines) for name, lines in (("xx", left), ("yy", right))]
    pairs = [pair for pair in zip(left, right, strict=True) if all(map(str.strip, pair))]
    wanted = {
        "valid": [pairs[3], pairs[5]],
        "train": [pairs[number] for number in (0, 1, 2, 4, 6)],
    }  # one of 0 to 3, one of 4 to 6
    given = {"bitext": [f"xx-yy={files[0]},{files[1]}"]}
    prepare_root(options_with(vocabulary, tmp_path / "root", **given, valid_lines=2))
    encoder = Encoder(load_sentencepiece(vocabulary / "spm.model"), read_symbols(vocabulary / "dict.txt"), workers=1)
    for split, rows in wanted.items():
        for side, language in enumerate(("xx", "yy")):
            found = MMapIndexedDataset(str(tmp_path / f"root/bitext/xx-yy/{split}.xx-yy.{language}"))
            assert [item.tolist() for item in found] == [ids.tolist() for ids in encoder([pair[side] for pair in rows])]


def test_ids_are_the_lines_of_the_dictionary(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x.txt", text_lines("xx", 5) + ["", "ab☃☃ "])
    prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={source}"]))
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
    prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={source}"]))
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
    options = Options(tmp_path / "root", parse_parts([f"xx={x}", f"yy={y}"], []), valid_lines=2, vocab_size=70)
    reports = prepare_root(options)
    pieces = (tmp_path / "root/dict.txt").read_text(encoding="utf-8")
    assert pieces.count("\n") == reports["vocabulary"]["tokens"] == 67
    assert "q" not in pieces and "g" in pieces and "z" in pieces
    assert reports["mono/xx"]["splits"]["valid"]["xx"]["unknown"] == 5  # one for each word of q's


def test_equal_shares():
    assert preparation.equal_shares({"a": 10, "b": 100, "c": 1000}, 300) == {"a": 10, "b": 100, "c": 190}
    assert preparation.equal_shares({"a": 10, "b": 100, "c": 1000}, 60) == {"a": 10, "b": 25, "c": 25}
    assert preparation.equal_shares({"a": 10, "b": 5}, 100) == {"a": 10, "b": 5}


def test_much_memory_is_announced(tmp_path):
    x = write_lines(tmp_path / "x.txt", ["a" * 50, "b" * 150] * 40)
    options = Options(tmp_path / "root", parse_parts([f"xx={x}"], []), valid_lines=0, vocab_size=9)
    surveys = {part.name: survey_mono(part.train[0], 0) for part in options.parts}
    said = ", with about 1.2 GB of memory (--vocab-lines takes fewer lines)"
    assert preparation._memory(options, surveys, 500_000) == said and preparation._memory(options, surveys, 200_000) == ""


def test_vocabulary_lines_are_shared_among_languages(tmp_path):
    x = write_lines(tmp_path / "x.txt", ["a b", "", *["c d"] * 7])
    y = write_lines(tmp_path / "y.txt", ["u v"] * 100)
    options = Options(tmp_path / "root", parse_parts([f"xx={x}", f"yy={y}"], []), valid_lines=0, vocab_size=9, vocab_lines=30)
    surveys = {part.name: survey_mono(part.train[0], 0) for part in options.parts}
    lines = list(preparation.training_lines(options, surveys))
    assert (lines.count("a b"), lines.count("c d"), lines.count("u v")) == (1, 7, 22)


@pytest.mark.parametrize(
    "change",
    [{"soft_vocab_limit": True}, {"vocab_size": 10}, {"vocab_lines": 31}, {"character_coverage": 0.99}, {"valid_lines": 1}],
)
def test_another_choice_makes_the_vocabulary_anew(tmp_path, change):
    """What a finished step was made from is compared: with it, there would be the old vocabulary in silence."""
    x = write_lines(tmp_path / "x.txt", ["a b", "", "c d"])
    options = Options(
        tmp_path / "root", parse_parts([f"xx={x}"], []), valid_lines=0, vocab_size=9, vocab_lines=30, character_coverage=0.98
    )
    made_from = preparation._vocabulary_inputs(options)
    assert preparation._vocabulary_inputs(replace(options, workers=3)) == made_from
    assert preparation._vocabulary_inputs(replace(options, **change)) != made_from
    write_lines(x, ["a b", "", "c e"])
    assert preparation._vocabulary_inputs(options) != made_from


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


# Of none of these SentencePiece leaves anything.
BLANK = pytest.mark.parametrize("blank", ["  ", "\u200b \u200e\ufeff", "\u2581\ufffd"])


@BLANK
def test_documents_keep_their_borders(tmp_path, vocabulary, blank):
    x = text_lines("xx", 7)
    source = write_lines(tmp_path / "x.txt", [x[0], x[1], "", x[2], x[3], blank, x[4], x[5], x[6]])
    reports = prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={source}"], valid_lines=2))
    mono = tmp_path / "root/mono/xx"
    assert decoded(mono / "train", vocabulary) == [x[0], x[1], "", x[2], x[3], ""]
    assert decoded(mono / "valid", vocabulary) == [x[4], x[5], x[6]]
    train = reports["mono/xx"]["splits"]["train"]["xx"]
    tokens = sum(len(item) for item in MMapIndexedDataset(str(mono / "train"))) - 6  # less six </s>
    assert train == {"lines": 4, "documents": 2, "tokens": tokens, "unknown": 0}
    assert reports["mono/xx"]["splits"]["valid"]["xx"]["documents"] == 1


@BLANK
def test_pairs_with_an_empty_side_are_dropped_and_held_out_ones_drawn(tmp_path, vocabulary, blank):
    x, y = text_lines("xx", 8), text_lines("yy", 8)
    a = write_lines(tmp_path / "a", [*x[:3], "", *x[4:]])
    b = write_lines(tmp_path / "b", [*y[:5], blank, *y[6:]])
    reports = prepare_root(options_with(vocabulary, tmp_path / "root", [], [f"yy-xx={b},{a}"], valid_lines=2))
    folder = tmp_path / "root/bitext/yy-xx"
    # Rows 0 1 2 4 6 7 are left; of every three one is held out.
    assert decoded(folder / "valid.yy-xx.xx", vocabulary) == [x[2], x[6]]
    assert decoded(folder / "valid.yy-xx.yy", vocabulary) == [y[2], y[6]]
    assert decoded(folder / "train.yy-xx.xx", vocabulary) == [x[0], x[1], x[4], x[7]]
    assert decoded(folder / "train.yy-xx.yy", vocabulary) == [y[0], y[1], y[4], y[7]]
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
        options_with(
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


# Bad input -------------------------------------------------------------------------------------------


def test_a_line_of_a_hundred_thousand_words(tmp_path, vocabulary):
    """It is kept whole, and training cuts it; as one side of a pair it is dropped there."""
    long, short = tmp_path / "long", tmp_path / "short"
    long.write_text("ab " * 100_000 + "\n" + "ab\n" * 3, encoding="utf-8")
    short.write_text("ab\n" * 4, encoding="utf-8")
    root = tmp_path / "root"
    prepare_root(options_with(vocabulary, root, [f"xx={long}"], bitext=[f"xx-yy={long},{short}"]))
    lines = load_tokens(root / "mono/xx/train")
    assert len(lines) == 4 and lines.sizes[0] >= 100_000
    segments = AdjacentSegments("xx", lines, 128)
    assert segments.dropped == 0 and segments.lengths.max() == 128 and segments.bounds[-1, 2] == lines.sizes.sum() - 4
    sides = (load_tokens(root / f"bitext/xx-yy/train.xx-yy.{side}") for side in ("xx", "yy"))
    pairs = BitextPairs("xx-yy", *sides, 128)
    assert (len(pairs), pairs.dropped) == (3, 1)


# Command ---------------------------------------------------------------------------------------------


def test_the_integer_type_is_fairseqs():
    sizes = (5, 65_499, 65_500, 250_002)
    assert [smallest_type(size) for size in sizes] == [best_fitting_int_dtype(size) for size in sizes]
