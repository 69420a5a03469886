# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is said of a checkpoint that does not fit the model, in its tensors or in what no tensor shows."""

from types import SimpleNamespace

import pytest
import torch
from conftest import error_line
from fairseq.models import ARCH_MODEL_REGISTRY

import veco_fairseq.plugin  # noqa: F401
from veco_fairseq.compat import misfits
from veco_fairseq.errors import UserError
from veco_fairseq.models.veco import VecoModel


def test_the_first_names_that_do_not_fit_are_told_and_the_others_counted():
    def error(**tensors):
        with pytest.raises(RuntimeError) as caught:
            torch.nn.Linear(1, 1, bias=False).load_state_dict({"weight": torch.ones(1, 1), **tensors})
        return caught.value

    one = torch.ones(1)
    assert misfits.misfit(error(a=one, b=one)) == "unexpected a, b"
    assert misfits.misfit(error(a=one, b=one, c=one)) == "unexpected a, b and 1 more"
    assert misfits.misfit(Exception("Error(s) in loading state_dict for A:\n\tit is  bad")) == (
        "Error(s) in loading state_dict for A: it is bad"
    )
    assert misfits.misfit(Exception("it is bad")) is None


def test_every_size_that_differs_is_named():
    there = {
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_embed_dim": 16,
        "encoder_ffn_embed_dim": 32,
        "encoder_attention_heads": 4,
    }
    here = SimpleNamespace(_name="a", **{name: number + 1 for name, number in there.items()})
    misfits.model_of["x.pt"] = SimpleNamespace(_name="a", **there)
    assert misfits.misfit_message("x.pt", here, "bad", True) == (
        "x.pt: does not fit the chosen model (--encoder-layers 3 in the file, 4 here; "
        "--decoder-layers 2 in the file, 3 here; --encoder-embed-dim 16 in the file, 17 here; --encoder-ffn-embed-dim 32 in the "
        "file, 33 here; --encoder-attention-heads 4 in the file, 5 here): bad; give the options that it was trained with, or "
        "another --save-dir"
    )
    del misfits.model_of["x.pt"]


def test_the_line_for_another_model_names_the_options_that_differ(monkeypatch):
    there = {
        "a.pt": SimpleNamespace(_name="veco_tiny", encoder_layers=3, quant_noise_pq=0.0),
        "b.pt": SimpleNamespace(_name="veco_mt_tiny", decoder_layers=1),
        "c.pt": SimpleNamespace(_name="veco_mt_tiny", decoder_layers=2),
    }
    monkeypatch.setattr(misfits, "model_of", there)
    here = SimpleNamespace(_name="veco_mt_tiny", encoder_layers=3, decoder_layers=2)
    assert misfits.misfit_message("a.pt", here, "missing x", False) == (
        "a.pt: does not fit the chosen model (--arch veco_tiny in the file, veco_mt_tiny here): missing x; it is a pre-trained "
        "model: veco convert makes a translation model of it"
    )
    told = misfits.misfit_message(
        "a.pt", SimpleNamespace(_name="veco_nlu_tiny", encoder_layers=2, quant_noise_pq=0.1), "missing x", False
    )
    assert told == (  # which begins with a pre-trained model, and needs no conversion
        "a.pt: does not fit the chosen model (--encoder-layers 3 in the file, 2 here; "
        "--quant-noise-pq 0.0 in the file, 0.1 here): missing x; give the options that it was trained with"
    )
    tokens = f"other shapes: x [8, 4] in the file, [9, 4] here; {misfits.OTHER_TOKENS}"
    for path, told, advice in (  # options are at fault only where they differ
        (
            "b.pt",
            " (--decoder-layers 1 in the file, 2 here)",
            "; give the options that it was trained with, or another --save-dir",
        ),
        ("c.pt", "", ", or another --save-dir"),
    ):
        line = misfits.misfit_message(path, here, tokens, True)
        assert line == f"{path}: does not fit the chosen model{told}: {tokens}{advice}"
    assert misfits.misfit_message("b.pt", here, "missing x", False) == (
        "b.pt: does not fit the chosen model (--decoder-layers 1 in the file, 2 here): missing x; give the options that it was trained with"
    )


def test_a_head_of_other_labels_is_not_mended_by_options(monkeypatch):
    """It has as many outputs as the data has labels, and is of one task and --plug."""
    same = {"_name": "veco_nlu_tiny", "encoder_layers": 3}
    monkeypatch.setitem(misfits.model_of, "a.pt", SimpleNamespace(**same))

    def advice(message, is_last, **here):
        return misfits.misfit_message("a.pt", SimpleNamespace(**{**same, **here}), message, is_last).rpartition("; ")[2]

    own = (
        "head is of a task, its labels and --plug: give those that it was trained with, or begin with the pre-trained checkpoint"
    )
    assert advice("other shapes: head.out_proj.weight [2, 4] in the file, [3, 4] here", False) == own
    assert advice("missing head.dense.weight, head.dense.bias", True) == f"{own}, or another --save-dir"
    general = "give the options that it was trained with"
    assert advice("missing encoder.head.weight", False) == advice("missing head.x", False, encoder_layers=2) == general


@pytest.mark.parametrize("there, here, told", [
    ({"encoder_attention_heads": 4}, {"encoder_attention_heads": 8}, "--encoder-attention-heads 4 in the file, 8 here"),
    ({"decoder_attention_heads": 2}, {"decoder_attention_heads": 1}, "--decoder-attention-heads 2 in the file, 1 here"),
    ({"activation_fn": "gelu"}, {"activation_fn": "relu"}, "--activation-fn gelu in the file, relu here"),
    ({"no_scale_embedding": True}, {"no_scale_embedding": False}, "--no-scale-embedding True in the file, False here"),
    ({"cross_self_attention": False}, {"cross_self_attention": True}, "--cross-self-attention False in the file, True here"),
    # with --no-decoder-final-norm, or of positions that are sines
    ({"decoder_normalize_before": True}, {"decoder_normalize_before": False}, "--decoder-normalize-before True in the file, False "
     "here"),
    ({"no_token_positional_embeddings": True}, {"no_token_positional_embeddings": False}, "--no-token-positional-embeddings True "
     "in the file, False here"),
    ({"tie_self_attention": "0,1"}, {"tie_self_attention": "1,2"}, "--tie-self-attention 0,1 in the file, 1,2 here"),
    ({}, {"tie_self_attention": "1,2"}, "--tie-self-attention None in the file, 1,2 here"),
    ({"tie_self_attention": "1,2"}, {}, None),  # a copy for each side is the same at first
    # one of the file's tables would overwrite the others
    ({"generator_embeddings": "own"}, {"generator_embeddings": "shared"}, "--generator-embeddings own in the file, shared here"),
    ({"share_all_embeddings": False}, {"share_all_embeddings": True}, "--share-all-embeddings False in the file, True here"),
    ({"share_decoder_input_output_embed": False}, {"share_decoder_input_output_embed": True},
     "--share-decoder-input-output-embed False in the file, True here"),
    ({"generator_embeddings": "shared"}, {"generator_embeddings": "own"}, None),
    ({"share_all_embeddings": True, "share_decoder_input_output_embed": True},
     {"share_all_embeddings": False, "share_decoder_input_output_embed": False}, None),
    ({}, {"share_all_embeddings": True, "share_decoder_input_output_embed": True, "generator_embeddings": "shared"}, None),
    ({"activation_fn": "gelu_fast"}, {"activation_fn": "gelu_accurate"}, None),  # two names of one
    ({}, {"activation_fn": "relu", "encoder_attention_heads": 8}, None),  # of an old file, which does not say it
    ({"encoder_layers": 3, "dropout": 0.1}, {"encoder_layers": 3, "dropout": 0.2}, None),
])  # fmt: skip
def test_the_same_shapes_and_another_computation(monkeypatch, there, here, told):
    monkeypatch.setitem(misfits.model_of, "a.pt", SimpleNamespace(_name="veco_tiny", **there))
    model = SimpleNamespace(_name="veco_tiny", **here)
    if told is None:
        misfits.refuse_another_computation("a.pt", model, False)
        return
    with pytest.raises(UserError) as caught:
        misfits.refuse_another_computation("a.pt", model, False)
    assert str(caught.value) == (
        f"a.pt: does not fit the chosen model ({told}): its tensors have the same shapes, but would compute something else; give the options that it was trained with"
    )
    misfits.refuse_another_computation("of an unknown file", model, False)


@pytest.mark.parametrize("arch, here, told", [
    ("own_tiny", "veco_nlu_tiny", True), ("of_no_folder_here", "veco_nlu_tiny", True), ("own_tiny", "own_tiny", False),
    ("own_tiny", "own_below", False), ("veco_tiny", "veco_nlu_tiny", False), ("veco_tiny", "own_tiny", False),
    ("transformer", "veco_mt_tiny", False),
])  # fmt: skip
def test_somebody_elses_code_is_missed_where_its_tensors_fit(monkeypatch, caplog, arch, here, told):
    """Such as that of an encoder that computes otherwise, in a model for understanding."""
    kinds = [type("Own", (VecoModel,), {"__module__": "own_code"})]
    kinds.append(type("Below", (kinds[0],), {"__module__": "own_code"}))
    for name, kind in zip(("own_tiny", "own_below"), kinds):
        monkeypatch.setitem(ARCH_MODEL_REGISTRY, name, kind)
    monkeypatch.setitem(misfits.model_of, "a.pt", SimpleNamespace(_name=arch))
    misfits.refuse_another_computation("a.pt", SimpleNamespace(_name=here), False)
    line = f"a.pt: --arch {arch} is somebody's own: what its code computes in another way is not taken over"
    assert [record.getMessage() for record in caplog.records] == [line] * told


def test_a_training_does_not_go_on_as_another_model(make_root, train):
    root = make_root()
    assert train(root, "--max-update", 1).returncode == 0
    line = error_line(train(root, "--max-update", 2, "--encoder-attention-heads", 4))
    assert "--encoder-attention-heads 2 in the file, 4 here): its tensors have the same shapes" in line
    assert line.endswith("give the options that it was trained with, or another --save-dir")
