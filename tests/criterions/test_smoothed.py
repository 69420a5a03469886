# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The label-smoothed loss of translation models on a CPU, against fairseq's own code."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from support.models import PAD, all_random, tokens
from torch.utils.flop_counter import FlopCounterMode

from veco_fairseq.criterions import smoothed
from veco_fairseq.models.translation import VecoTransformer
from veco_fairseq.modules import masked_loss
from veco_fairseq.modules.masked_loss import smoothed_loss

EOS = 2


@pytest.fixture(params=[False, True], ids=["projection", "LM head"])
def model(request):
    args = Namespace(encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2, encoder_layers=2,
                     decoder_layers=1, decoder_attention_heads=2, dropout=0.0, attention_dropout=0.0,
                     keep_lm_head=request.param)  # fmt: skip
    ARCH_CONFIG_REGISTRY["veco_mt_tiny"](args)
    torch.manual_seed(2)
    dictionary = make_dictionary()
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return all_random(VecoTransformer.build_model(args, task)).train()


def batch():
    source, target = tokens(5, 9), tokens(5, 11, seed=1)
    given = torch.where(target.eq(EOS), PAD, target).roll(1, 1)
    given[:, 0] = EOS  # as fairseq's data begin
    net_input = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), "prev_output_tokens": given}
    return {"net_input": net_input, "target": target, "ntokens": target.ne(PAD).sum().item()}


def criterion(smoothing=0.2, **options):
    task = SimpleNamespace(target_dictionary=make_dictionary())
    return LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=smoothing, **options)


def computed(function, model, smoothing, autocast=False):
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss, sample_size, log = function(criterion(smoothing), model, batch())
    (3 * loss).backward()
    return loss, sample_size, log, {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_equals_fairseqs(model, smoothing, monkeypatch):
    monkeypatch.setattr(masked_loss, "ROWS_A_CHUNK", 7)
    monkeypatch.setattr(masked_loss, "TOKENS_A_BLOCK", 9)
    loss, size, log, gradients = computed(smoothed.forward, model, smoothing)
    wanted, wanted_size, wanted_log, wanted_gradients = computed(smoothed._fairseq_forward, model, smoothing)
    torch.testing.assert_close(loss, wanted)
    assert size == wanted_size and log.keys() == wanted_log.keys()
    torch.testing.assert_close(log["nll_loss"], wanted_log["nll_loss"])
    for name, gradient in wanted_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, msg=name, rtol=1e-4, atol=1e-5)


def test_a_worker_among_several_computes_it_so_too(model, monkeypatch):
    """Its model is wrapped, and is asked for the last states all the same."""
    wrapped = ModuleProxyWrapper(LegacyDistributedDataParallel(model, None))
    calls = []
    monkeypatch.setattr(smoothed, "smoothed_loss", lambda *given, **more: calls.append(1) or smoothed_loss(*given, **more))
    loss, size, log, gradients = computed(smoothed.forward, wrapped, 0.1)
    wanted, wanted_size, wanted_log, wanted_gradients = computed(smoothed.forward, model, 0.1)
    assert len(calls) == 2
    assert torch.equal(loss, wanted) and (size, log) == (wanted_size, wanted_log)
    for name, gradient in gradients.items():
        assert torch.equal(gradient, wanted_gradients[name.removeprefix("module.module.")])


def test_under_amp_it_is_as_close_as_bf16_is(model):
    loss, *_, gradients = computed(smoothed.forward, model, 0.1, autocast=True)
    wanted, *_, wanted_gradients = computed(smoothed._fairseq_forward, model, 0.1)
    assert loss.item() == pytest.approx(wanted.item(), rel=5e-3) and loss.dtype == torch.float32
    for name, gradient in wanted_gradients.items():
        assert (gradients[name] - gradient).norm() < 0.05 * gradient.norm() + 3e-2, name  # that of a key bias is 0


def test_padding_costs_nothing(model):
    sample = batch()
    sample["target"][1:] = PAD
    counted = []
    for function in (smoothed.forward, smoothed._fairseq_forward):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            function(criterion(), model, sample)
        counted.append(counter.get_total_flops())
    assert counted[1] - counted[0] >= 2 * sample["target"].eq(PAD).sum().item() * 16 * len(make_dictionary())


@pytest.mark.parametrize("options", [{"report_accuracy": True}, {"ignore_prefix_size": 2}])
def test_what_it_does_not_know_is_left_to_fairseq(model, options):
    found = [function(criterion(**options), model, batch()) for function in (smoothed.forward, smoothed._fairseq_forward)]
    assert torch.equal(found[0][0], found[1][0]) and found[0][2] == found[1][2]


def test_an_adaptive_softmax_is_left_to_fairseq(model):
    assert smoothed.serves(criterion(), model)
    model.decoder.adaptive_softmax = torch.nn.Identity()
    assert not smoothed.serves(criterion(), model)


def test_other_criterions_models_and_decoders_are_left_to_fairseq(model, monkeypatch):
    class Own(LabelSmoothedCrossEntropyCriterion):
        """One whose loss may be another."""

    class Decoder(type(model.decoder)):
        """One whose logits are."""

        def output_layer(self, features):
            return 2 * super().output_layer(features)

    own = Own(SimpleNamespace(target_dictionary=make_dictionary()), sentence_avg=False, label_smoothing=0.1)
    assert not smoothed.serves(own, model)
    assert not smoothed.serves(criterion(), torch.nn.Identity())
    monkeypatch.setattr(model.decoder, "__class__", Decoder)
    assert not smoothed.serves(criterion(), model)


def doubled(method):
    """A method whose logits, or log-probabilities before they are normalized, are twice as large."""

    def twice(self, *args, **kwargs):
        found = method(self, *args, **kwargs)
        return (2 * found[0], *found[1:]) if isinstance(found, tuple) else (2 * found).log_softmax(-1)

    return twice


@pytest.mark.parametrize("part", ["model", "decoder"])
@pytest.mark.parametrize("name", ["forward", "get_normalized_probs", "get_normalized_probs_scriptable"])
def test_a_method_of_ones_own_on_the_way_to_the_loss_counts(model, monkeypatch, part, name):
    owner = model if part == "model" else model.decoder
    before = smoothed.forward(criterion(), model, batch())[0]
    own = type("Own", (type(owner),), {name: doubled(getattr(type(owner), name))})
    monkeypatch.setattr(owner, "__class__", own)
    found, expected = (function(criterion(), model, batch())[0] for function in (smoothed.forward, smoothed._fairseq_forward))
    assert torch.equal(found, expected) and not torch.allclose(found, before, rtol=1e-3)


class Scaled(torch.nn.Linear):
    def forward(self, states):
        return 2 * super().forward(states)


@pytest.mark.parametrize("kind", ["a class of its own", "a bias", "a hook"])
def test_an_output_projection_of_ones_own_counts(model, kind):
    before = smoothed.forward(criterion(), model, batch())[0]
    weight = model.decoder.output_projection.weight
    output = (Scaled if kind == "a class of its own" else torch.nn.Linear)(16, len(weight), bias=kind == "a bias")
    output.weight = weight
    if kind == "a hook":
        output.register_forward_hook(lambda module, given, logits: 2 * logits)
    model.decoder.output_projection = output
    found, expected = (function(criterion(), model, batch())[0] for function in (smoothed.forward, smoothed._fairseq_forward))
    assert torch.equal(found, expected) and not torch.allclose(found, before, rtol=1e-3)


def test_a_model_that_always_gives_logits_is_left_to_fairseq():
    """``transformer_align``, whose forward cannot be asked for the last states alone."""
    args = Namespace(encoder_embed_dim=16, encoder_layers=1, decoder_layers=1, dropout=0.0, alignment_heads=1)
    ARCH_CONFIG_REGISTRY["transformer_align"](args)
    dictionary = make_dictionary()
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = ARCH_MODEL_REGISTRY["transformer_align"].build_model(args, task)
    found = [function(criterion(), model, batch())[0] for function in (smoothed.forward, smoothed._fairseq_forward)]
    assert torch.equal(*found)


def test_loss_of_each_token_is_fairseqs(model):
    found = smoothed.forward(criterion(), model, batch(), reduce=False)[0]
    assert torch.equal(found, smoothed._fairseq_forward(criterion(), model, batch(), reduce=False)[0]) and found.numel() > 1
