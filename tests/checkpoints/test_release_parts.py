# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The authors' checkpoint, small: what is counted, kept and told of it, and files that are not quite theirs."""

import shutil
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerModel
from support.training import logged

from veco_fairseq.checkpoints.pretrained import read_pretrained
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.checkpoints.release import back_to_pretraining, import_release, read_release
from veco_fairseq.errors import UserError

DIM, LAYERS, TOKENS = 128, 3, 46  # two heads of 64
SIDE = (64 + 2) * DIM + 2 * DIM  # positions and LayerNorm of the embeddings
SELF = 4 * (DIM * DIM + DIM) + 2 * DIM
LAYER = SELF + 2 * 32 * DIM + 32 + DIM + 2 * DIM


@pytest.fixture(params=[True, False], ids=["row of <mask>", "no row of <mask>"])
def mask(request):
    return request.param


def release(folder, mask=True, change=lambda weights: None, **options):
    """Their file of a model that was not fine-tuned, without the marks of a version, and its dict.txt."""
    words = make_dictionary(mask=False)
    for token in ("[de]", "[en]"):
        words.add_symbol(token)
    words.save(str(folder / "dict.txt"))
    if mask:
        words.add_symbol("<mask>")
    args = Namespace(encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_embed_dim=DIM, encoder_ffn_embed_dim=32,
                     encoder_attention_heads=2, max_source_positions=64, max_target_positions=64)  # fmt: skip
    ARCH_CONFIG_REGISTRY["veco_mt_large"](args)
    torch.manual_seed(1)
    model = TransformerModel.build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words))
    ours, theirs = model.decoder.state_dict(), model.encoder.state_dict()
    model.decoder.load_state_dict({name: theirs.get(name, tensor) for name, tensor in ours.items()})
    weights = {name: tensor for name, tensor in model.half().state_dict().items() if not name.endswith("version")}
    change(weights)
    options = {"no_scale_embedding": True, **options}
    torch.save({"args": Namespace(arch="veco_large", **options), "model": weights}, folder / "model.pt")
    return folder / "model.pt", folder / "dict.txt"


def test_an_import(tmp_path, mask):
    """A layer can be there twice; the numbers are in fp32, and a missing mark of the version is today's."""
    checkpoint, dictionary = release(tmp_path, mask)
    report = import_release(
        checkpoint, dictionary, tmp_path / "mt.pt", decoder_layers=3, layer_selection="2,0,2", source_lang="en", target_lang="de"
    )
    groups = [(group["what"], group["source"], group["tensors"], group["parameters"]) for group in report["groups"]]
    of_layer, of_attention, of_side = 16, 10, 3  # weights and biases, with LayerNorm's; positions and two of LayerNorm
    assert groups == [
        ("token embeddings, shared by encoder, decoder and output", "of the release", 1, TOKENS * DIM),
        ("encoder: positions, LayerNorm, layers 0, 1, 2", "of the release", of_side + 3 * of_layer, SIDE + 3 * LAYER),
        ("decoder: positions, LayerNorm, layers 2, 0, 2", "of the release",
         of_side + 3 * (of_layer + of_attention), SIDE + 3 * (LAYER + SELF)),
        ("decoder layers", "not chosen", of_layer + of_attention, LAYER + SELF),
        *([("row of <mask>", "not in the dictionary", 0, DIM)] if mask else []),
    ]  # fmt: skip
    assert (report["tokens"], report["notes"]) == (TOKENS, [])
    assert report["finetune_options"].startswith("--task veco_translation --arch veco_mt_large ")
    state = read_checkpoint(tmp_path / "mt.pt")
    task = state["cfg"]["task"]
    assert (task["_name"], task["source_lang"], task["target_lang"]) == ("veco_translation", "en", "de")
    assert state["cfg"]["model"].encoder_attention_heads == 2 and state["cfg"]["model"].activation_fn == "gelu"
    theirs = read_checkpoint(checkpoint)["model"]
    for new, old in enumerate((2, 0, 2)):
        name = "decoder.layers.{}.encoder_attn.k_proj.weight"
        assert torch.equal(state["model"][name.format(new)], theirs[name.format(old)].float())
    assert {tensor.dtype for tensor in state["model"].values()} == {torch.float32}
    assert state["model"]["encoder.version"].item() == state["model"]["decoder.version"].item() == 3
    plain = import_release(checkpoint, dictionary, tmp_path / "plain.pt") if mask else None
    assert not plain or plain["decoder_layers_from"] == [0, 1, 2] and "--task translation " in plain["finetune_options"]


@pytest.mark.parametrize("option", [{"no_scale_embedding": False}, {}])
def test_token_embeddings_that_are_multiplied(tmp_path, option):
    """... by the square root of their width, as in the authors' scripts, whose architecture has no --no-scale-embedding."""
    checkpoint, dictionary = release(tmp_path)
    state = torch.load(checkpoint, weights_only=False)
    torch.save({**state, "args": Namespace(arch="veco_large", encoder_attention_heads=2, **option)}, checkpoint)
    report = import_release(checkpoint, dictionary, tmp_path / "mt.pt", decoder_layers=2)
    assert report["finetune_options"].startswith("--task translation --arch veco_mt_scaled_large --encoder-layers 3 ")
    assert report["notes"] == ["its token embeddings are multiplied by 11.3137, as in the release"]  # the square root of 128
    config = read_checkpoint(tmp_path / "mt.pt")["cfg"]["model"]
    assert (config.arch, config.no_scale_embedding) == ("veco_mt_scaled_large", False)
    theirs = state["model"]["encoder.embed_tokens.weight"].float()
    copied, new = back_to_pretraining(checkpoint, dictionary, tmp_path / "pretrained.pt")
    assert copied.source == "of the release, its token embeddings times 11.3137"
    assert new.source.endswith("makes up for these embeddings: to translate, give veco convert --keep-lm-head")
    pretrained = read_pretrained(tmp_path / "pretrained.pt")
    table = pretrained.weights["encoder.sentence_encoder.embed_tokens.weight"]
    assert torch.allclose(table, 128**0.5 * theirs) and pretrained.model.no_scale_embedding
    assert torch.allclose(pretrained.weights["encoder.lm_head.layer_norm.weight"], torch.full((DIM,), 128**-0.5))


def test_back_to_pretraining_counts_and_keeps(tmp_path, mask):
    """What is not in the file is drawn alike each time; ``<mask>`` has their row where they have one."""
    checkpoint, dictionary = release(tmp_path, mask)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    copied, new = back_to_pretraining(checkpoint, dictionary, tmp_path / "one.pt")
    assert torch.equal(torch.rand(2), expected)  # the caller's random numbers go on as before
    back_to_pretraining(checkpoint, dictionary, tmp_path / "two.pt")
    one, two = (read_pretrained(tmp_path / f"{name}.pt") for name in ("one", "two"))
    assert all(torch.equal(tensor, two.weights[name]) for name, tensor in one.weights.items())
    table = one.weights["encoder.sentence_encoder.embed_tokens.weight"]
    theirs = read_checkpoint(checkpoint)["model"]["encoder.embed_tokens.weight"].float()
    assert table.shape == (TOKENS + 1, DIM) and torch.equal(table[: len(theirs)], theirs)
    assert torch.equal(one.weights["encoder.lm_head.weight"], table)
    assert (copied.tensors, copied.parameters) == (5 + 26 * LAYERS - 1, (TOKENS + 1) * DIM + SIDE + LAYERS * (LAYER + SELF))
    head = [tensor for name, tensor in one.weights.items() if name in new_names(one.weights)]
    assert (new.tensors, new.parameters) == (len(head), sum(tensor.numel() for tensor in head))
    assert new.source == "not in the file"  # the embeddings are as large as they were
    assert (one.objective, one.task._name, one.symbols[-1]) == ("camlm", "camlm", "<mask>")


def new_names(weights):
    return [
        name for name in weights if name.startswith("encoder.lm_head.") and name != "encoder.lm_head.weight" or "version" in name
    ]


def without(beginning):
    return lambda weights: [weights.pop(name) for name in list(weights) if name.startswith(beginning)]


def more(name):
    return lambda weights: weights.update({name: torch.ones(3)})


@pytest.mark.parametrize("change, message", [
    (without("encoder.embed_tokens"), "is not the authors' model, with encoder"),
    (without("encoder.layers.0."), "its encoder lacks layers: it has 1, 2$"),
    (without("decoder.layers.2."), "encoder and decoder have 3 and 2 layers: it is not the pre-trained model"),
    (more("decoder.layers.0.adapter.bias"), "decoder.layers.0.adapter.bias is not the encoder's: the model was fine-tuned"),
    (more("encoder.layers.0.adapter.bias"), r"encoder.sentence_encoder.layers.0.adapter.bias \(3,\) is unexpected"),
])  # fmt: skip
def test_files_that_pretraining_cannot_go_on_from(tmp_path, change, message):
    checkpoint, dictionary = release(tmp_path, change=change)
    with pytest.raises(UserError, match=message):
        back_to_pretraining(checkpoint, dictionary, tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()


def test_a_source_language_without_a_token(tmp_path):
    checkpoint, dictionary = release(tmp_path)
    with pytest.raises(UserError, match=r"no language token \[fr\] \(there are: \[de\], \[en\]\)"):
        import_release(checkpoint, dictionary, tmp_path / "x.pt", source_lang="fr", target_lang="de")
    with pytest.raises(UserError, match="^--source-lang and --target-lang: give both or none$"):  # had passed over it
        import_release(checkpoint, dictionary, tmp_path / "x.pt", target_lang="de")


@pytest.mark.parametrize("make", [import_release, back_to_pretraining])
def test_a_release_is_not_written_over(tmp_path, make):
    checkpoint, dictionary = release(tmp_path)
    before, link = checkpoint.read_bytes(), tmp_path / "link.pt"
    link.symlink_to(checkpoint)
    with pytest.raises(UserError, match="^--output .*link.pt: that is the checkpoint itself; choose another file$"):
        make(checkpoint, dictionary, link)
    assert checkpoint.read_bytes() == before


def test_heads_of_classes_are_left_out(tmp_path):
    """Those of the file's beginning alone."""
    change = more("classification_heads.x.dense.bias")
    found = read_release(*release(tmp_path, change=change))
    assert list(found.dropped) == ["classification_heads.x.dense.bias"] and found.depths == {"encoder": 3, "decoder": 3}
    change = more("decoder.classification_heads.x.dense.bias")
    assert not read_release(*release(tmp_path, change=change)).dropped


@pytest.mark.parametrize("convert", [import_release, back_to_pretraining])
def test_a_dictionary_that_has_the_mask_has_a_row_for_every_token(tmp_path, convert):
    """The row that is too much had been taken for <mask>, though a token before it is missing, and all rows after it moved."""
    checkpoint, dictionary = release(tmp_path, mask=True)
    lines = dictionary.read_text().splitlines()
    dictionary.write_text("".join(f"{line}\n" for line in (*lines, "<mask> 1")))
    convert(checkpoint, dictionary, tmp_path / "whole.pt")  # as many tokens as rows
    dictionary.write_text("".join(f"{line}\n" for line in (*lines[:3], *lines[4:], "<mask> 1")))
    with pytest.raises(UserError, match="there must be one row a token"):
        convert(checkpoint, dictionary, tmp_path / "ours.pt")
    assert not (tmp_path / "ours.pt").exists()


def test_pre_training_goes_on(tmp_path, make_root, train):
    """... with the cross-attention, too, which --init-from would begin anew."""
    checkpoint, dictionary = release(tmp_path)
    back_to_pretraining(checkpoint, dictionary, tmp_path / "pretrained.pt")
    root = make_root()
    shutil.copy(dictionary, root / "dict.txt")
    size = "--encoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2 --max-positions 64"
    size += " --bitext-max-length 32"
    begin = ["--finetune-from-model", tmp_path / "pretrained.pt", "--lr", "1e-9", "--max-update", "1"]
    logged(train(root, *size.split(), *begin), "train_inner")
    begun, trained = (
        torch.load(file)["model"] for file in (tmp_path / "pretrained.pt", tmp_path / "checkpoints/checkpoint_last.pt")
    )
    assert begun.keys() == trained.keys() and any("encoder_attn" in name for name in begun)
    assert all(torch.allclose(begun[name], trained[name], atol=1e-7) for name in begun)
