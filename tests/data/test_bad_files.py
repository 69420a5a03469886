# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Texts, dictionaries, SentencePiece models and JSON that are damaged or do not belong together."""

import gzip
import itertools
import json
import time
from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from conftest import error_line, make_dictionary, write_tokens
from fairseq.data import Dictionary
from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.compat import texts
from veco_fairseq.curves import read_curve
from veco_fairseq.data import sentencepiece as pieces_of_text
from veco_fairseq.data.sentencepiece import dictionary_text, load_sentencepiece, train_sentencepiece
from veco_fairseq.data.symbols import require_own_pieces
from veco_fairseq.data.vocabulary import dictionary_of, read_dictionary, require_same_symbols
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json, read_lines, read_translations
from veco_fairseq.manifest import Manifest
from veco_fairseq.tasks.translation import CheckedTranslationTask, TranslationConfig
from veco_fairseq.understanding.teaching import read_words

WORDS = ["one two three four", "two of three", "four and one are five", "five of five"] * 4
MARK = "\ufeff"


# Text


def test_a_mark_is_left_out_at_the_beginning_alone(tmp_path):
    path = tmp_path / "text"
    path.write_text(f"{MARK}a b\n{MARK}c{MARK}\r\n", encoding="utf-8")
    assert list(read_lines(path)) == ["a b", f"{MARK}c{MARK}"]
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_lines(packed)) == list(read_lines(path)) and read_words(path, None)[0] == ["a", "b"]


@pytest.mark.parametrize("content, message", [
    (b"a\nb\0c\n", r"text, line 2: has a NUL character at 2: "),
    ("a b\n".encode("utf-16-le"), r"text, line 1: has a NUL character at 2: the file is UTF-16"),
    ("a b\n".encode("utf-16"), "text: is UTF-16: convert it with iconv"),
    (b"a\n\xed\xa0\x80\n", r"text, line 2: not UTF-8"),
])  # fmt: skip
def test_what_is_no_text_is_told_with_its_line(tmp_path, content, message):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(read_lines(tmp_path / "text"))


def test_fairseq_interactive_reads_as_we_do(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(f"{MARK} a \n\x85b\rc\n\nd".encode())
    assert list(texts.buffered_read(str(path), 2)) == [["a", "b\rc"], ["", "d"]]
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(UserError, match="text, line 2: not UTF-8"):
        list(texts.buffered_read(str(path), 1))


@pytest.mark.parametrize("name, content, message", [
    ("train.bb", b"a\xff\n", r"train\.bb, line 1: not UTF-8"),
    ("valid.aa", b"a\nb\rc\n", r"valid\.aa, line 2: has a carriage return"),
    ("test.bb", None, r"test\.bb: no such file"),
])  # fmt: skip
def test_fairseq_preprocess_looks_at_all_texts_first(tmp_path, name, content, message):
    for split in ("train", "valid", "test"):
        for lang in ("aa", "bb"):
            (tmp_path / f"{split}.{lang}").write_bytes(b"\xef\xbb\xbfa b\r\nc\n")
    prefixes = {f"{split}pref": str(tmp_path / split) for split in ("train", "valid", "test")}
    args = Namespace(source_lang="aa", target_lang="bb", only_source=False, **prefixes)
    made = []
    build_dictionary = texts.checked_first(lambda *files, args: made.append(1))
    make_all = texts.checked_first(lambda *files: made.append(2))
    build_dictionary([], args=args)
    make_all("aa", None, args)
    assert made == [1, 2]
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    args = Namespace(**vars(args))
    for make in (lambda: build_dictionary([], args=args), lambda: make_all("aa", None, args)):
        with pytest.raises(UserError, match=message):
            make()
    assert made == [1, 2]


def test_fairseq_preprocess_leaves_the_mark_out(tmp_path):
    (tmp_path / "text").write_text(f"{MARK}a b\nc{MARK}\n", encoding="utf-8")
    dictionary = Dictionary()
    Dictionary.add_file_to_dictionary(str(tmp_path / "text"), dictionary, str.split, 1)
    assert {"a", "b", f"c{MARK}"} <= set(dictionary.symbols) and f"{MARK}a" not in dictionary


@pytest.mark.parametrize(
    "source, target, words",
    [("", "", "x: holds no text"), ("a\n", "", "y: holds no text"),
     ("a\n", "b\nc\n", "x has 1 lines and .*y has 2: line N of the one")],
)  # fmt: skip
def test_texts_that_are_no_translations_are_told(tmp_path, source, target, words):
    for name, text in (("x", source), ("y", target)):
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        read_translations(tmp_path / "x", tmp_path / "y")


def test_a_teachers_tags_are_written_as_conllu_alone(tmp_path, run):
    (tmp_path / "text").write_text("a b\n")
    command = ("scripts/label_with_teacher.py", tmp_path / "text", "--input", tmp_path / "text", "--output")
    assert "is written as CoNLL-U: choose a name that ends in .conllu" in error_line(run(*command, tmp_path / "train-de.tsv"))


def test_long_lines_are_cut_between_words(monkeypatch):
    """The trainer counts words, so that nothing is lost; its time grows with the square of a line's length."""
    started = time.process_time()
    train_sentencepiece([*WORDS, "one two three " * 50_000], 22, character_coverage=1.0)
    assert time.process_time() - started < 30  # of minutes without
    monkeypatch.setattr(pieces_of_text, "LONGEST_LINE", 12)
    assert list(pieces_of_text._cut(["one two three", "a" * 30, "b"])) == ["one two", " three", "a" * 12, "a" * 12, "a" * 6, "b"]
    cut = pieces_of_text._cut(["one two four", " aaaaaaaaaaaaaa"])
    assert list(itertools.islice(cut, 9)) == ["one two four", " aaaaaaaaaaa", "aaa"]


def test_the_vocabulary_learns_from_long_lines_of_long_letters(monkeypatch):
    """Of fewer characters than are cut, but of more bytes, and of more than the 4,192 that the trainer takes by default."""
    monkeypatch.setattr(pieces_of_text, "LONGEST_LINE", 2000)
    model = sentencepiece_model_pb2.ModelProto.FromString(
        train_sentencepiece([*WORDS, "\U00010348\U00010330 " * 550], 24, character_coverage=1.0)
    )
    assert any("\U00010348" in piece.piece for piece in model.pieces)


# Dictionaries and SentencePiece models


@pytest.mark.parametrize("content, message", [
    ("a 1\nb\n", r"dict\.txt, line 2: expected '<token> <count>', found 'b'"),
    ("a 1\n 2\n", r"dict\.txt, line 2: expected"),
    ("a 1\nb 1.5\n", r"dict\.txt, line 2: expected"),
    ("a 1\nb 1\na 1\n", r"dict\.txt, line 3: 'a' is there twice"),
    ("<unk> 1\n", r"dict\.txt, line 1: '<unk>' is there twice"),
    ("", r"dict\.txt: empty"),
    ("x" * 99, r"dict\.txt, line 1: expected '<token> <count>', found 'x{40}': mend the line, or give fairseq's dict.txt$"),
])  # fmt: skip
def test_fairseq_reads_a_dictionary_as_we_do(tmp_path, content, message):
    path = tmp_path / "dict.txt"
    path.write_text(f"{MARK}x\u0085 1\r\ny 7 #fairseq:overwrite\n", encoding="utf-8")
    assert (
        Dictionary.load(str(path)).symbols == read_dictionary(path).symbols == ["<s>", "<pad>", "</s>", "<unk>", "x\u0085", "y"]
    )
    assert read_dictionary(path).count == [1, 1, 1, 1, 1, 7]
    path.write_text("a 1\n")
    assert Dictionary.load(str(path)).symbols[4:] == read_dictionary(path).symbols[4:] == ["a"]
    path.write_text(content)
    for read in (Dictionary.load, read_dictionary):
        with pytest.raises(UserError, match=message):
            read(str(path))


def test_a_checkpoint_keeps_the_symbols_of_a_dictionary_that_has_one_twice(tmp_path):
    (tmp_path / "dict.txt").write_text("b 1\na 1\nb 2 #fairseq:overwrite\n<s> 3 #fairseq:overwrite\n")
    for words in (read_dictionary(tmp_path / "dict.txt"), dictionary_of(read_dictionary(tmp_path / "dict.txt").symbols)):
        assert words.symbols == ["<s>", "<pad>", "</s>", "<unk>", "b", "a", "b", "<s>"]
        assert [words.index(symbol) for symbol in ("a", "b", "<s>", "</s>")] == [5, 6, 7, 2]


@pytest.fixture(scope="module")
def model():
    return train_sentencepiece(WORDS, 22, character_coverage=1.0)


@pytest.mark.parametrize("name", ["cut", "without settings", "flipped", "empty", "folder"])
def test_a_damaged_model_is_told(tmp_path, model, name):
    path = tmp_path / "sentencepiece.bpe.model"
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    pieces = sentencepiece_model_pb2.ModelProto(pieces=proto.pieces).SerializeToString()
    assert model.startswith(pieces)  # so that the file can be cut off right after them
    if name == "folder":
        path.mkdir()
    else:
        proto.normalizer_spec.precompiled_charsmap = b"damaged"
        content = {"cut": model[:-5], "without settings": pieces, "flipped": proto.SerializeToString(), "empty": b""}[name]
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"sentencepiece\.bpe\.model: (not a|is a Sent|is a folder)"):
        load_sentencepiece(path)


@pytest.mark.parametrize("name", ["<mask>", "<pad>"])
def test_a_piece_with_a_symbols_name_is_told(tmp_path, model, name):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.pieces[7].piece = name
    with pytest.raises(UserError, match=f"spm: has a piece '{name}', which is a symbol of fairseq's: take it out of the text"):
        dictionary_text(proto.SerializeToString(), tmp_path / "spm")


def test_a_model_of_another_dictionary_is_told(tmp_path, model):
    path = tmp_path / "model"
    path.write_bytes(model)
    processor = load_sentencepiece(path)
    own = dictionary_text(model, path).decode().splitlines()
    tokens = [line.split(" ")[0] for line in own]
    require_own_pieces(processor, path, dictionary_of([*tokens, "<mask>"]).symbols)
    require_own_pieces(processor, path, dictionary_of(tokens[:3]).symbols)  # of a text that needs no more of them
    require_own_pieces(processor, path, dictionary_of([*tokens[:5], "[de]", "[en_XX]", "madeupword0000", "w1"]).symbols)
    require_own_pieces(processor, path, dictionary_of([*tokens[:3], "<2de>", "w1"]).symbols)  # 3 of 4 are enough
    other = dictionary_of([*tokens[:5], *(f"w{number}" for number in range(2))]).symbols
    with pytest.raises(UserError, match="only 5 of its 7 tokens are pieces of this SentencePiece model"):
        require_own_pieces(processor, path, other)


def test_the_first_token_that_differs_is_told():
    dictionary = dictionary_of(["a", "b"])
    require_same_symbols(None, dictionary, "m.pt", "data")
    require_same_symbols(tuple(dictionary.symbols), dictionary, "m.pt", "data")
    for tokens, message in (
        (["a", "c"], "of 6 tokens where data has 6; first difference: token 5 is 'c' there and 'b' here"),
        (["b", "a"], "of 6 tokens where data has 6; first difference: token 4 is 'b' there and 'a' here"),
        (["a"], "of 5 tokens where data has 6; first difference: token 5 is missing there and 'b' here"),
        (["a", "b", "c"], "of 7 tokens where data has 6; first difference: token 6 is 'c' there and missing here"),
    ):
        with pytest.raises(UserError, match=f"m.pt: was trained with another dictionary, {message}"):
            require_same_symbols(dictionary_of(tokens).symbols, dictionary, "m.pt", "data")


# What commands wrote


@pytest.mark.parametrize("content, message", [
    ("{", r"x\.json, line 1: is not JSON"),
    ("[" * 100_000, r"x\.json: cannot be read as JSON"),
    ("1" * 5000, r"x\.json: cannot be read as JSON"),
    ('{"a": "\\ud800"}', r"x\.json: cannot be read as JSON"),
])  # fmt: skip
def test_json_that_cannot_be_read_is_told(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(f'{MARK}{{"a": [1, "\u00e9"]}}\n', encoding="utf-8")
    assert read_json(path) == {"a": [1, "\u00e9"]}
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_json(path)


def test_a_changed_manifest_is_told(tmp_path):
    manifest = Manifest(tmp_path, "m.json", ())
    (tmp_path / "file").write_text("text")
    manifest.finish("step", {"from": 1}, ["file"], {"lines": 7})
    assert Manifest(tmp_path, "m.json", ()).is_done("step", {"from": 1})
    text = (tmp_path / "m.json").read_text()
    held = json.loads(text)
    (tmp_path / "m.json").write_text(json.dumps({"steps": held["steps"]}))  # as it was written without a checksum
    assert Manifest(tmp_path, "m.json", ()).steps == held["steps"]
    outside = {"steps": {"step": {**held["steps"]["step"], "files": {"../file": 4}}}}
    for damaged in (text.replace("7", "8"), json.dumps(outside), json.dumps({"steps": {"step": 3}})):
        (tmp_path / "m.json").write_text(damaged)
        with pytest.raises(UserError, match=r"m\.json: damaged"):
            Manifest(tmp_path, "m.json", ())


@pytest.mark.parametrize("damage", ["results/accuracy", "lang", "seeds", "number", "above", "below"])
def test_figures_that_are_none_are_told(tmp_path, run, damage):
    content = {"lang": {"f1": 0.5, "lang": None}, "seeds": {"seeds": 0}, "number": {"seeds": [{"de": {"f1": "x"}}]},
               "above": {"seeds": [{"de": {"f1": 100.5}}]}, "below": {"seeds": [{"de": {"f1": -0.5}}]},
               "results/accuracy": {"accuracy": {"de": {"1": 0.5}}}}[damage]  # fmt: skip
    (tmp_path / "x.json").write_text(json.dumps(content))
    line = error_line(run("scripts/evaluate_xtreme.py", "table", "bucc=x.json", cwd=tmp_path))
    assert "x.json: is not from veco evaluate run or veco retrieve" in line


def test_a_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path):
    line = 'INFO | valid | {"epoch": 1, "valid_loss": "%s", "valid_num_updates": "%d"}\n'
    log = tmp_path / "log"
    log.write_text(line % ("2.5", 10) + line % ("1.2.3", 20) + line % ("9" * 400, 30) + (line % ("1.5", 40))[:45])
    assert read_curve(log, "loss") == [(10, 2.5)]


@pytest.mark.parametrize("split", ["valid", "valid1", "train_all", "test", "dev"])
def test_translation_data_without_targets_is_told(tmp_path, split):
    write_tokens(tmp_path / f"{split}.aa-bb.aa", [[5, 6]])
    words = make_dictionary(mask=False)
    cfg = TranslationConfig(data=str(tmp_path), source_lang="aa", target_lang="bb", train_subset="train_all")
    cfg.dataset_impl = None
    task = CheckedTranslationTask(
        SimpleNamespace(**{**vars(cfg), "required_seq_len_multiple": 1, "num_batch_buckets": 0}), words, words
    )
    with nullcontext() if split == "test" else pytest.raises(UserError, match=f"its {split} data has no bb"):
        task.load_dataset(split, **({"task_cfg": cfg} if split == "test" else {}))  # as fairseq-generate does
