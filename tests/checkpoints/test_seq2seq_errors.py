# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the converter refuses, each in one line that names all that does not fit."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import changed, make_dictionary, save_pretrained
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModel

from veco_fairseq.checkpoints.seq2seq import choose_layers, convert_to_seq2seq
from veco_fairseq.errors import UserError


@pytest.mark.parametrize(
    "selection, wanted, message",
    [
        ("last", 13, "--decoder-layers 13: the checkpoint has 12 layers"),
        ("first", 0, "--decoder-layers 0"),
        ("3,12", 2, "no layer 12, the checkpoint has 12 layers, 0 to 11"),
        ("3,4", 3, "2 layers listed for --decoder-layers 3"),
        ("-1,2", 2, "give last, first or layer numbers"),
        ("middle", 2, "give last, first or layer numbers"),
    ],
)
def test_layers_that_there_are_not(selection, wanted, message):
    with pytest.raises(UserError, match=message):
        choose_layers(selection, wanted, 12)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"w1 1\nw2\n", "line 2: expected '<token> <count>', found 'w2'"),
        (b"w1 1\nw2 1\nw1 2\n", "line 3: 'w1' is there twice"),
        (b"w1 1\n\xff 1\n", "line 2: not UTF-8"),
    ],
)
def test_bad_dictionary(checkpoint, tmp_path, content, message):
    path = tmp_path / "dict.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        convert_to_seq2seq(checkpoint, tmp_path / "out.pt", 2, dictionary=path)
    assert not list(tmp_path.glob("*out.pt*"))


def damage(checkpoint, change):
    with changed(checkpoint) as state:
        change(state)


def test_everything_that_does_not_fit_is_reported_at_once(checkpoint, tmp_path):
    def change(state):
        prefix, weights = "encoder.sentence_encoder.layers.11.", state["model"]
        del weights[prefix + "fc2.bias"]
        weights[prefix + "encoder_attn.q_proj.bias"] = torch.zeros(17)
        weights[prefix + "adapter.weight"] = torch.zeros(2, 3)
        weights["encoder.sentence_encoder.layers.12.fc1.bias"] = torch.zeros(32)

    damage(checkpoint, change)
    with pytest.raises(UserError) as error:
        convert_to_seq2seq(checkpoint, tmp_path / "out.pt", 1)
    for part in (
        "encoder.layers.11.fc2.bias is missing, expected (16,)",
        "decoder.layers.0.fc2.bias is missing, expected (16,)",
        "decoder.layers.0.encoder_attn.q_proj.bias is (17,), expected (16,)",
        "encoder.sentence_encoder.layers.11.adapter.weight (2, 3) is unexpected",
        "encoder.layers.12.fc1.bias (32,) is unexpected",
    ):
        assert part in str(error.value)


def other_model(kind, path):
    words = make_dictionary()
    sizes = dict(encoder_layers=1, encoder_embed_dim=8, encoder_ffn_embed_dim=8, encoder_attention_heads=2)
    if kind == "roberta":
        args = Namespace(arch="roberta_base", max_positions=16, **sizes)
        model = RobertaModel.build_model(args, SimpleNamespace(source_dictionary=words))
    else:
        args = Namespace(arch="transformer", decoder_layers=1, **sizes)
        model = TransformerModel.build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words))
    torch.save({"args": None, "cfg": {"model": args}, "model": model.state_dict()}, path)


@pytest.mark.parametrize(
    "kind, message",
    [
        ("roberta", r"an encoder without cross-attention .*--arch roberta_base.*expected a VECO checkpoint"),
        ("transformer", r"a translation model .*--arch transformer.*expected a VECO checkpoint"),
        ("symbols", r"lacks its dictionary"),
        ("rows", r"45 rows of token embeddings, but 44 tokens"),
        ("text", r"p.pt: "),
        ("cut", r"p.pt: cannot be read"),
        ("missing", r"p.pt: no such"),
    ],
)
def test_other_checkpoints_are_told_apart(pretrained, tmp_path, kind, message):
    path = tmp_path / "p.pt"
    if kind in ("roberta", "transformer"):
        other_model(kind, path)
    elif kind == "text":
        path.write_text("no checkpoint\n")
    elif kind != "missing":
        save_pretrained(path, pretrained, make_dictionary().symbols[: 44 if kind == "rows" else None])
    if kind == "symbols":
        damage(path, lambda state: state.pop("task_state"))
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:50000])
    with pytest.raises(UserError, match=message):
        convert_to_seq2seq(path, tmp_path / "out.pt", 1)
    assert not list(tmp_path.glob("*out.pt*"))


def test_output_must_be_another_file(checkpoint, tmp_path):
    before = checkpoint.read_bytes()
    with pytest.raises(UserError, match="that is the checkpoint itself"):
        convert_to_seq2seq(checkpoint, tmp_path / "." / checkpoint.name, 1)
    with pytest.raises(UserError, match="that is a folder"):
        convert_to_seq2seq(checkpoint, tmp_path, 1)
    assert checkpoint.read_bytes() == before
