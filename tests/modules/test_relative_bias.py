# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Gated relative position bias (XLM-E, section 3.3) against loops over positions and heads, and in the models."""

import math

import pytest
import torch
from conftest import LAYERS, make_dictionary, save_pretrained
from fairseq_cli import train as train_module
from support.models import gradients, pair_batch, tokens
from support.nlu import make_nlu
from support.pretraining import iterator
from support.training import OPTIONS
from support.xlme import criterion_for, make_xlme

from veco_fairseq.checkpoints.huggingface import export_hf
from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.compat.misfits import misfit
from veco_fairseq.cost.memory import Batch, training_memory
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import architecture
from veco_fairseq.modules.relative_bias import BiasedSelfAttention, GatedRelativePositionBias, buckets

PAD, LENGTH, BATCH, HEADS, HEAD_DIM = 1, 11, 3, 2, 4
PADDING = torch.arange(LENGTH) >= torch.tensor([11, 7, 9])[:, None]


def filled(module):
    """Random numbers for everything that starts from 0 or 1."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "relative_bias" in name or name in ("d", "uv", "w"):
                parameter.add_(torch.randn_like(parameter))
    return module


@pytest.fixture
def attention():
    torch.manual_seed(2)
    return filled(BiasedSelfAttention(HEADS * HEAD_DIM, HEADS)).eval()


@pytest.fixture
def h():
    return torch.randn(LENGTH, BATCH, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(3))


@pytest.fixture(params=[False, True], ids=["veco", "xlme"])
def make(request, make_model):
    return make_xlme if request.param else make_model


def heads_of(linear, h):
    return linear(h).view(LENGTH, BATCH, HEADS, HEAD_DIM)


def by_loop(bias: GatedRelativePositionBias, q):
    """r, (batch, heads, length, length), by the paper's lines."""
    r = torch.zeros(BATCH, HEADS, LENGTH, LENGTH)
    for b, head, i, j in torch.cartesian_prod(*map(torch.arange, r.shape)).tolist():
        u, v = bias.uv[:, head]
        g_update, g_reset = torch.sigmoid(q[i, b, head] @ u), torch.sigmoid(q[i, b, head] @ v)
        d = bias.d[head, i - j if i >= j else 16 + j - i] if abs(i - j) < 8 else bias.d[head, 8 + 16 * (j > i)]
        r_reset = bias.w[head] * g_reset * d
        r[b, head, i, j] = d + g_update * d + (1 - g_update) * r_reset
    return r


# The module


def test_buckets_by_hand():
    """Eight of one distance each, then one for each half power of 2: from 8, 11.3, 16, 22.6, 32, 45.3, 64, 90.5."""
    near = list(range(8))
    far = [8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 5000]
    expected = near + [8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15]
    assert buckets(torch.tensor(near + far)).tolist() == expected
    assert buckets(-torch.tensor(near[1:] + far)).tolist() == [16 + bucket for bucket in expected[1:]]


@torch.no_grad()
def test_gates_equal_a_loop(attention, h):
    expected = by_loop(attention.relative_bias, heads_of(attention.q_proj, h))
    torch.testing.assert_close(attention.relative_bias(h, attention.q_proj), expected)
    with torch.autocast("cpu", torch.bfloat16):  # half the memory, and in the type of the scores that it is added to
        assert attention.relative_bias(h, attention.q_proj).dtype == torch.bfloat16


@pytest.mark.parametrize("own", ["class", "hook", "no bias"])
@torch.no_grad()
def test_gates_take_what_a_projection_of_ones_own_computes(attention, h, own):
    if own == "class":

        class LowRank(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x) + x.roll(1, -1)

        attention.q_proj.__class__ = LowRank
    elif own == "hook":
        attention.q_proj.register_forward_hook(lambda module, given, q: 2 * q)
    else:
        attention.q_proj.bias = None
    expected = by_loop(attention.relative_bias, heads_of(attention.q_proj, h))
    torch.testing.assert_close(attention.relative_bias(h, attention.q_proj), expected)


def nearly_without_dropout(attention, in_training: bool):
    """In training with dropout, fairseq's own attention is used; so little of it is none."""
    attention.dropout_module.p = 1e-9
    attention.train(in_training)


@pytest.mark.parametrize("in_training", [False, True], ids=["PyTorch's attention", "fairseq's"])
@torch.no_grad()
def test_attention_equals_a_loop(attention, h, in_training):
    nearly_without_dropout(attention, in_training)
    q, k, v = (heads_of(linear, h) for linear in (attention.q_proj, attention.k_proj, attention.v_proj))
    r = by_loop(attention.relative_bias, q)
    expected = torch.zeros(LENGTH, BATCH, HEADS, HEAD_DIM)
    for b, head, i in torch.cartesian_prod(*map(torch.arange, (BATCH, HEADS, LENGTH))).tolist():
        real = int((~PADDING[b]).sum())
        a = torch.softmax(k[:real, b, head] @ q[i, b, head] / math.sqrt(HEAD_DIM) + r[b, head, i, :real], 0)
        expected[i, b, head] = a @ v[:real, b, head]
    found, _ = attention(h, h, h, PADDING, need_weights=False)
    torch.testing.assert_close(found, attention.out_proj(expected.flatten(2)))
    attention.eval()
    found, weights = attention(h, h, h, PADDING)
    torch.testing.assert_close(found, attention.out_proj(expected.flatten(2)))
    assert weights.shape == (BATCH, LENGTH, LENGTH) and not weights[PADDING[:, None].expand_as(weights)].any()


@torch.no_grad()
def test_attention_is_pytorchs_kernel_with_a_mask(attention, h):
    with torch.profiler.profile() as profile:
        attention(h, h, h, PADDING, need_weights=False)
    assert any("flash_attention" in event.key for event in profile.key_averages())


def test_gradients_are_the_same_on_both_paths(attention, h):
    found = []
    for in_training in (False, True):
        nearly_without_dropout(attention, in_training)
        attention.zero_grad()
        attention(h, h, h, PADDING, need_weights=False)[0].square().sum().backward()
        found.append({name: parameter.grad for name, parameter in attention.named_parameters()})
        assert all(found[-1][f"relative_bias.{name}"].abs().max() > 1e-4 for name in ("uv", "w"))
        assert found[-1]["relative_bias.d"].any(1).all()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, msg=name)


# The models


def hidden_and_mixed(model):
    x, y = tokens(3, 12, seed=1), tokens(3, 9, seed=2)
    hidden = model.unplugged(x)
    mixed = model.plugged(x, model.unplugged(y), y) if hasattr(model, "plugged") else hidden
    return hidden[x.ne(PAD)], mixed[x.ne(PAD)]


@torch.no_grad()
def test_at_its_start_it_is_no_bias(make):
    """And draws nothing: all else is as without the option, by name and by number."""
    without, model = make(), make(relative_position_bias=True)
    names = [name for name in model.state_dict() if name not in without.state_dict()]
    layers = sum("final_layer_norm.weight" in name for name in without.state_dict())
    assert len(names) == 3 * layers and all(".self_attn.relative_bias." in name for name in names)
    model.load_state_dict({**model.state_dict(), **without.state_dict()})
    for name, parameter in model.named_parameters():
        if name.endswith("relative_bias.d"):
            parameter.zero_()
    for found, expected in zip(hidden_and_mixed(model), hidden_and_mixed(without), strict=True):
        torch.testing.assert_close(found, expected)
    for found, expected in zip(hidden_and_mixed(filled(model)), hidden_and_mixed(without), strict=True):
        assert found.isfinite().all() and (found - expected).abs().max() > 1e-2


def test_starts_from_nothing_and_draws_nothing():
    torch.manual_seed(1)
    bias = GatedRelativePositionBias(3, 4)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn)
    assert not bias.d.any() and not bias.uv.any() and bias.w.eq(1).all()


@pytest.mark.parametrize("layerdrop", [0.0, 0.9])  # which leaves layers out while it trains
def test_layers_share_distances_and_not_gates(make, layerdrop):
    model = make(relative_position_bias=True, encoder_layerdrop=layerdrop)
    stacks = [model.encoder, *([model.generator] if hasattr(model, "generator") else [])]
    tables = [{id(layer.self_attn.relative_bias.d) for layer in s.sentence_encoder.layers} for s in stacks]
    assert all(len(table) == 1 for table in tables) and len(set.union(*tables)) == len(stacks)
    assert len({id(p) for n, p in model.named_parameters() if n.endswith(".uv")}) == sum(
        len(stack.sentence_encoder.layers) for stack in stacks
    )


@pytest.mark.parametrize("options", [{}, {"autocast": "bf16"}, {"checkpoint_activations": True}], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_h_s_and_tlm_train(make_model, options, dropout):
    corrupted, targets = pair_batch()
    both = [torch.cat(list(sides), 1) for sides in (corrupted, targets)]
    results = []
    for chosen in ({}, options):
        model = filled(make_model(relative_position_bias=True, **chosen)).train()
        for layer in model.encoder.sentence_encoder.layers:
            layer.self_attn.dropout_module.p = dropout
        torch.manual_seed(4)
        branches = model(corrupted, targets, *both)
        assert branches.keys() == {"h", "s", "tlm"} and all(b.nll.isfinite().all() for b in branches.values())
        sum(b.nll.sum() for b in branches.values()).backward()
        results.append(({name: b.nll for name, b in branches.items()}, gradients(model)))
        found = {name.rpartition(".")[2] for name in results[-1][1] if "relative_bias" in name}
        assert found == {"d", "uv", "w"}
        assert all(gradient.isfinite().all() for gradient in results[-1][1].values())
    exact = "autocast" not in options
    for name, nll in results[0][0].items():
        torch.testing.assert_close(results[1][0][name], nll, atol=1e-6 if exact else 0.3, rtol=0 if exact else 0.1)
    if exact:
        assert all(torch.equal(results[1][1][name], gradient) for name, gradient in results[0][1].items())


def test_generator_and_discriminator_train(make_task):  # noqa: F811
    task, model = make_task(), filled(make_xlme(relative_position_bias=True)).train()
    for half in next(iter(iterator(task).next_epoch_itr())).values():
        loss, *_ = criterion_for(task)(model, half)
        loss.backward()
    trained = {tuple(n.split(".")[::6]) for n in gradients(model) if "relative_bias" in n}
    assert trained == {(part, name) for part in ("encoder", "generator") for name in ("d", "uv", "w")}


def test_memory_counts_the_bias():
    batch = Batch(3, 8, 0.25, tlm=True)
    without, found = (
        training_memory(architecture("veco_tiny", relative_position_bias=given), make_dictionary(), batch)
        for given in (False, True)
    )
    assert found.parameters - without.parameters == 16 * (4 * 32 + 3 * (2 * 192 + 4))
    assert found.activations > without.activations


# The commands


def test_understanding_takes_it_with_the_option(make_model):
    model = filled(make_model(relative_position_bias=True))
    with pytest.raises(RuntimeError) as error:
        make_nlu().load_state_dict(model.state_dict(), strict=True)
    first = "encoder.sentence_encoder.layers.0.self_attn.relative_bias."
    assert misfit(error.value) == f"unexpected {first}d, {first}uv and 7 more"
    nlu, ids = make_nlu(relative_position_bias=True), tokens(2, 9)
    nlu.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(nlu.features(ids, torch.full((2,), -1)), model.unplugged(ids))


def test_what_has_no_place_for_it_refuses(make_model, tmp_path):
    model = make_model(layers=LAYERS, arch="veco_tiny", relative_position_bias=True)
    path = save_pretrained(tmp_path / "pretrained.pt", model, make_dictionary().symbols)
    with pytest.raises(UserError, match="--relative-position-bias, which Hugging Face's XLM-RoBERTa has no place for"):
        export_hf(path, tmp_path / "hf")
    with pytest.raises(UserError, match="--relative-position-bias, which fairseq's transformer has no place for"):
        convert_to_seq2seq(path, tmp_path / "mt.pt", 2)
    with pytest.raises(UserError, match="--relative-position-bias: XLM-R has none: leave it out, or --init-from"):
        make_model(relative_position_bias=True, init_from="xlmr")
    assert not (tmp_path / "hf").exists() and not (tmp_path / "mt.pt").exists()


def test_trains_and_resumes_exactly(make_root, run, tmp_path):
    root = make_root()

    def train(save_dir):
        options = "--relative-position-bias", "--save-interval-updates", "2", "--max-update", "4"
        run(train_module.__file__, root, *OPTIONS[2:], "--save-dir", tmp_path / save_dir, *options)
        return torch.load(tmp_path / save_dir / "checkpoint_last.pt")

    whole = train("whole")["model"]
    (tmp_path / "part").mkdir()
    (tmp_path / "whole/checkpoint_1_2.pt").rename(tmp_path / "part/checkpoint_last.pt")
    half = torch.load(tmp_path / "part/checkpoint_last.pt")["model"]
    part = train("part")["model"]
    assert not (tmp_path / "part/checkpoint_1_2.pt").exists()  # it went on from there
    assert all(torch.equal(part[name], tensor) for name, tensor in whole.items())
    learnt = [name for name in whole if "relative_bias" in name]
    assert len(learnt) == 6 and all(part[name].any() and not torch.equal(part[name], half[name]) for name in learnt)
