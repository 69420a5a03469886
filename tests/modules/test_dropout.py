# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Dropout with cheap random numbers: its distribution, and that attention uses it and nothing else changes."""

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModel
from fairseq.modules.fairseq_dropout import FairseqDropout
from support.models import by_decoder_layers, tokens

from veco_fairseq.modules.dropout import random_numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_drops_its_share_and_scales_the_rest(p, dtype):
    torch.manual_seed(3)
    x = torch.full((100, 1001), 2.0, dtype=dtype, requires_grad=True)
    y = FairseqDropout(p)(x)
    assert len(y.unique()) == 2
    assert y[y != 0].float().mean().item() == pytest.approx(2 / (1 - p), rel=4e-3)
    dropped = y.eq(0)
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert abs(dropped.float().mean().item() - p) < 4 * deviation
    y.sum().backward()
    assert torch.equal(x.grad.eq(0), dropped) and torch.equal(x.grad * 2, y.detach())


def test_neighbours_are_independent():
    """Four numbers come from one: each pair of places in it drops together as often as by chance."""
    torch.manual_seed(3)
    dropped = FairseqDropout(0.5)(torch.ones(100_000, 4)).eq(0).float()
    together = dropped.T @ dropped / len(dropped)
    expected = torch.full((4, 4), 0.25) + 0.25 * torch.eye(4)
    assert torch.allclose(together, expected, atol=4 * (0.25 * 0.75 / len(dropped)) ** 0.5)
    along = (dropped[1:] * dropped[:-1]).mean(0)
    assert torch.allclose(along, torch.full((4,), 0.25), atol=0.006)


@pytest.mark.parametrize("p, training, expected", [(0.5, False, 1), (0.0, True, 1), (1.0, True, 0), (1e-9, True, 1)])
def test_the_ends(p, training, expected):
    module = FairseqDropout(p).train(training)
    assert torch.equal(module(torch.ones(7)), torch.full((7,), float(expected)))


def test_the_generator_decides():
    x = torch.ones(50, 3)
    torch.manual_seed(5)
    first = FairseqDropout(0.3)(x)
    assert not torch.equal(FairseqDropout(0.3)(x), first)
    torch.manual_seed(5)
    assert torch.equal(FairseqDropout(0.3)(x), first)


def test_a_training_draws_no_numbers_twice(monkeypatch):
    """Of 2**63 seeds 2,000 are all different but once in 10**12 times; of 2**16 some 30 would be equal."""
    seeds, make = [], np.random.SFC64
    monkeypatch.setattr(np.random, "SFC64", lambda seed: seeds.append(seed) or make(seed))
    torch.manual_seed(1)
    for _ in range(2000):
        random_numbers(1)
    assert len(set(seeds)) == 2000 and max(seeds) > 2**60


def test_attention_is_the_same_with_it(make_model):
    """Nearly no dropout makes training's attention do without PyTorch's kernel, and is no dropout."""
    model = make_model(dropout=0)
    x, y = tokens(3, 9), tokens(3, 7, seed=1)
    with torch.no_grad():
        expected = model.plugged(x, model.unplugged(y), y)
    for layer in model.encoder.sentence_encoder.layers:
        for attention in (layer.self_attn, layer.encoder_attn):
            attention.dropout_module.p = 1e-9
    model.train()
    real = x.ne(1)
    assert torch.allclose(model.plugged(x, model.unplugged(y), y)[real], expected[real], atol=1e-5)
    for layer in model.encoder.sentence_encoder.layers:
        layer.self_attn.dropout_module.p = 0.5
    assert not torch.allclose(model.plugged(x, model.unplugged(y), y)[real], expected[real], atol=1e-2)


def of_fairseq_s_own():
    args = Namespace(encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2, encoder_layers=2,
                     decoder_layers=2, decoder_attention_heads=2, activation_dropout=0.1)  # fmt: skip
    ARCH_CONFIG_REGISTRY["veco_mt_tiny"](args)
    dictionary = make_dictionary()
    return TransformerModel.build_model(args, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary))


@pytest.mark.parametrize("of_fairseq", [False, True], ids=["VECO", "fairseq's transformer"])
def test_a_cpu_is_not_left_to_pytorchs_numbers(make_model, of_fairseq):
    """Neither VECO nor the translation model that it becomes draws a number for every element: PyTorch draws seeds alone."""
    model = of_fairseq_s_own() if of_fairseq else make_model()
    for module in model.modules():
        if isinstance(module, FairseqDropout):
            module.p = 0.2
    model.train()
    ids = tokens(4, 11)
    with torch.profiler.profile(record_shapes=True) as profile:
        model(ids, torch.full((4,), 11), ids) if of_fairseq else model.plugged(ids, model.unplugged(ids), ids)
    called = {event.key for event in profile.key_averages()}
    drawn = [event.input_shapes[0] for event in profile.key_averages(group_by_input_shape=True) if event.key == "aten::random_"]
    assert drawn == [[]]
    assert not called & {"aten::bernoulli_", "aten::native_dropout", "aten::dropout"}


def leaves_a_mark(x, p):
    """In place of dropout, so that it can be seen where it sits and with which probability."""
    return x * (1 - p) + 0.7 * p * torch.linspace(-1, 1, x.size(-1)).expand_as(x)


@pytest.fixture
def marked(monkeypatch):
    """The dropout module, and PyTorch's attention kernel, which has one of its own."""

    def forward(module, x, *_, **__):
        return leaves_a_mark(x, module.p) if module.training else x

    def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **_):
        weights = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
        weights = weights if attn_mask is None else weights + attn_mask
        return leaves_a_mark(weights.softmax(-1), dropout_p) @ v

    monkeypatch.setattr(FairseqDropout, "forward", forward)
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(F, "dropout", lambda x, p=0.5, training=True, inplace=False: leaves_a_mark(x, p) if training else x)


PROBABILITIES = {"dropout": 0.1, "attention_dropout": 0.25, "activation_dropout": 0.4}


@pytest.fixture
def with_dropouts(make_model):
    model = make_model()
    args = Namespace(**{**vars(model.args), **PROBABILITIES})
    ours = type(model).build_model(args, SimpleNamespace(source_dictionary=make_dictionary()))
    ours.load_state_dict(model.state_dict())
    return ours.train()


def test_unplugged_it_sits_where_robertas_does(with_dropouts, marked):
    model = with_dropouts
    roberta = RobertaModel.build_model(model.args, SimpleNamespace(source_dictionary=make_dictionary()))
    roberta.load_state_dict({k: v for k, v in model.state_dict().items() if ".encoder_attn" not in k})
    ids = tokens(4, 11)
    expected, _ = roberta.train()(ids, features_only=True)
    assert (model.unplugged(ids) - expected)[ids.ne(1)].abs().max() < 1e-5
    model.eval()
    assert (model.unplugged(ids) - expected)[ids.ne(1)].abs().max() > 0.1


def test_plugged_it_sits_where_a_decoder_layers_does(with_dropouts, marked):
    model = with_dropouts
    x, y = tokens(4, 11, seed=1), tokens(4, 9, seed=2, shortest=4)
    memory = model.unplugged(y)
    difference = model.plugged(x, memory, y) - by_decoder_layers(model, x, y, memory)
    assert difference[x.ne(1)].abs().max() < 1e-5
