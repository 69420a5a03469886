# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Folders of XLM-R whose tokenizer was given more tokens, each with a row of the embeddings; and weights that may not be read."""

import errno
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.xlmr import DIM, HEADS, LAYERS, folder, needs_transformers, symbols, vocabulary  # noqa: F401  fixtures

from veco_fairseq.checkpoints.xlmr import init_from
from veco_fairseq.checkpoints.xlmr_files import read_xlmr
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError

ADDED = ("<2de>", "<2fr>", "<2zh>")
TABLE, BIAS = "roberta.embeddings.word_embeddings.weight", "lm_head.bias"


@pytest.fixture
def larger(folder):  # noqa: F811
    """The folder with three more rows, and the rows."""
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("lm_head.decoder.")}
    rows, bias = torch.arange(3.0 * DIM).view(3, DIM), torch.tensor([5.0, 6.0, 7.0])
    tensors.update({TABLE: torch.cat([tensors[TABLE], rows]), BIAS: torch.cat([tensors[BIAS], bias])})
    save_file(tensors, folder / "model.safetensors")
    return folder, rows, bias


def write(path, tokens):
    """As the files of transformers have them, with one token more than the embeddings have rows, and one that is no addition."""
    if path.name == "added_tokens.json":
        path.write_text(json.dumps({"<s>": 0, **tokens, "<2sw>": 99}))
    else:
        tokens = [{"id": number, "content": token} for token, number in {"<s>": 0, **tokens, "<2sw>": 99}.items()]
        path.write_text(json.dumps({"model": {"type": "Unigram", "vocab": []}, "added_tokens": tokens}))


@needs_transformers
@pytest.mark.parametrize("name", ["added_tokens.json", "tokenizer.json"])
def test_rows_of_added_tokens_are_found_by_name(name, larger, symbols, make_model):  # noqa: F811
    folder, rows, bias = larger  # noqa: F811
    write(folder / name, {token: len(symbols) + number for number, token in enumerate(ADDED)})
    assert read_xlmr(folder).symbols == [*symbols, *ADDED]
    model = make_model(dictionary_of([*symbols[:-1], ADDED[2], ADDED[0], "<mask>"]), dim=DIM, layers=LAYERS)
    init_from(model.encoder, model.encoder.dictionary, HEADS, folder)
    for number in (0, 2):
        place = model.encoder.dictionary.index(ADDED[number])
        assert torch.equal(model.encoder.sentence_encoder.embed_tokens.weight[place], rows[number])
        assert model.encoder.lm_head.bias[place] == bias[number]


@needs_transformers
def test_rows_without_a_name_are_told(larger, symbols, make_model):  # noqa: F811
    """It had been told that the vocabulary does not fit the data's, which it does."""
    folder, _, _ = larger  # noqa: F811
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS)
    for tokens, named in (({}, 0), ({ADDED[0]: len(symbols), ADDED[1]: len(symbols) + 2}, 1)):
        write(folder / "tokenizer.json", tokens)
        told = f"has {len(symbols) + 3} rows of embeddings, but the vocabulary beside it {len(symbols) + named} tokens: put there"
        with pytest.raises(UserError, match=told):
            init_from(model.encoder, model.encoder.dictionary, HEADS, folder)
    (folder / "added_tokens.json").write_text("[1]")
    with pytest.raises(UserError, match=r"added_tokens\.json: is damaged"):
        read_xlmr(folder)


@needs_transformers
def test_added_tokens_without_rows_are_left_out(folder, symbols):  # noqa: F811
    write(folder / "added_tokens.json", {token: len(symbols) + number for number, token in enumerate(ADDED)})
    assert read_xlmr(folder).symbols == symbols


@needs_transformers
def test_weights_that_may_not_be_read_are_there(folder, monkeypatch):  # noqa: F811
    """They had been told to be missing, and to be fetched again."""

    def refuse(path, *args, open=open, **kwargs):
        if str(path).endswith(".safetensors"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(UserError, match=r"model\.safetensors: (?!no such|cannot be read \(No)") as caught:
        read_xlmr(folder)
    assert "fetch" not in str(caught.value) and "damaged" not in str(caught.value), caught.value
