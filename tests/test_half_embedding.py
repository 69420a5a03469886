# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""--embed-dim against the ordinary model whose table is the product of the small one and its projection."""

import pytest
import torch
import torch.nn.functional as F
from conftest import make_dictionary
from fairseq.models.transformer import Embedding
from test_model import PAD, gradients, masked, pair_batch, tokens

from veco_fairseq.errors import UserError
from veco_fairseq.memory import Batch, training_memory
from veco_fairseq.models.veco import VecoEncoder, architecture
from veco_fairseq.modules.embedding import FactorizedEmbedding, TokenEmbedding
from veco_fairseq.operations import counter

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
    return make_model(table_dim=TABLE_DIM, arch="veco_tiny")


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
    for found, expected in zip(*states):
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
            model.predict({"h": (states, torch.full((1, 10), 5))})
        operations.append(counted.get_total_flops() - 2 * 10 * DIM * DIM)  # of the dense layer
    assert operations == [2 * 10 * TABLE_DIM * (vocabulary + DIM), 2 * 10 * DIM * vocabulary]


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
