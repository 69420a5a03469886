# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""veco binarize: the bytes of fairseq-preprocess, what is reported, resuming, and bad input."""

import gzip
import io
import json
import lzma
import re

import numpy as np
import pytest
import sentencepiece
from fairseq.data import Dictionary
from support.binarizing import by_fairseq, content, prefixes, texts
from support.preparation import (
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data import sentencepiece as pieces_of_text
from veco_fairseq.data.prepare import binarizing, encoding
from veco_fairseq.data.prepare.binarizing import Splits, binarize, report_lines
from veco_fairseq.data.sentencepiece import MODEL_NAME, Encoder, dictionary_text, encode_text, load_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines


@pytest.mark.parametrize("workers", [1, 3])
def test_the_bytes_are_those_of_fairseq_preprocess(tmp_path, vocabulary, workers, monkeypatch):
    """... and so are the lines of the log, but for the order: a split's two texts are written together here."""
    monkeypatch.setattr(encoding, "LINES_A_BATCH", 9)
    names = {"train": "train", "valid": "valid,other", "test": "test"}
    files = texts(tmp_path), vocabulary / "spm.model", vocabulary / "dict.txt"
    log = by_fairseq(tmp_path / "theirs", *files, names)
    reports = binarize(prefixes(tmp_path, names), *files[1:], tmp_path / "ours", workers=workers)
    ours = content(tmp_path / "ours")
    assert ours == content(tmp_path / "theirs") and len(ours) == 2 + 4 * 4 and "valid1.xx-yy.yy.idx" in ours
    assert sorted(report_lines(reports)) == sorted(log) and len(log) == 8
    assert re.search(r"train.xx: 60 sents, \d+ tokens, 0\.\d+% replaced \(by <unk>\)$", report_lines(reports)[0])


def test_a_text_that_grows_while_it_is_read_is_refused(tmp_path, vocabulary, monkeypatch):
    folder = texts(tmp_path)
    count = binarizing.count_translations

    def grown(*paths):
        number = count(*paths)
        with open(paths[1], "a", encoding="utf-8") as file:
            file.write("one more\n")
        return number

    monkeypatch.setattr(binarizing, "count_translations", grown)
    with pytest.raises(UserError, match="train.xx and .*train.yy: were changed while they were read: start again"):
        binarize(
            prefixes(folder, {"train": "train"}), vocabulary / "spm.model", vocabulary / "dict.txt", tmp_path / "b", workers=1
        )


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_each_split_can_be_made_alone(tmp_path, vocabulary, split):
    files = texts(tmp_path), vocabulary / "spm.model", vocabulary / "dict.txt"
    by_fairseq(tmp_path / "theirs", *files, {split: "other"})
    binarize(prefixes(tmp_path, {split: "other"}), *files[1:], tmp_path / "ours", workers=1)
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")


def test_the_model_lies_beside_the_data(tmp_path, vocabulary):
    """It can be read from there, too; a file of somebody else is left alone."""
    splits, files = prefixes(texts(tmp_path), {"test": "test"}), (vocabulary / "spm.model", vocabulary / "dict.txt")
    copied, before = tmp_path / "bin" / MODEL_NAME, files[0].read_bytes()
    binarize(splits, *files, copied.parent, workers=1)
    assert copied.read_bytes() == before
    copied.write_bytes(b"damaged")
    binarize(splits, *files, copied.parent, workers=1)
    assert copied.read_bytes() == before
    binarize(splits, copied, files[1], copied.parent, workers=1)
    assert copied.read_bytes() == before
    theirs = tmp_path / "theirs" / MODEL_NAME
    theirs.parent.mkdir()
    theirs.write_bytes(b"another")
    with pytest.raises(UserError, match=rf"{theirs}: is another model than .*spm.model, and was not written by this command"):
        binarize(splits, *files, theirs.parent, workers=1)
    assert [path.name for path in theirs.parent.iterdir()] == [MODEL_NAME]
    theirs.write_bytes(before)
    binarize(splits, *files, theirs.parent, workers=1)
    assert MODEL_NAME not in json.loads((theirs.parent / binarizing.MANIFEST_NAME).read_text())["steps"]


def test_more_words_than_two_bytes_can_count(tmp_path, vocabulary):
    """Also: words that SentencePiece does not know and the dictionary does, and one that replaces another."""
    rows = (vocabulary / "dict.txt").read_text(encoding="utf-8").splitlines()
    rows += ["☃☃ 7", "<s> 3 #fairseq:overwrite", f"{rows[5].split(' ')[0]} 2 #fairseq:overwrite"]
    rows += [f"madeupword{number:05} 0" for number in range(65_500)]
    dictionary = write_lines(tmp_path / "dict", rows)
    files = texts(tmp_path), vocabulary / "spm.model", dictionary
    by_fairseq(tmp_path / "theirs", *files, {"train": "train"})
    binarize(prefixes(tmp_path, {"train": "train"}), *files[1:], tmp_path / "ours", workers=2)
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")
    ids = np.fromfile(tmp_path / "ours/train.xx-yy.xx.bin", dtype=np.uint32)
    assert Dictionary.load(str(dictionary)).index("☃☃") in ids


def test_pieces_that_have_spaces_in_them(tmp_path):
    """Of a model that does not normalise: fairseq-preprocess takes them for two words, or none."""
    model = io.BytesIO()
    lines = [f"a\u3000b\u3000{word}" for word in text_lines("xx", 200)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=40, normalization_rule_name="identity", minloglevel=2
    )
    (tmp_path / "m").write_bytes(model.getvalue())
    processor = load_sentencepiece(tmp_path / "m")
    spaced = [
        processor.id_to_piece(i) for i in range(len(processor)) if processor.id_to_piece(i).split() != [processor.id_to_piece(i)]
    ]
    assert spaced
    rows = [row for row in dictionary_text(model.getvalue(), tmp_path / "m").decode().splitlines() if row.split(" ")[0].strip()]
    dictionary = write_lines(tmp_path / "dict", [row for row in rows if "\u3000" not in row])
    for language in ("xx", "yy"):
        write_lines(tmp_path / f"train.{language}", [*lines[:9], "z\u3000\u2028☃\u3000☃", "", "a\rb\r\rz", "a"])
    files = tmp_path, tmp_path / "m", dictionary
    by_fairseq(tmp_path / "theirs", *files, {"train": "train"})
    binarize(prefixes(tmp_path, {"train": "train"}), *files[1:], tmp_path / "ours", workers=1)
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")


def test_a_text_that_spells_a_symbol_by_unknown_letters_goes_on(tmp_path):
    """Of a model that knows none of them; its own <mask> is a piece, and stays. fairseq-preprocess had ended the sentence at </s>."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ba aab"] * 9), model_writer=model, vocab_size=7, model_type="char", user_defined_symbols="<mask>",
        minloglevel=2,
    )  # fmt: skip
    (tmp_path / "m").write_bytes(model.getvalue())
    dictionary = write_lines(tmp_path / "dict", ["▁ 1", "a 1", "b 1", "<mask> 1"])
    for language in ("xx", "yy"):
        write_lines(tmp_path / f"train.{language}", ["a </s> b", "a<s>b <mask>"])
    files = tmp_path, tmp_path / "m", dictionary
    by_fairseq(tmp_path / "theirs", *files, {"train": "train"})
    binarize(prefixes(tmp_path, {"train": "train"}), *files[1:], tmp_path / "ours", workers=1)
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")
    ids = np.fromfile(tmp_path / "ours/train.xx-yy.xx.bin", dtype=np.uint16)
    assert ids.tolist() == [4, 5, 4, 3, 4, 6, 2, 4, 5, 3, 6, 4, 7, 2]


@pytest.mark.parametrize("name", ["newstest/valid_2013", "flores101"])
def test_real_text(tmp_path, shared_data, vocabulary, name):
    """Of Latin, Cyrillic and Chinese letters, most of which this model does not know."""
    languages = ("ru", "fr") if name.startswith("news") else ("zho_simpl", "tur")
    for language in languages:
        path = shared_data / (f"{name}.{language}.gz" if name.startswith("news") else f"{name}/{language}.devtest.gz")
        write_lines(tmp_path / f"train.{language}", list(read_lines(path))[:500])
    files = tmp_path, vocabulary / "spm.model", vocabulary / "dict.txt"
    log = by_fairseq(tmp_path / "theirs", *files, {"train": "train"}, languages)
    reports = binarize(Splits(languages, {"train": str(tmp_path / "train")}), *files[1:], tmp_path / "ours", workers=2)
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")
    assert report_lines(reports) == log


def test_texts_may_be_compressed(tmp_path, vocabulary):
    files = vocabulary / "spm.model", vocabulary / "dict.txt"
    binarize(prefixes(texts(tmp_path), {"train": "train"}), *files, tmp_path / "plain", workers=1)
    for language, pack in (("xx", gzip.compress), ("yy", lzma.compress)):
        path = tmp_path / f"train.{language}"
        path.with_name(f"{path.name}.{'gz' if language == 'xx' else 'xz'}").write_bytes(pack(path.read_bytes()))
        path.unlink()
    binarize(prefixes(tmp_path, {"train": "train"}), *files, tmp_path / "packed", workers=1)
    (tmp_path / "train.xx.xz").touch()
    assert Splits(("xx", "yy"), {"train": str(tmp_path / "train")}).texts("train")[0] == tmp_path / "train.xx.gz"
    (tmp_path / "train.xx").touch()
    assert Splits(("xx", "yy"), {"train": str(tmp_path / "train")}).texts("train")[0] == tmp_path / "train.xx"
    assert content(tmp_path / "packed") == content(tmp_path / "plain")


def test_pieces_are_counted_by_line_and_of_no_text_there_are_none(tmp_path, vocabulary, monkeypatch):
    monkeypatch.setattr(pieces_of_text, "LINES_A_BATCH", 2)
    source = write_lines(tmp_path / "x", ["ab", "", "ab ab"])
    assert encode_text(vocabulary / "spm.model", source, tmp_path / "pieces", 1) == 3
    assert [line.replace(" ", "") for line in read_lines(tmp_path / "pieces")] == ["▁ab", "", "▁ab▁ab"]
    with pytest.raises(UserError, match="empty: holds no text"):
        encode_text(vocabulary / "spm.model", write_lines(tmp_path / "empty", []), tmp_path / "none", 1)
    assert not (tmp_path / "none").exists()


def test_the_encoder_gives_lines_and_all_at_once(vocabulary):
    model = load_sentencepiece(vocabulary / "spm.model")
    symbols = list(Dictionary.load(str(vocabulary / "dict.txt")).symbols)
    encoder = Encoder(model, symbols, 1)
    lines = ["ab", "", "☃ ab"]
    assert [line.tolist() for line in encoder(lines)] == [
        [*(symbols.index(piece) if piece in symbols else 3 for piece in model.encode(line, out_type=str)), 2] for line in lines
    ]
    words = [[symbols.index(piece) for piece in model.encode("ab", out_type=str)], [symbols.index("<unk>")]]
    assert [word.tolist() for word in encoder.words(["ab", "\u200b"])] == words  # a space without width, which is dropped
    ids, sizes = encoder.flat([])
    assert (len(ids), len(sizes), encoder([])) == (0, 0, [])


def test_command(tmp_path, vocabulary, run):
    texts(tmp_path)
    command = ("scripts/binarize.py", "-s", "xx", "-t", "yy", "--trainpref", "train", "--sentencepiece", vocabulary / "spm.model",
               "--dict", vocabulary / "dict.txt", "--destdir", "bin")  # fmt: skip
    result = run(*command, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(
        r"train.xx-yy: 60 lines encoded in .* s\n\[xx\] train.xx: 60 sents.*\n\[yy\] train.yy: 60 sents.*\n", result.stdout
    )
    manifest = json.loads((tmp_path / "bin" / binarizing.MANIFEST_NAME).read_text())
    assert manifest["steps"]["train.xx-yy"]["report"]["yy"]["sentences"] == 60
