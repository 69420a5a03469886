# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""--embed-dim against the ordinary model whose table is the product of the small one and its projection."""

import pytest
import torch
import torch.nn.functional as F
from conftest import error_line, make_dictionary, save_pretrained, save_with_vocabulary
from fairseq.models.transformer import Embedding
from support.converted import decode, encode, load, same
from support.models import PAD, gradients, masked, pair_batch, tokens
from support.nlu import SENTENCES, make_nlu, save_finetuned
from support.training import logged
from support.xlmr import needs_transformers

from veco_fairseq.checkpoints.huggingface import export_hf, import_transformers, largest_difference
from veco_fairseq.checkpoints.pretrained import read_pretrained
from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.cost.flops import counter
from veco_fairseq.cost.memory import Batch, training_memory
from veco_fairseq.errors import UserError
from veco_fairseq.inference.pretrained import load_pretrained
from veco_fairseq.models.base import architecture
from veco_fairseq.models.veco import VecoEncoder
from veco_fairseq.modules.embedding import FactorizedEmbedding, TokenEmbedding
from veco_fairseq.modules.prediction import OutputLayer, predict
from veco_fairseq.retrieval.states import sentence_states

TABLE = "encoder.sentence_encoder.embed_tokens.weight"
PROJECTION = "encoder.sentence_encoder.embed_tokens.project.weight"
DIM, TABLE_DIM = 16, 6


def multiplied_out(model):
    """The ordinary model's state dict."""
    weights = model.state_dict()
    weights[TABLE] = weights["encoder.lm_head.weight"] = weights[TABLE] @ weights.pop(PROJECTION).t()
    return weights


@pytest.fixture
def half(make_model):
    return make_model(table_dim=TABLE_DIM, arch="veco_tiny", dropout=0)


@pytest.fixture
def ordinary(half, make_model):
    model = make_model(arch="veco_tiny", seed=7)
    model.load_state_dict(multiplied_out(half), strict=True)
    return model


def loss(model, branch):
    corrupted, targets = pair_batch()
    tlm_tokens, tlm_targets = masked(tokens(3, 19, seed=5))
    return model(corrupted, targets, tlm_tokens, tlm_targets)[branch].nll


@pytest.mark.parametrize("branch", ["h", "s", "tlm"])
def test_losses_and_gradients_are_the_ordinary_models(half, ordinary, branch):
    """The small table's is G P and the projection's G^T E, of the ordinary table's gradient G."""
    found, expected = loss(half, branch), loss(ordinary, branch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    found.mean().backward()
    expected.mean().backward()
    found, expected = gradients(half), gradients(ordinary)
    table, projection = (dict(half.named_parameters())[name] for name in (TABLE, PROJECTION))
    whole = expected.pop(TABLE)
    expected.update({TABLE: whole @ projection, PROJECTION: whole.t() @ table})
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4, msg=name)


@torch.no_grad()
def test_states_and_logits_are_the_ordinary_models(half, ordinary):
    x, y = tokens(3, 9, seed=1), tokens(3, 9, seed=2)
    real = x.ne(PAD)
    states = [(model.unplugged(x), model.plugged(x, model.unplugged(y), y)) for model in (half, ordinary)]
    for found, expected in zip(*states, strict=True):
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
    expected = ordinary.encoder.lm_head(states[1][0])
    torch.testing.assert_close(half.encoder.lm_head(states[0][0])[real], expected[real], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(half.encoder.output_layer(states[0][0], masked_tokens=real), expected[real],
                               atol=1e-5, rtol=1e-4)  # fmt: skip


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_are_plain_autograds(half, frozen):
    """Without the shared look-up and the loss by chunks: torch's embedding, logits and cross-entropy."""
    half.train().freeze_backbone(frozen)
    corrupted, targets = pair_batch()
    loss(half, "s").sum().backward()
    found = gradients(half)
    half.zero_grad()
    hidden = [half.unplugged(side) for side in corrupted]
    for side in (0, 1):
        states = half.plugged(corrupted[side], hidden[1 - side].detach(), corrupted[1 - side])
        logits = half.encoder.lm_head(states).flatten(0, 1)
        F.cross_entropy(logits, targets[side].flatten(), ignore_index=PAD, reduction="sum").backward()
    expected = gradients(half)
    assert found.keys() == expected.keys() and (TABLE in found) == (PROJECTION in found) == (not frozen)
    for name in found:
        torch.testing.assert_close(found[name], expected[name], atol=1e-4, rtol=1e-4, msg=name)


def test_autocast(half, make_model):
    cast = make_model(table_dim=TABLE_DIM, autocast="bf16")
    expected, found = loss(half, "s"), loss(cast, "s")
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    found.sum().backward()
    assert all(gradient.dtype == torch.float32 for gradient in gradients(cast).values())
    assert {TABLE, PROJECTION} <= gradients(cast).keys()


def test_without_the_option_nothing_changes(make_model):
    """Neither names nor random numbers; the model's width as the option is no option."""
    assert make_model().state_dict().keys() == make_model(table_dim=DIM).state_dict().keys()
    assert sorted(n for n in make_model().state_dict() if "embed_tokens" in n or n.endswith("lm_head.weight")) == [
        "encoder.lm_head.weight", TABLE
    ]  # fmt: skip
    drawn = []
    for kind in (Embedding, TokenEmbedding):
        torch.manual_seed(1)
        drawn.append((kind(9, 4, PAD).weight, torch.rand(3)))
    assert torch.equal(drawn[0][0], drawn[1][0]) and torch.equal(drawn[0][1], drawn[1][1])


def test_starts_at_the_scale_of_an_ordinary_table():
    torch.manual_seed(1)
    embedding = FactorizedEmbedding(5000, 64, PAD, 32)
    rows = embedding(torch.arange(5000))
    assert rows.shape == (5000, 64) and rows[PAD].eq(0).all()
    assert rows.std().item() == pytest.approx(64**-0.5, rel=0.02)
    lengths = [vectors.norm(dim=1).mean().item() for vectors in (rows, Embedding(5000, 64, PAD).weight)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.02)
    states = torch.randn(50, 64)
    assert (embedding.project_out(states) @ embedding.weight.t()).std().item() == pytest.approx(1, rel=0.05)


def test_parameters_memory_and_operations(half, ordinary):
    """V D becomes V E + D E, of parameters and of each row's operations for the vocabulary."""
    vocabulary = len(make_dictionary())
    count = [sum(parameter.numel() for parameter in model.parameters()) for model in (half, ordinary)]
    assert count[1] - count[0] == vocabulary * (DIM - TABLE_DIM) - DIM * TABLE_DIM
    words, batch = make_dictionary(1000), Batch(2, 8, 0.25, tlm=True)
    small, full = (training_memory(architecture("veco_tiny", table_dim=dim), words, batch) for dim in (96, None))
    assert full.parameters - small.parameters == 16 * (len(words) * 96 - 192 * 96)
    assert full.loss - small.loss == 4 * len(words) * 96
    states, operations = torch.randn(1, 10, DIM), []
    for model in (half, ordinary):
        with counter() as counted, torch.no_grad():
            predict({"h": (states, torch.full((1, 10), 5))}, OutputLayer(model.encoder.lm_head, model.encoder.lm_head.weight), 1)
        operations.append(counted.get_total_flops() - 2 * 10 * DIM * DIM)  # of the dense layer
    assert operations == [2 * 10 * TABLE_DIM * (vocabulary + DIM), 2 * 10 * DIM * vocabulary]


# What is made of it


@pytest.fixture
def checkpoints(half, ordinary, tmp_path):
    """Of both models."""
    symbols = make_dictionary().symbols
    return [save_pretrained(tmp_path / f"{name}.pt", model, symbols)
            for name, model in (("half", half), ("ordinary", ordinary))]  # fmt: skip


@pytest.mark.parametrize("keep_lm_head", [False, True])
@torch.no_grad()
def test_converted_models_are_equal(half, checkpoints, tmp_path, keep_lm_head):
    outputs = [tmp_path / "mt-half.pt", tmp_path / "mt-ordinary.pt"]
    reports = [convert_to_seq2seq(checkpoint, output, 3, keep_lm_head=keep_lm_head)
               for checkpoint, output in zip(checkpoints, outputs)]  # fmt: skip
    (model, state), (_, expected) = map(load, outputs)
    assert state["model"].keys() == expected["model"].keys() and state["cfg"] == expected["cfg"]
    for name, tensor in state["model"].items():
        torch.testing.assert_close(tensor, expected["model"][name], atol=1e-6, rtol=1e-6)
    assert reports[0]["groups"] == reports[1]["groups"] and reports[1]["notes"] == []
    assert reports[0]["notes"] == ["--embed-dim: token embeddings (45 x 6) times projection (16 x 6): 45 x 16, the same outputs"]
    sources, targets = tokens(3, 8, seed=4), tokens(3, 7, seed=5)
    states = half.plugged(targets, half.unplugged(sources), sources)
    if keep_lm_head:
        found = model.decoder(targets, encoder_out=encode(model, sources), full_context_alignment=True)[0]
        same(found, targets, half.encoder.lm_head(states)[..., :-1], targets)  # without <mask>
    else:
        same(decode(model, targets, encode(model, sources)), targets, states, targets)


@needs_transformers
@torch.no_grad()
def test_exported_model_is_equal(half, checkpoints, tmp_path):
    export = export_hf(checkpoints[0], tmp_path / "hf")
    assert export.notes[0].startswith("--embed-dim: token embeddings (45 x 6)")
    assert export.dropped == sum(p.numel() for name, p in half.named_parameters() if ".encoder_attn" in name)
    theirs = import_transformers().XLMRobertaForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    ids = tokens(3, 9)
    real = ids.ne(PAD)
    found = theirs(ids, attention_mask=real.long(), output_hidden_states=True)
    states = half.unplugged(ids)
    torch.testing.assert_close(found.hidden_states[-1][real], states[real], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.logits[real], half.encoder.lm_head(states)[real], atol=1e-5, rtol=1e-4)
    assert largest_difference(checkpoints[0], tmp_path / "hf") < 1e-5
    torch.testing.assert_close(read_pretrained(checkpoints[0]).weights[TABLE], multiplied_out(half)[TABLE])


def test_understanding_starts_from_it(half, tmp_path):
    """With the same --embed-dim, and goes to transformers as well; without, its tensors don't fit."""
    with pytest.raises(RuntimeError, match="embed_tokens.project.weight"):
        make_nlu().load_state_dict(half.state_dict(), strict=True)
    model = make_nlu(table_dim=TABLE_DIM, arch="veco_nlu_tiny")
    model.load_state_dict(half.state_dict(), strict=True)
    ids = tokens(2, 9)
    assert torch.equal(model.features(ids, torch.full((2,), -1)), half.unplugged(ids))
    model(ids, torch.full((2,), -1)).sum().backward()
    assert {TABLE, PROJECTION} <= gradients(model).keys()
    checkpoint = save_finetuned(tmp_path / "nlu.pt", model, "classification", ["a", "b", "c"])
    assert len(export_hf(checkpoint, tmp_path / "hf").notes) == 2
    assert import_transformers() is None or largest_difference(checkpoint, tmp_path / "hf") < 1e-5


def test_sentences_have_the_ordinary_models_states(make_model, tmp_path):
    """For retrieval; of a checkpoint that is loaded as it is, and not multiplied out."""
    saved = save_with_vocabulary(tmp_path / "pretrained", make_model, SENTENCES * 3, 22, table_dim=TABLE_DIM)
    pretrained = load_pretrained(str(saved), cpu=True)
    model = make_model(pretrained.dictionary, seed=7)
    model.load_state_dict(multiplied_out(pretrained.model), strict=True)
    ordinary = pretrained._replace(model=model)
    found, expected = (sentence_states(each, SENTENCES, layers=[0, 3]) for each in (pretrained, ordinary))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert pretrained.model.state_dict()[TABLE].size(1) == TABLE_DIM


def test_training_and_what_reads_its_checkpoint(make_root, train, run, tmp_path):  # noqa: F811
    root = make_root()
    options = "--embed-dim", "8", "--bitext-max-length", "16"
    logged(train(root, *options, "--max-update", "2"), "train_inner")
    assert len(logged(train(root, *options, "--max-update", "3"), "train_inner")) == 1
    saved = tmp_path / "checkpoints/checkpoint_last.pt"
    assert torch.load(saved)["model"][TABLE].shape == (45, 8)
    done = run("scripts/convert_to_seq2seq.py", "--checkpoint", saved, "--output", tmp_path / "mt.pt",
               "--decoder-layers", "1")  # fmt: skip
    assert done.returncode == 0 and "note     --embed-dim: token embeddings (45 x 8)" in done.stdout, done.stderr
    counted = run("scripts/count_operations.py", saved, "--sample-updates", "3")
    assert counted.returncode == 0, counted.stderr
    inspect = "scripts/inspect_data.py", root, "--arch", "veco_tiny"
    whole, small = (run(*inspect, *option).stdout for option in ((), ("--embed-dim", "96")))
    count = [int(text.split("veco_tiny: ")[1].split(" parameters")[0].replace(",", "")) for text in (whole, small)]
    assert count[0] - count[1] == 45 * 96 - 192 * 96
    assert "--embed-dim 193: must be from 1 to 192" in error_line(run(*inspect, "--embed-dim", "193"))
    assert "--embed-dim 17: must be" in error_line(train(root, *options, "--embed-dim", "17", save_dir="new"))
    assert "does not fit the chosen model" in error_line(train(root, *options[2:], "--max-update", "3"))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"table_dim": 0}, "--embed-dim 0: must be from 1 to 192, the model's width"),
        ({"table_dim": 193}, "--embed-dim 193: must be from 1 to 192, the model's width"),
        ({"table_dim": 96, "init_from": "xlmr"}, "--embed-dim 96: XLM-R's token embeddings have the model's width"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        VecoEncoder(architecture("veco_tiny", **options), make_dictionary())
    assert VecoEncoder(architecture("veco_tiny", table_dim=192, init_from="xlmr"), make_dictionary())


@pytest.mark.parametrize("table_dim", [0, DIM + 1])
def test_a_table_is_not_wider_than_the_model_and_not_empty(make_model, table_dim):
    with pytest.raises(UserError, match=f"--embed-dim {table_dim}: must be from 1 to {DIM}, the model's width"):
        make_model(table_dim=table_dim)
