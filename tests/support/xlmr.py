# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""XLM-R with random weights, as transformers and as fairseq save it."""

import random
import shutil

import pytest
import torch
from support.models import all_random

from veco_fairseq.checkpoints.huggingface import import_transformers
from veco_fairseq.data.sentencepiece import dictionary_text, load_sentencepiece, ordinary_pieces, train_sentencepiece

DIM, HEADS, LAYERS = 16, 4, 3
needs_transformers = pytest.mark.skipif(import_transformers() is None, reason="transformers is not installed")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A folder with a SentencePiece model and its dict.txt."""
    folder = tmp_path_factory.mktemp("vocabulary")
    rng = random.Random(1)
    lines = (" ".join("".join(rng.choices("abcdefgh", k=4)) for _ in range(6)) for _ in range(400))
    path = folder / "sentencepiece.bpe.model"
    path.write_bytes(train_sentencepiece(lines, 60, character_coverage=1.0))
    (folder / "dict.txt").write_bytes(dictionary_text(path.read_bytes(), path))
    return folder


@pytest.fixture
def symbols(vocabulary):
    pieces = ordinary_pieces(load_sentencepiece(vocabulary / "sentencepiece.bpe.model"))
    return ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]


@pytest.fixture
def folder(vocabulary, symbols, tmp_path):
    """Hugging Face's XLM-R with random weights, token types too, and its tokenizer's model."""
    transformers = import_transformers()
    config = transformers.XLMRobertaConfig(
        vocab_size=len(symbols), hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=2 * DIM, max_position_embeddings=66, type_vocab_size=1, layer_norm_eps=1e-5,
    )  # fmt: skip
    torch.manual_seed(2)
    all_random(transformers.XLMRobertaForMaskedLM(config)).save_pretrained(tmp_path / "hf")
    shutil.copy(vocabulary / "sentencepiece.bpe.model", tmp_path / "hf")
    return tmp_path / "hf"


def hugging_face(folder):
    return import_transformers().XLMRobertaForMaskedLM.from_pretrained(folder).eval()


def batch(symbols, length=20):
    torch.manual_seed(3)
    tokens = torch.randint(4, len(symbols), (3, length))
    tokens[:, 0] = 0
    tokens[1, 12:] = 1
    return tokens
