# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""tokenizer.json: a text's ids are those that SentencePiece and a fairseq dictionary give it."""

import io
import json
import sys
from itertools import islice
from types import SimpleNamespace
from unicodedata import normalize

import pytest
import sentencepiece
from support.xlmr import needs_transformers

from veco_fairseq.checkpoints.huggingface import import_transformers
from veco_fairseq.checkpoints.tokenizer import (
    fast_tokenizer,
    missing_pieces,
    write_tokenizer,
    write_xlmr_tokenizer,
    xlmr_tokenizer,
)
from veco_fairseq.data.sentencepiece import load_sentencepiece, ordinary_pieces, train_sentencepiece
from veco_fairseq.data.symbols import SPECIALS
from veco_fairseq.files import read_lines

Tokenizer = pytest.importorskip("tokenizers").Tokenizer
TEXT = ["the cat sat on the mat", "a dog saw the cat", "dogs and cats sit", "the mat is red and the dog is brown"] * 3
ODD = [
    "", " ", "  the  cat ", "the\tcat", "\u3000the cat", "\xa0dog\x85", "the\x85cat \x85 s\x85\u2603\x85\u2603at", "ⅷ ﬁt",
    "Zebra ☃☃ cat", "<s> the </s>", "[en] cat", "▁the▁cat", "e\u0301",
]  # fmt: skip


def processor(**options):
    return processor_of(TEXT, **options)


def processor_of(text, **options):
    model = io.BytesIO()
    options = {
        "vocab_size": 40, "hard_vocab_limit": False, "character_coverage": 1.0, "model_type": "unigram", "minloglevel": 2, **options,
    }  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=model, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def expected(model, symbols, line):
    """As fairseq reads the pieces: white space in them, such as U+0085, separates words."""
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    return [*(ids.get(word, 3) for word in " ".join(model.encode(line, out_type=str)).split()), 2]


MODELS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"byte_fallback": True, "vocab_size": 300},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"split_by_whitespace": False, "vocab_size": 80},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nfkc_cf"},
    ],
    ids=str,
)


@MODELS
@pytest.mark.parametrize("order", ["as in the model", "reversed"])
def test_ids_and_text(options, order):
    """In any order, with symbols between that are no pieces; ids of pieces that the dictionary has not are its own."""
    model = processor(**options)
    pieces = ordinary_pieces(model)
    symbols = [*SPECIALS, *(pieces if order == "as in the model" else ["[en]", *pieces[:5:-1], "madeupword0000"])]
    more = missing_pieces(model, symbols)
    assert len(more) == (0 if order == "as in the model" else 6)
    tokenizer = fast_tokenizer(model, [*symbols, *more], ["</s>"], "</s>")
    tokenizer.encode_special_tokens = True
    for line in [*TEXT, *ODD]:
        found = [token if token < len(symbols) else 3 for token in tokenizer.encode(line).ids]
        assert found == expected(model, symbols, line), line
    for line in TEXT:
        assert tokenizer.decode(tokenizer.encode(line).ids) == line


@pytest.mark.parametrize("name", ["nmt_nfkc", "nfkc_cf"])
@pytest.mark.parametrize("text", [
    "ti\u1ebfng vi\u1ec7t", "\ud55c\uad6d\uc5b4", "\u0bae\u0bca\u0bb4\u0bbf \u0995\u09cb\u09a8",  # Vietnamese, Korean, Tamil, Bengali
    "\u30ac\u30d1", "\u0633\u0651\u064e\u0644\u0627", "\u05e9\u05c1\u05b8", "f\u0131\u0308 1\u0301",  # katakana, Arabic, Hebrew
    # Letters that are composed but for a mark: Vietnamese, Korean, Greek. And marks in another order, twins of characters, Thai.
    "ti\u00ea\u0301ng Vi\u00ea\u0323t \u01a1\u0309", "\ud558\u11ab", "\u03ac\u0345", "o\u0301\u0323 e\u0331\u0301", "a\u0341 \u212a\u0327", "1\xa0\u0e33",
])  # fmt: skip
def test_marks_are_neither_lost_nor_moved(text, name):
    """However a character is written: in parts, in half width, as a ligature; and marks in whatever order they have."""
    model = processor_of([text] * 20, normalization_rule_name=name)
    symbols = [*SPECIALS, *ordinary_pieces(model)]
    half_width = {"\u30ac": "\uff76\uff9e", "\u30d1": "\uff8a\uff9f"}
    ligature = text.replace("\u0644\u0627", "\ufefb").replace("\u05e9\u05c1", "\ufb2a").replace("1", "\u2460")
    for written in (text, normalize("NFD", text), "".join(half_width.get(c, c) for c in text), ligature, ligature + "\u064e"):
        assert fast_tokenizer(model, symbols, ["</s>"], "</s>").encode(written).ids == expected(model, symbols, written), written
        ids = xlmr_tokenizer(model, [*symbols, "<mask>"]).encode(written).ids
        assert ids == [0, *expected(model, symbols, written)], written


@MODELS
def test_an_encoder_has_the_symbols_of_xlmr(options):
    """Around one text and two; <mask> in a text is the token. Places do not begin with a space where the model adds one."""
    model = processor(**options)
    symbols = [*SPECIALS, *ordinary_pieces(model)[::-1], "<mask>"]
    tokenizer = xlmr_tokenizer(model, symbols)
    by_words = not {"add_dummy_prefix", "remove_extra_whitespaces", "split_by_whitespace"} & options.keys()
    # XLM-R in transformers takes a text's own "▁" for the space that is added.
    for line in [*TEXT, *(line for line in ODD if "<s>" not in line and not (by_words and line.startswith("▁")))]:
        one = [0, *expected(model, symbols, line)]
        assert tokenizer.encode(line).ids == one, line
        assert tokenizer.encode(line, "a dog").ids == [*one, 2, *expected(model, symbols, "a dog")]
    for line in TEXT:
        found = tokenizer.encode(line)
        assert tokenizer.decode(found.ids) == line
        assert any(line[start] == " " for start, _ in found.offsets[1:-1]) != by_words
    masked = tokenizer.encode("the  <mask> sat").ids
    assert masked == [0, *expected(model, symbols, "the")[:-1], len(symbols) - 1, *expected(model, symbols, " sat")]


def test_a_language_token_ends_a_source():
    model = processor()
    symbols = [*SPECIALS, *ordinary_pieces(model), "[en]", "[de]"]
    tokenizer = fast_tokenizer(model, symbols, ["</s>", "[en]"], "[de]")
    ids = tokenizer.encode("the cat").ids
    assert ids == [*expected(model, symbols, "the cat"), len(symbols) - 2]
    assert tokenizer.decode([*ids, len(symbols) - 1]) == "the cat"  # all of them are special


@MODELS
def test_a_source_begins_with_the_token_of_the_language_to_translate_into(options):
    """There, with spaces or without, it is the token; elsewhere it is text, as for fairseq."""
    model = processor(**options)
    symbols = [*SPECIALS, *ordinary_pieces(model), "<2de>", "<2pt_BR>"]
    tokenizer = fast_tokenizer(model, symbols, ["</s>"], "</s>")
    tokenizer.encode_special_tokens = True  # as tokenizer_config.json asks
    texts = ["the cat", "", "</s> the cat", "<2de> the cat", "the <2de> cat", "cat<2pt_BR>dog <2de>", "\u2603<2de>\u2603"]
    for number, token in enumerate(symbols[-2:], len(symbols) - 2):
        for line in (*TEXT, *texts):
            for before in (f"{token} ", token, f" {token}   "):
                assert tokenizer.encode(before + line).ids == [number, *expected(model, symbols, line)], before + line
        assert tokenizer.decode(tokenizer.encode(f"{token} the cat").ids).replace(" ", "") == f"{token}thecat"
        assert number not in tokenizer.encode(f"the \ufdd1{token} cat").ids  # with the mark that a text's beginning gets
    for line in ("the cat", "<2xx> the cat", "the <2de> cat"):
        assert tokenizer.encode(line).ids == expected(model, symbols, line), line


def test_a_piece_such_as_2de_is_one_in_a_text_too():
    model = processor(user_defined_symbols=["<2de>"])
    symbols = [*SPECIALS, *ordinary_pieces(model), "<2fr>"]
    tokenizer = fast_tokenizer(model, symbols, ["</s>"], "</s>")
    for line in ("the cat", "the <2de> cat", "the<2de>cat", "<2de> cat", "<2fr> cat"):
        assert tokenizer.encode(f"<2fr> {line}").ids == [len(symbols) - 1, *expected(model, symbols, line)], line


def test_two_texts_have_one_end():
    model = processor()
    symbols = [*SPECIALS, *ordinary_pieces(model), "[en]"]
    tokenizer = fast_tokenizer(model, symbols, ["</s>", "[en]"], "</s>")
    first, second = (expected(model, symbols, line) for line in ("the cat", "a dog"))
    assert tokenizer.encode("the cat", "a dog").ids == [*first[:-1], *second, len(symbols) - 1]


def translation_of(symbols, end="</s>"):
    model = SimpleNamespace(max_source_positions=77)
    return SimpleNamespace(source=symbols, source_end=["</s>"], target_end=end, model=model)


def test_what_is_written(tmp_path):
    """The options of transformers, and how many ids there are with the pieces that the dictionary has not."""
    model = processor()
    (tmp_path / "m").write_bytes(model.serialized_model_proto())
    symbols = [*SPECIALS, *ordinary_pieces(model)]
    assert write_tokenizer(tmp_path, tmp_path / "m", translation_of(symbols)) == (len(symbols), [])
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 77, "bos_token": "<s>", "pad_token": "<pad>",
        "eos_token": "</s>", "unk_token": "<unk>", "clean_up_tokenization_spaces": False, "split_special_tokens": True,
    }  # fmt: skip
    count, (note,) = write_tokenizer(tmp_path, tmp_path / "m", translation_of(symbols[:-3]))
    assert count == len(symbols) and note.startswith("3 pieces of the SentencePiece model are not in the dictionary")
    written = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert written.get_vocab_size() == len(symbols) and written.encode("the cat").ids == expected(model, symbols, "the cat")
    assert write_tokenizer(tmp_path, None, translation_of(symbols))[0] == len(symbols)


XLMR = {
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>",
    "unk_token": "<unk>", "clean_up_tokenization_spaces": False, "model_max_length": 50, "cls_token": "<s>",
    "sep_token": "</s>", "mask_token": "<mask>",
}  # fmt: skip
PIECES, FAST, OPTIONS = "sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"


@pytest.mark.parametrize("order, installed, written", [
    ("as in XLM-R", True, {PIECES, FAST, OPTIONS}),
    ("as in XLM-R", False, {PIECES, OPTIONS}),  # transformers makes the rest of the model
    ("another", True, {FAST, OPTIONS}),
    ("another", False, set()),
    ("as in XLM-R, with pieces of several words", False, set()),
])  # fmt: skip
def test_what_is_written_of_an_encoder(tmp_path, monkeypatch, order, installed, written):
    """The SentencePiece model only where its ids are the model's: whoever finds it alone takes XLM-R's."""
    model = processor(split_by_whitespace="several words" not in order)
    (tmp_path / "m").write_bytes(model.serialized_model_proto())
    pieces = ordinary_pieces(model)
    symbols = [*SPECIALS, *(pieces[::-1] if order == "another" else pieces), "<mask>"]
    if not installed:
        monkeypatch.setitem(sys.modules, "tokenizers", None)
    notes = write_xlmr_tokenizer(tmp_path, tmp_path / "m", symbols, 50)
    assert {path.name for path in tmp_path.iterdir()} - {"m"} == written
    assert [note[:41] for note in notes] == ([] if written else ["no tokenizer: the package tokenizers is n"])
    if OPTIONS in written:
        plain = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 50}
        assert json.loads((tmp_path / OPTIONS).read_text()) == (XLMR if installed else plain)


def test_an_encoder_without_a_tokenizer(tmp_path):
    model = processor()
    (tmp_path / "m").write_bytes(model.serialized_model_proto())
    symbols = [*SPECIALS, *ordinary_pieces(model)[:-2], "<mask>"]
    (note,) = write_xlmr_tokenizer(tmp_path, tmp_path / "m", symbols, 50)
    last = ordinary_pieces(model)[-2]
    assert note == f"no tokenizer: 2 pieces of {tmp_path / 'm'} are no tokens of the model, such as {last!r}"
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("options, reason", [
    ({"model_type": "bpe"}, "is no unigram model"),
    ({"treat_whitespace_as_suffix": True}, "has its spaces at the ends of words"),
    ({"user_defined_symbols": "½", "vocab_size": 41}, "has a symbol of its own, '½', which its rules of normalising would change"),
])  # fmt: skip
def test_a_model_that_cuts_otherwise_is_refused(tmp_path, monkeypatch, options, reason, installed):
    """And told; no folder has anything of it, not the model either, of which AutoTokenizer would make XLM-R's ids."""
    model = processor(**options)
    (tmp_path / "m").write_bytes(model.serialized_model_proto())
    symbols = [*SPECIALS, *ordinary_pieces(model)]
    if not installed:
        monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=reason):
        fast_tokenizer(model, symbols, ["</s>"], "</s>")
    note = f"no tokenizer: {tmp_path / 'm'} {reason}"
    assert write_tokenizer(tmp_path, tmp_path / "m", translation_of(symbols[:-3])) == (len(symbols) - 3, [note])
    assert write_xlmr_tokenizer(tmp_path, tmp_path / "m", [*symbols, "<mask>"], 50) == [note]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_real_text(shared_data):
    """Captions of four languages, with a vocabulary of one of them: hardly a line is cut otherwise where two ways are alike."""
    captions = {lang: shared_data / f"multi30k/test_2016_flickr.{lang}.gz" for lang in ("en", "de", "fr", "cs")}
    text = train_sentencepiece(read_lines(captions["en"]), 1000, character_coverage=1.0)
    model = sentencepiece.SentencePieceProcessor(model_proto=text)
    symbols = [*SPECIALS, *ordinary_pieces(model)]
    tokenizer = fast_tokenizer(model, symbols, ["</s>"], "</s>")
    lines = [line for path in captions.values() for line in islice(read_lines(path), 500)]
    wrong = sum(tokenizer.encode(line).ids != expected(model, symbols, line) for line in lines)
    assert wrong <= len(lines) / 1000
    encoder = xlmr_tokenizer(model, [*symbols, "<mask>"])
    wrong = sum(encoder.encode(line).ids != [0, *expected(model, symbols, line)] for line in lines)
    assert wrong <= len(lines) / 1000


def test_one_text_in_all_languages(shared_data):
    """Some write letters in parts, or marks after letters that have one."""
    texts = sorted((shared_data / "udhr").glob("*.gz"))
    lines = [line for path in texts for line in read_lines(path)]
    model = sentencepiece.SentencePieceProcessor(model_proto=train_sentencepiece(lines, 3000, character_coverage=0.9995))
    symbols = [*SPECIALS, *ordinary_pieces(model)]
    tokenizer, encoder = fast_tokenizer(model, symbols, ["</s>"], "</s>"), xlmr_tokenizer(model, [*symbols, "<mask>"])
    ids = {line: expected(model, symbols, line) for line in lines}
    wrong = sum((tokenizer.encode(line).ids, encoder.encode(line).ids) != (ids[line], [0, *ids[line]]) for line in ids)
    assert wrong <= len(ids) / 1000


@needs_transformers
def test_an_encoder_cuts_real_text_as_xlmr_does(shared_data, tmp_path, monkeypatch):
    """Ids, places in the text and words, beside the tokenizer that transformers makes of the SentencePiece model itself."""
    captions = [shared_data / f"multi30k/test_2016_flickr.{lang}.gz" for lang in ("en", "de", "fr", "cs")]
    (tmp_path / "m").write_bytes(train_sentencepiece(read_lines(captions[0]), 1000, character_coverage=1.0))
    symbols = [*SPECIALS, *ordinary_pieces(load_sentencepiece(tmp_path / "m")), "<mask>"]
    ours, theirs = (tmp_path / name for name in ("ours", "theirs"))
    for folder in (ours, theirs):
        folder.mkdir()
        assert write_xlmr_tokenizer(folder, tmp_path / "m", symbols, 512) == []
        monkeypatch.setitem(sys.modules, "tokenizers", None)  # for the second
    monkeypatch.undo()
    assert [(folder / FAST).exists() for folder in (ours, theirs)] == [True, False]
    load = import_transformers().AutoTokenizer.from_pretrained
    one, other = load(ours), load(theirs)
    for line in [line for path in captions for line in islice(read_lines(path), 200)]:
        found, expected_ = (each(line, line[:20], return_offsets_mapping=True) for each in (one, other))
        assert dict(found) == dict(expected_) and found.word_ids() == expected_.word_ids(), line
