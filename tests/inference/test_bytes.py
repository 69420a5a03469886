# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translations of a model with byte fallback, which spells what it has no piece for by its bytes."""

import io
from unittest import mock

import pytest
import sentencepiece
import torch

from veco_fairseq.data.sentencepiece import ordinary_pieces
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.inference.translator import Part, Translator


@pytest.fixture(scope="module")
def model():
    written, lines = io.BytesIO(), ["bal dem gim", "gul dol < bem > 0 x E 2", "bal dil gan"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, byte_fallback=True, vocab_size=300, hard_vocab_limit=False
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


@pytest.mark.parametrize("text", ["bal dem", "bal 12 € dem", "€", "日本 gul ☃☃", "bal <0xE2> €"])
def test_fairseq_prints_the_characters(model, text):
    """It had printed, and scored, ``<0xE2><0x82><0xAC>``."""
    pieces = model.encode(text, out_type=str)
    words = dictionary_of(ordinary_pieces(model))
    ids = torch.tensor([words.index(piece) for piece in pieces])
    assert words.unk() not in ids and words.string(ids, "sentencepiece") == model.decode(pieces) == text
    assert words.string(ids) == " ".join(pieces)


def test_a_translation_is_one_line(model):
    """Also with a line feed, which moved all translations after it."""
    words = dictionary_of(ordinary_pieces(model))
    pieces = ["▁", "b", "<0x0A>", "a", "<0x0A>"]
    ids = torch.tensor([words.index(piece) for piece in pieces])
    translator = Translator.__new__(Translator)
    translator.pieces, translator.task, translator.generator = model, mock.Mock(target_dictionary=words), mock.Mock(eos=2)
    found = translator._hypothesis(Part([], [], []), {"tokens": ids, "score": -1.5}, 0)
    assert model.decode(pieces) == "b\na\n" and found.text == "b a "
    assert words.string(ids, "sentencepiece") == "b a"
