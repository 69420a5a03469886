# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""tokenizer.json: a text's ids are those that SentencePiece and a fairseq dictionary give it."""

import io
import json
from itertools import islice
from types import SimpleNamespace

import pytest
import sentencepiece

from veco_fairseq.checkpoints.tokenizer import fast_tokenizer, missing_pieces, write_tokenizer
from veco_fairseq.data.sentencepiece import ordinary_pieces, train_sentencepiece
from veco_fairseq.data.symbols import SPECIALS
from veco_fairseq.files import read_lines

Tokenizer = pytest.importorskip("tokenizers").Tokenizer
TEXT = ["the cat sat on the mat", "a dog saw the cat", "dogs and cats sit", "the mat is red and the dog is brown"] * 3
ODD = [
    "",
    " ",
    "  the  cat ",
    "the\tcat",
    "\u3000the cat",
    "\xa0dog\x85",
    "ⅷ ﬁt",
    "Zebra ☃☃ cat",
    "<s> the </s>",
    "[en] cat",
    "▁the▁cat",
    "e\u0301",
]


def processor(**options):
    model = io.BytesIO()
    options = {
        "vocab_size": 40,
        "hard_vocab_limit": False,
        "character_coverage": 1.0,
        "model_type": "unigram",
        "minloglevel": 2,
        **options,
    }
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def expected(model, symbols, line):
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    return [*(ids.get(piece, 3) for piece in model.encode(line, out_type=str)), 2]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"byte_fallback": True, "vocab_size": 300},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nfkc_cf"},
    ],
    ids=str,
)
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


def test_a_language_token_ends_a_source():
    model = processor()
    symbols = [*SPECIALS, *ordinary_pieces(model), "[en]", "[de]"]
    tokenizer = fast_tokenizer(model, symbols, ["</s>", "[en]"], "[de]")
    ids = tokenizer.encode("the cat").ids
    assert ids == [*expected(model, symbols, "the cat"), len(symbols) - 2]
    assert tokenizer.decode([*ids, len(symbols) - 1]) == "the cat"  # all of them are special


def test_a_source_begins_with_the_token_of_the_language_to_translate_into():
    model = processor()
    symbols = [*SPECIALS, *ordinary_pieces(model), "<2de>", "<2pt_BR>"]
    tokenizer = fast_tokenizer(model, symbols, ["</s>"], "</s>")
    tokenizer.encode_special_tokens = True  # as tokenizer_config.json asks
    for number, token in enumerate(symbols[-2:], len(symbols) - 2):
        for line in (f"{token} the cat", f"{token}the cat", f"{token}   the cat"):
            assert tokenizer.encode(line).ids == [number, *expected(model, symbols, "the cat")], line
    assert tokenizer.encode("</s> the cat").ids == expected(model, symbols, "</s> the cat")
    assert tokenizer.encode("<2xx> the cat").ids == expected(model, symbols, "<2xx> the cat")


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


def test_a_folder_without_a_tokenizer_of_bpe(tmp_path):
    model = processor(model_type="bpe")
    (tmp_path / "m").write_bytes(model.serialized_model_proto())
    symbols = [*SPECIALS, *ordinary_pieces(model)]
    found = write_tokenizer(tmp_path, tmp_path / "m", translation_of(symbols[:-3]))
    assert found == (len(symbols) - 3, [f"no tokenizer: {tmp_path / 'm'} is no unigram model"])
    assert not list(tmp_path.glob("*.json"))


def test_a_bpe_model_is_refused():
    model = processor(model_type="bpe")
    with pytest.raises(ValueError, match="is no unigram model"):
        fast_tokenizer(model, [*SPECIALS, *ordinary_pieces(model)], ["</s>"], "</s>")


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
