# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the converter tells of its work: the groups of tensors, the notes, the options to go on with, and the file's rest."""

import json
from argparse import Namespace

import pytest
import torch
from conftest import changed, make_dictionary, save_pretrained
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from veco_fairseq.checkpoints.mapping import Group
from veco_fairseq.checkpoints.seq2seq import (
    choose_layers,
    convert_to_seq2seq,
    finetune_options,
    report_lines,
    translation_options,
)
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError

# Of 16 dimensions, an FFN of 32, 45 tokens, 64 + 2 positions and two layers.
SELF, FFN, CROSS = 4 * (16 * 16 + 16) + 32, 2 * 16 * 32 + 32 + 16 + 32, 4 * (16 * 16 + 16) + 32


@pytest.fixture
def checkpoint(make_model, tmp_path):
    """In half precision, of two layers, and never trained to look at a translation."""
    model = make_model(layers=2, arch="veco_tiny").half()
    return save_pretrained(tmp_path / "pretrained.pt", model, make_dictionary().symbols, objective="mlm")


def test_every_group_of_tensors(checkpoint, tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    report = convert_to_seq2seq(checkpoint, tmp_path / "out.pt", 1, random_cross_attention=True, seed=5)
    assert torch.equal(torch.rand(2), expected)  # the caller's random numbers go on as before
    cross = "decoder cross-attention and its LayerNorm"
    found = [tuple(group.values()) for group in report["groups"] if group["what"] != "rows of the token embeddings"]
    assert [(what, source, *sizes) for action, what, source, *sizes in found if action == "copied"] == [
        ("token embeddings, shared by encoder, decoder and output", "of pre-training", 1, 44 * 16),
        ("encoder position table", "of pre-training", 1, 66 * 16),
        ("decoder position table", "of pre-training", 1, 66 * 16),
        ("encoder embedding LayerNorm", "of pre-training", 2, 32),
        ("decoder embedding LayerNorm", "of pre-training", 2, 32),
        ("encoder self-attention and its LayerNorm", "of the same layers", 20, 2 * SELF),
        ("encoder FFN and its LayerNorm", "of the same layers", 12, 2 * FFN),
        ("decoder self-attention and its LayerNorm", "of layer 1", 10, SELF),
        ("decoder FFN and its LayerNorm", "of layer 1", 6, FFN),
        ("version marks", "of pre-training", 2, 2),
    ]
    assert found[10:] == [
        ("dropped", cross, "--random-cross-attention", 20, 2 * CROSS),
        ("dropped", "LM head's dense, norm and bias", "no place in fairseq's decoder without --keep-lm-head", 5, 272 + 32 + 45),
        ("dropped", "LM head's projection", "the token embeddings again", 1, 45 * 16),
        ("new", cross, "as fairseq's transformer initialises them (Xavier, LayerNorm 1 and 0), seed 5", 10, CROSS),
    ]
    assert report_lines({**report, "notes": ["one"]})[-2:] == [
        "note     one", f"wrote    {tmp_path / 'out.pt'}; fine-tune with {report['finetune_options']}"]  # fmt: skip


@pytest.mark.parametrize("table_dim", [None, 8])
def test_a_head_with_a_projection_of_its_own(make_model, tmp_path, table_dim):
    """It is told to be left out, and refused where the LM head is to be kept: the decoder ends in the embeddings."""
    model, name = make_model(layers=1, arch="veco_tiny", table_dim=table_dim), "encoder.lm_head.weight"
    path = save_pretrained(tmp_path / "pretrained.pt", model, make_dictionary().symbols)
    for own, told in ((False, "the token embeddings again"), (True, "not the token embeddings, in which the decoder ends")):
        if own:
            with changed(path) as state:
                state["model"][name] = state["model"][name].flip(0)
        (group,) = [g for g in convert_to_seq2seq(path, tmp_path / "out.pt", 1)["groups"] if g["what"] == "LM head's projection"]
        assert (group["action"], group["source"]) == ("dropped", told)
    with pytest.raises(UserError, match="^--keep-lm-head: the model of .*pretrained.pt has an LM head that is not tied to"):
        convert_to_seq2seq(path, tmp_path / "kept.pt", 1, keep_lm_head=True)


def test_the_file_and_its_report(checkpoint, tmp_path):
    """Numbers in fp32; a new token is no new cross-attention, which only --random-cross-attention makes."""
    words = tmp_path / "data/dict.txt"
    words.parent.mkdir()
    words.write_text("".join(f"{word} 1\n" for word in ["ß", *make_dictionary().symbols[4:12]]), encoding="utf-8")
    report = convert_to_seq2seq(checkpoint, tmp_path / "out.pt", 2, dictionary=words, allow_new_tokens=True, keep_lm_head=True)
    text = (tmp_path / "out.pt.json").read_text(encoding="utf-8")
    assert json.loads(text) == report and "'ß'" in text
    assert (report["checkpoint"], report["output"]) == (str(checkpoint), str(tmp_path / "out.pt"))
    assert (report["arch"], report["pretraining_tokens"], report["tokens"]) == ("veco_transformer_tiny", 45, 13)
    (note,) = report["notes"]
    assert "the copied cross-attention was never trained; --random-cross-attention" in note
    state = torch.load(tmp_path / "out.pt", weights_only=False)
    assert {tensor.dtype for tensor in state["model"].values()} == {torch.float32}
    assert state["extra_state"] == {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
    assert state["optimizer_history"][0]["num_updates"] == 0 and state["args"] is None
    assert (state["cfg"]["task"]["_name"], state["cfg"]["task"]["data"]) == ("translation", str(words.parent))


def test_what_is_dropped_of_layers_that_are_not_chosen(checkpoint, tmp_path):
    report = convert_to_seq2seq(checkpoint, tmp_path / "out.pt", 1, layer_selection="first")
    (group,) = [group for group in report["groups"] if "cross-attention" in group["what"] and group["action"] == "dropped"]
    assert (group["source"], group["tensors"], group["parameters"]) == ("of all but layer 0", 10, CROSS)
    state = torch.load(tmp_path / "out.pt", weights_only=False)
    assert state["cfg"]["task"]["data"] == "."


SIZES = {"encoder_layers": 5, "encoder_embed_dim": 24, "encoder_ffn_embed_dim": 56, "encoder_attention_heads": 3,
         "activation_fn": "relu", "max_positions": 77}  # fmt: skip


@pytest.mark.parametrize("arch, extras, preset", [
    ("veco_base", {}, "veco_mt_base"),
    ("veco_base", {"keep_lm_head": True}, "veco_transformer_base"),
    ("xlme_tiny", {}, "veco_mt_tiny"),
    ("veco_of_somebody", {}, "veco_mt_small"),
    ("veco_of_somebody", {"tie_self_attention": "1"}, "veco_transformer_small"),
    (None, {}, "veco_mt_small"),
])  # fmt: skip
def test_preset_and_sizes(arch, extras, preset):
    model = Namespace(**SIZES, **({"arch": arch} if arch else {}))
    expected = {name: value for name, value in SIZES.items() if name != "max_positions"}
    expected.update(max_source_positions=77, max_target_positions=77, decoder_layers=2, **extras)
    assert translation_options(model, 2, extras) == (preset, expected)


def test_an_architecture_of_somebody_elses_for_pretraining_is_no_preset(monkeypatch):
    for registry in (ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY):
        monkeypatch.setitem(registry, "somebodys_tiny", registry["veco_tiny"])
    assert translation_options(Namespace(**SIZES, arch="somebodys_tiny"), 2, {})[0] == "veco_mt_small"


def test_the_task_is_that_of_the_dictionary():
    """A decoder's depth is always said, and other sizes where the preset has others."""
    model = Namespace(**SIZES, arch="veco_tiny")
    one = finetune_options(model, 2, {"keep_lm_head": True}, target=dictionary_of(["a", "b"]))
    assert one.startswith("--task translation --arch veco_transformer_tiny ") and "--keep-lm-head" in one.split()
    assert "--max-source-positions 77" in one and "--decoder-layers 2" in one and "--activation-fn relu" in one
    many = finetune_options(model, 2, {}, target=dictionary_of(["a", "<2de>", "b"]))
    assert many.startswith("--task veco_multilingual_translation --arch veco_mt_tiny ")
    for layers in (1, 2, 3, 4, 6, 12):
        assert f"--decoder-layers {layers} " in finetune_options(model, layers, {}, target=dictionary_of(["a"])) + " "


def test_layers_are_named_with_their_borders():
    for selection, wanted, message in (
        ("last", 4, "--decoder-layers 4: the checkpoint has 3 layers, 0 to 2; choose from 1 to 3"),
        ("2,4,3", 3, "--layer-selection 2,4,3: no layer 4, the checkpoint has 3 layers, 0 to 2"),
        ("2", None, "--layer-selection 2: 1 layers listed for --decoder-layers 3"),
    ):
        with pytest.raises(UserError) as refused:
            choose_layers(selection, wanted, 3)
        assert str(refused.value) == message
    assert choose_layers("first", 3, 3) == choose_layers("last", 3, 3) == [0, 1, 2]


def test_a_link_to_the_checkpoint_is_the_checkpoint(checkpoint, tmp_path):
    before = checkpoint.read_bytes()
    (tmp_path / "link.pt").symlink_to(checkpoint)
    for paths in ((checkpoint, tmp_path / "link.pt"), (tmp_path / "link.pt", checkpoint)):
        with pytest.raises(UserError, match="that is the checkpoint itself"):
            convert_to_seq2seq(*paths, 1)
    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize("tensors, words", [(0, "(1,234"), (1, "(1 tensor, 1,234"), (2, "(2 tensors, 1,234")])
def test_a_line_of_the_report(tensors, words):
    assert str(Group("new", "this", "why", tensors, 1234)) == f"new      this: why {words} parameters)"
