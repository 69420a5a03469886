# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What fairseq's commands read with the plug-in: their command lines, texts, token files and dictionaries."""

import argparse
import io
import re
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import fairseq_cli.generate
import fairseq_cli.interactive
import pytest
from conftest import make_dictionary, write_tokens
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.file_chunker_utils import Chunker

from veco_fairseq.compat import command_line, texts
from veco_fairseq.errors import UserError

# The command line


@pytest.mark.parametrize("given, chosen, words", [
    ("--save-dir=", {"save_dir": ""}, "--save-dir: is empty: give a value, or leave it out"),
    ("-d", {"save_dir": ""}, "--save-dir: is empty: give a value, or leave it out"),
    ("", {"data": ""}, "the argument data: is empty: give a value, or leave it out"),
    ("-d", {"suffix": "", "checkpoint_suffix": "", "save_dir": "x", "seed": 0, "names": None}, None),
    ("x", {"save_dir": ""}, None),  # as an architecture may set it
])  # fmt: skip
def test_what_is_given_as_nothing_is_told(monkeypatch, given, chosen, words):
    """Where nothing is neither the usual value nor one that means something."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--save-dir", "-d", default="checkpoints")
    parser.add_argument("--suffix", default="")
    parser.add_argument("--checkpoint-suffix", default="-a")
    found = Namespace(**chosen)
    monkeypatch.setattr(command_line, "_fairseq_parse_args_and_arch", lambda *_, **__: found)
    if words is None:
        assert command_line.parse_args_and_arch(parser, [given]) is found
    else:
        with pytest.raises(UserError) as caught:
            command_line.parse_args_and_arch(parser, [given])
        assert str(caught.value) == words


@pytest.mark.parametrize("text, kind, values", [
    ("1e-3,2", float, [0.001, 2.0]), ("3", float, [3.0]), ("[4, 5]", int, [4, 5]), ("(2,)", int, [2]), ("", float, []), (7, int, [7]),
    ((1, 2.5), float, [1.0, 2.5]), ("'a', 'b'", str, ["a", "b"]), (None, float, None),
])  # fmt: skip
def test_lists_of_a_command_line(text, kind, values):
    found = command_line.eval_str_list(text, kind)
    assert (
        found == values
        and command_line.eval_str_list("0.5") == [0.5]
        and (values is None or {type(value) for value in found} <= {kind})
    )


@pytest.mark.parametrize("text, kind, words", [
    ("1.5", int, "1.5: must be whole numbers, joined with commas"), ("1,True", int, "1,True: must be whole numbers"),
    ("True", float, "True: must be numbers, joined with commas"), ("'1'", float, "'1': must be numbers"),
    ("open('x')", str, "open('x'): must be values, joined with commas"),
])  # fmt: skip
def test_what_is_no_list_is_told(text, kind, words):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        command_line.eval_str_list(text, kind)
    assert str(caught.value).startswith(words)


# Texts


def test_standard_input_is_read_as_a_file_is(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\ufeff a\u0085b \nc\nd\n".encode())))
    assert list(texts.buffered_read("-", 2)) == [["a\u0085b", "c"], ["d"]]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n\xff\n")))
    with pytest.raises(UserError, match="^standard input, line 2: not UTF-8"):
        list(texts.buffered_read("-", 0))


@pytest.mark.parametrize("given, source", [("-", "standard input"), ("a.txt", "a.txt")])
@pytest.mark.parametrize("limit", ["1024", "(1024, 512)"])
def test_the_line_that_is_too_long_is_named(given, source, limit):
    def make_batches(lines, cfg, task):
        yield task
        raise Exception(f"Size of sample #1 is invalid (=2000) since max_positions={limit}, skip this example")

    batches = texts.naming_long_lines(make_batches)
    made = batches(["short", "b" * 29 + "cd", "other"], SimpleNamespace(interactive=SimpleNamespace(input=given)), "the task")
    assert next(made) == "the task"
    with pytest.raises(UserError) as caught:
        next(made)
    assert str(caught.value).startswith(
        f"{source}: the line that begins with '{'b' * 29}c' has more than the 1024 tokens that the model takes: "
    )


def test_other_errors_of_making_batches_stay():
    def make_batches(lines, cfg):
        yield lines
        raise KeyError("lines")

    with pytest.raises(KeyError):
        list(texts.naming_long_lines(make_batches)(["a"], None))


@pytest.mark.parametrize("options, read", [
    ({}, "train.aa train.bb"), ({"only_source": True}, "train.aa"), ({"source_lang": None, "target_lang": None}, "train"),
    ({"target_lang": None}, "train.aa"), ({"trainpref": None, "validpref": "a,b", "testpref": "c"}, "a.aa a.bb b.aa b.bb c.aa c.bb"),
    ({"testpref": "c,d", "only_source": True}, "train.aa c.aa d.aa"),
])  # fmt: skip
def test_the_texts_that_fairseq_preprocess_reads(monkeypatch, options, read):
    usual = {
        "source_lang": "aa",
        "target_lang": "bb",
        "only_source": False,
        "trainpref": "train",
        "validpref": None,
        "testpref": None,
    }
    found = []
    monkeypatch.setattr(texts, "read_lines", lambda path: found.append(str(path)) or [])
    texts.check_texts(Namespace(**{**usual, **options}))
    assert found == read.split()


@pytest.mark.parametrize("bpe, removed, printed", [
    ("sentencepiece", "sentencepiece", "a bc"), ("sentencepiece", None, "abc"), ("sentencepiece", "@@ ", "abc"),
    (None, "sentencepiece", "abc"), ("gpt2", "sentencepiece", "abc"),
])  # fmt: skip
def test_pieces_are_joined_once(bpe, removed, printed):
    """--remove-bpe has joined them, and --bpe would take the spaces between words for those between pieces."""
    pieces = object.__new__(SentencepieceBPE)
    cfg = SimpleNamespace(bpe=bpe and SimpleNamespace(_name=bpe), common_eval=SimpleNamespace(post_process=removed))
    assert texts.joined_once(lambda cfg, text: pieces.decode(text))(cfg, "a bc") == printed
    assert pieces.decode("\u2581a b \u2581c") == "ab c"  # afterwards


def test_pieces_of_bytes_are_characters_for_both_options():
    """A model with byte fallback spells the euro sign so; --bpe sentencepiece had printed the bytes' names."""
    text = "\u2581a <0xE2> <0x82> <0xAC> \u2581b c <0x0A>"
    assert object.__new__(SentencepieceBPE).decode(text) == data_utils.post_process(text, "sentencepiece") == "a\u20ac bc"


@pytest.mark.parametrize("main", [fairseq_cli.generate._main, fairseq_cli.interactive.main])
def test_both_commands_join_pieces_once(main):
    names = []
    while main is not None:
        names.append(main.__code__.co_qualname)
        main = getattr(main, "__wrapped__", None)
    assert "joined_once.<locals>.translate" in names


# Data


def test_half_of_a_token_file_is_told(tmp_path):
    write_tokens(tmp_path / "a", [[5, 6], [7]])
    name, exists = str(tmp_path / "a"), indexed_dataset.dataset_exists
    assert indexed_dataset.infer_dataset_impl(name) == "mmap" and exists(name, None) and exists(name, "mmap")
    assert not exists(str(tmp_path / "b"), None) and not exists(str(tmp_path / "b"), "mmap")
    assert indexed_dataset.infer_dataset_impl(str(tmp_path / "b")) is None
    (tmp_path / "b.bin").write_bytes(b"")
    for impl in (None, "mmap"):
        with pytest.raises(UserError, match=r"b\.idx"):
            exists(str(tmp_path / "b"), impl)
    (tmp_path / "a.bin").unlink()
    with pytest.raises(UserError, match=r"a\.bin"):
        indexed_dataset.infer_dataset_impl(name)
    assert not exists(name, "raw")  # a text, beside which there may be what there will
    (tmp_path / "a.bin").write_bytes(b"12345678")
    (tmp_path / "a.idx").write_bytes(b"12345678")
    with pytest.raises(UserError, match=r"a\.idx: not an index of fairseq-preprocess: preprocess it again"):
        indexed_dataset.infer_dataset_impl(name)


def test_tokens_of_another_kind_are_told(tmp_path):
    """Not those beside which there is a text of the same name, which --dataset-impl raw reads."""
    write_tokens(tmp_path / "a", [[5, 6], [7]])
    name, exists = str(tmp_path / "a"), indexed_dataset.dataset_exists
    for impl in ("lazy", "cached", "raw"):
        with pytest.raises(UserError, match=rf"/a: was made with --dataset-impl mmap, not {impl}: leave the option out"):
            exists(name, impl)
    (tmp_path / "a").write_text("x y\n")
    assert exists(name, "raw") and exists(name, "mmap")
    (tmp_path / "a").unlink()
    (tmp_path / "a.idx").write_bytes(b"TNTIDX\x00\x00" + bytes(24))
    assert exists(name, None) and exists(name, "lazy") and exists(name, "cached")
    with pytest.raises(UserError, match=r"was made with --dataset-impl cached, not mmap"):
        exists(name, "mmap")


def test_tokens_that_are_not_in_the_dictionary_are_told(tmp_path):
    write_tokens(tmp_path / "a", [[5, 6], [7, 9]])
    name = str(tmp_path / "a")
    small, large = make_dictionary(4, mask=False), make_dictionary(6, mask=False)  # 8 and 10 tokens
    with pytest.raises(UserError, match="9"):
        [*indexed_dataset.make_dataset(name, "mmap", dictionary=small)]
    assert [item.tolist() for item in indexed_dataset.make_dataset(name, "mmap", dictionary=large)] == [[5, 6, 2], [7, 9, 2]]
    Path(name).write_text("w0 w1\nw5\n")
    (first, second) = indexed_dataset.make_dataset(name, "raw", dictionary=large)
    assert (first.tolist(), second.tolist()) == ([4, 5, 2], [9, 2])
    assert indexed_dataset.make_dataset(str(tmp_path / "none"), "mmap", dictionary=large) is None


def test_a_raw_text_is_read_as_all_others(tmp_path):
    """Its byte order mark had made the first word unknown, and a carriage return within a line had moved all lines after it."""
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfw0 w1\r\nw2\rw3\n\nw4")
    dictionary = make_dictionary(6)
    dataset = indexed_dataset.make_dataset(str(path), "raw", dictionary=dictionary)
    ids = [[dictionary.index(word) for word in (*line.split(), "</s>")] for line in ("w0 w1", "w2 w3", "", "w4")]
    assert [tokens.tolist() for tokens in dataset] == ids and dataset.sizes.tolist() == [3, 3, 1, 2]
    assert dataset.get_original_text(0) == "w0 w1" and dictionary.unk() not in ids[0]
    path.write_bytes(b"w0\n\xff\n")
    with pytest.raises(UserError, match="text, line 2: not UTF-8"):
        indexed_dataset.make_dataset(str(path), "raw", dictionary=dictionary)


def test_a_part_of_a_text_is_read_alone(tmp_path):
    """As each of fairseq-preprocess's workers does, from one byte to another."""
    path = tmp_path / "text"
    path.write_text("one\ntwo\nthr\u00e9e\nfour\n", encoding="utf-8")
    for start, end, lines in (
        (4, 8, ["two\n"]),
        (4, 15, ["two\n", "thr\u00e9e\n"]),
        (0, 0, ["one\n", "two\n", "thr\u00e9e\n", "four\n"]),
    ):
        with Chunker(str(path), start, end) as chunk:
            assert list(chunk) == lines


@pytest.mark.parametrize("by", [str, Path, lambda path: open(path, encoding="utf-8")], ids=["name", "path", "file"])
def test_a_dictionary_is_read_by_its_name_or_from_a_file(tmp_path, by):
    path = tmp_path / "dict.txt"
    path.write_text("a 3\nb 2\n")
    dictionary = Dictionary()
    dictionary.add_from_file(by(path))
    assert dictionary.symbols[4:] == ["a", "b"] and dictionary.count[4:] == [3, 2]


@pytest.mark.parametrize("lang, scoring, removed, told", [
    ("zho_Hans", ("sacrebleu", "13a", False), "sentencepiece", "a sentence of zho_Hans for one word: give .* --sacrebleu-tokenizer zh,"),
    ("th", ("bleu", None, False), "sentencepiece", "a sentence of th for one word: give .* --sacrebleu-tokenizer char,"),
    (None, ("sacrebleu", "intl", False), None, "a sentence of ja for one word: give .* --sacrebleu-tokenizer char,"),
    ("zh", ("sacrebleu", "zh", False), "sentencepiece", None),
    ("zh", ("sacrebleu", "13a", True), "sentencepiece", None),
    ("zh", ("bleu", None, False), None, None),  # of pieces
    ("zh", ("bleu", None, False), "@@ ", None), ("zh", ("sacrebleu", "13a", False), "subword_nmt", None),  # of words
    ("ko", ("sacrebleu", "13a", False), "sentencepiece", None),
    ("zh", ("chrf", None, False), "sentencepiece", None),
])  # fmt: skip
@pytest.mark.parametrize("scored", [True, False])
def test_a_bleu_that_takes_sentences_for_words_is_told(tmp_path, caplog, lang, scoring, removed, told, scored):
    """fairseq-generate prints nearly 0; it scores nothing where there are no translations to compare with."""
    (tmp_path / "test.en-ja.en.idx").touch()
    name, tokenizer, by_characters = scoring
    scorer = (
        SimpleNamespace(ref=["x"] * scored) if name == "sacrebleu" else SimpleNamespace(stat=SimpleNamespace(reflen=3 * scored))
    )
    cfg = SimpleNamespace(
        scoring=SimpleNamespace(_name=name, sacrebleu_tokenizer=tokenizer, sacrebleu_char_level=by_characters),
        common_eval=SimpleNamespace(post_process=removed), task=SimpleNamespace(data=str(tmp_path), target_lang=lang),
    )  # fmt: skip
    assert texts.telling_of_long_words(lambda cfg, file: scorer)(cfg, None) is scorer
    assert [record.levelname for record in caplog.records] == ["WARNING"] * bool(told and scored)
    assert not caplog.records or re.search(told, caplog.text)
