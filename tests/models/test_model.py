# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The model against fairseq's own modules, and where gradients must and must not go."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.models.roberta import RobertaModel
from support.models import PAD, by_decoder_layers, gradients, pair_batch, tokens

from veco_fairseq.cost.memory import Batch, kept_for_the_backward_pass, training_memory
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import SIZES, architecture, encoder_architecture
from veco_fairseq.models.veco import VecoModel
from veco_fairseq.modules.prediction import OutputLayer, predict


@pytest.mark.parametrize("arch, expected", [("veco_small", 249_950_610), ("veco_large", 660_952_210)])
def test_parameters_of_the_paper(arch, expected):
    """Section 4 counts 662M and 247M; these are the exact numbers of this architecture."""
    memory = training_memory(architecture(arch), make_dictionary(250_002 - 5), Batch(1, 8, 0.25, tlm=True))
    assert memory.parameters == 16 * expected


def test_memory_is_what_the_model_takes():
    """Its parameters, and what its layers keep for the backward pass of H, S and TLM; the LM head is estimated."""
    args = architecture("veco_tiny")
    model = VecoModel.build_model(args, SimpleNamespace(source_dictionary=make_dictionary())).train()
    memory = training_memory(args, make_dictionary(), Batch(3, 8, 0.25, tlm=True))
    assert memory.parameters == 16 * sum(p.numel() for p in model.parameters())
    x, joined = tokens(6, 8), tokens(3, 16)

    def layers():
        hidden = model.unplugged(x)
        return hidden, model.plugged(x, hidden.detach(), x), model.unplugged(joined)

    assert memory.activations == kept_for_the_backward_pass(layers, model.parameters())
    with_checkpoints = architecture("veco_tiny", checkpoint_activations=True)
    assert training_memory(with_checkpoints, make_dictionary(), Batch(3, 8, 0.25, True)).activations < memory.activations / 5


@pytest.mark.parametrize("arch, tlm, predictions", [("veco_tiny", True, 3), ("veco_tiny", False, 2), ("xlme_tiny", True, 1)])
def test_memory_of_the_loss_by_hand(arch, tlm, predictions):
    """Four states of 192 fp32 numbers and the logits of a predicted token; the table's gradient."""
    dictionary = make_dictionary()
    memory = training_memory(architecture(arch), dictionary, Batch(3, 8, 0.25, tlm=tlm))
    rows = predictions * 2 * 3 * 8 // 4
    assert memory.loss == 4 * (4 * rows * 192 + rows * len(dictionary) + len(dictionary) * 192)


def test_unknown_architecture():
    with pytest.raises(UserError, match="--arch transformer: there is veco_tiny"):
        architecture("transformer")


@pytest.mark.parametrize("arch, told", [("veco_tny", "veco_tiny"), ("xlme_lagre", "xlme_large"), ("veco_lage", "veco_large")])
def test_a_misspelt_architecture_gets_the_nearest(arch, told):
    with pytest.raises(UserError, match=rf"^--arch {arch}: did you mean {told}( or \w+)?\?$"):
        architecture(arch)


def test_command_line_wins_over_architecture():
    args = Namespace(encoder_layers=5, dropout=0.3)
    encoder_architecture(args, SIZES["large"])
    assert (args.encoder_layers, args.encoder_embed_dim, args.encoder_ffn_embed_dim) == (5, 1024, 4096)
    assert (args.dropout, args.attention_dropout, args.max_positions) == (0.3, 0.1, 512)


def test_unplugged_equals_roberta(make_model):
    model = make_model()
    roberta = RobertaModel.build_model(model.args, SimpleNamespace(source_dictionary=make_dictionary()))
    weights = {k: v for k, v in model.state_dict().items() if ".encoder_attn" not in k}
    roberta.load_state_dict(weights, strict=True)
    ids = tokens(4, 11)
    expected, _ = roberta.eval()(ids, features_only=True)
    actual = model.unplugged(ids)
    assert (actual - expected)[ids.ne(PAD)].abs().max() < 1e-5
    logits, _ = roberta(ids)
    assert (model.encoder.lm_head(actual) - logits)[ids.ne(PAD)].abs().max() < 1e-4


def test_plugged_equals_decoder_layers_without_causal_mask(make_model):
    model = make_model()
    x, y = tokens(4, 11, seed=1), tokens(4, 9, seed=2, shortest=4)
    memory = model.unplugged(y)
    difference = model.plugged(x, memory, y) - by_decoder_layers(model, x, y, memory)
    assert difference[x.ne(PAD)].abs().max() < 1e-5


def test_plugged_attends_to_the_memory(make_model):
    model = make_model()
    x, y = tokens(2, 8, seed=1), tokens(2, 8, seed=2)
    attention = []
    plugged = model.plugged(x, model.unplugged(y), y, attention=attention)
    assert (plugged - model.unplugged(x)).abs().max() > 1e-2
    assert [weights.shape for weights in attention] == [(2, 8, 8)] * 3
    for weights in attention:
        assert torch.allclose(weights.sum(-1), torch.ones(2, 8), atol=1e-5)
        assert weights[y.eq(PAD).unsqueeze(1).expand_as(weights)].abs().max() == 0


def loss_gradients(model, branch: str, stop_gradient: bool):
    model.zero_grad()
    model(*pair_batch(), stop_gradient=stop_gradient)[branch].nll.sum().backward()
    return gradients(model)


def test_frozen_backbone_keeps_no_gradient_and_no_activation(make_model):
    model = make_model()
    x, y = tokens(2, 8, seed=1), tokens(2, 8, seed=2)
    model.freeze_backbone(True)
    assert not model.unplugged(x).requires_grad
    assert kept_for_the_backward_pass(lambda: model.unplugged(x), model.parameters()) == 0
    model(*pair_batch())["s"].nll.sum().backward()
    theta_c = [name for name, _ in model.named_parameters() if ".encoder_attn" in name]
    assert [name for name, parameter in model.named_parameters() if parameter.grad is not None] == theta_c
    frozen = gradients(model)
    model.freeze_backbone(False)
    free = loss_gradients(model, "s", True)
    assert all(torch.allclose(frozen[name], free[name], atol=1e-6) for name in frozen) and len(free) > len(frozen)
    assert model.unplugged(y).requires_grad


@pytest.mark.parametrize("autocast", ["none", "bf16"])
def test_checkpointed_activations_give_the_same_gradients_from_less(make_model, autocast):
    """Also frozen, when the lowest layer's input needs no gradient but its cross-attention does."""
    plain, checkpointed = (make_model(autocast=autocast, checkpoint_activations=given) for given in (False, True))
    for frozen in (False, True):
        for model in (plain, checkpointed):
            model.freeze_backbone(frozen)
        expected, actual = (loss_gradients(model, "s", True) for model in (plain, checkpointed))
        assert expected.keys() == actual.keys()
        assert all(torch.equal(expected[name], actual[name]) for name in expected)
    less, more = (kept_for_the_backward_pass(lambda m=m: m(*pair_batch()), m.parameters()) for m in (checkpointed, plain))
    assert less < more / 2
    for model in (plain, checkpointed):
        model.train()
        for layer in model.encoder.sentence_encoder.layers:
            layer.dropout_module.p = 0.5
    first, second = (torch.manual_seed(3) and loss_gradients(model, "s", True) for model in (plain, checkpointed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_h_leaves_no_gradient_in_theta_c(make_model):
    model = make_model()
    assert not [name for name in loss_gradients(model, "h", True) if ".encoder_attn" in name]
    theta_c = [name for name, _ in model.named_parameters() if ".encoder_attn" in name]
    assert theta_c == [name for name in loss_gradients(model, "s", True) if name in theta_c]


def test_s_treats_the_memory_as_a_constant(make_model):
    """Its gradient equals that with a plain tensor as memory, and exactly this changes without stop-gradient."""
    model = make_model()
    corrupted, targets = pair_batch()
    with torch.no_grad():
        memory = [model.unplugged(side) for side in corrupted]
    model.zero_grad()
    for side in (0, 1):
        states = model.plugged(corrupted[side], memory[1 - side], corrupted[1 - side])
        predict({"s": (states, targets[side])}, OutputLayer(model.encoder.lm_head, model.encoder.lm_head.weight), 1)[
            "s"
        ].nll.sum().backward()
    expected = gradients(model)
    actual = loss_gradients(model, "s", stop_gradient=True)
    assert actual.keys() == expected.keys()
    assert all(torch.allclose(actual[name], expected[name], atol=1e-4) for name in expected)

    through = loss_gradients(model, "s", stop_gradient=False)
    assert (
        through["encoder.sentence_encoder.layers.0.fc1.weight"] - actual["encoder.sentence_encoder.layers.0.fc1.weight"]
    ).abs().max() > 1e-3
    # The head sits above the memory on no path: its gradient is the same either way, and so are H's and all values.
    assert torch.allclose(through["encoder.lm_head.dense.weight"], actual["encoder.lm_head.dense.weight"], atol=1e-4)
    stopped, flowing = (loss_gradients(model, "h", stop) for stop in (True, False))
    assert all(torch.equal(stopped[name], flowing[name]) for name in stopped)
    with torch.no_grad():
        a, b = (model(corrupted, targets, stop_gradient=stop)["s"].nll for stop in (True, False))
    assert torch.equal(a, b)


def test_memory_of_x_is_h_of_y(make_model):
    model = make_model()
    corrupted, targets = pair_batch()
    predictions = model(corrupted, targets)
    x, y = corrupted
    for branch, states, of_x in (
        ("h", model.unplugged(x), True),
        ("h", model.unplugged(y), False),
        ("s", model.plugged(x, model.unplugged(y), y), True),
        ("s", model.plugged(y, model.unplugged(x), x), False),
    ):
        expected = predict(
            {"s": (states, targets[0 if of_x else 1])}, OutputLayer(model.encoder.lm_head, model.encoder.lm_head.weight), 1
        )["s"].nll
        actual = predictions[branch].nll[predictions[branch].from_x.eq(of_x)]
        assert torch.allclose(actual, expected, atol=1e-5)


def test_batches_of_different_composition_give_the_same_loss(make_model):
    model = make_model()
    corrupted, targets = pair_batch()
    together = model(corrupted, targets)
    for branch in ("h", "s"):
        alone = []
        for row in range(3):
            longest = int(corrupted[:, row].ne(PAD).sum(-1).max())  # less padding than in the batch
            one = slice(row, row + 1), slice(0, longest)
            alone.append(model(corrupted[:, *one], targets[:, *one])[branch])
        for of_x in (True, False):
            expected = torch.cat([prediction.nll[prediction.from_x.eq(of_x)] for prediction in alone])
            actual = together[branch].nll[together[branch].from_x.eq(of_x)]
            assert torch.allclose(actual, expected, atol=1e-5)


def test_autocast_keeps_parameters_and_loss_in_fp32(make_model):
    plain, cast = make_model(), make_model(autocast="bf16")
    corrupted, targets = pair_batch()
    expected, actual = plain(corrupted, targets)["s"].nll, cast(corrupted, targets)["s"].nll
    assert actual.dtype == torch.float32 and not torch.equal(actual, expected)
    assert torch.allclose(actual, expected, rtol=0.05, atol=0.05)
    actual.sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in cast.parameters() if p.grad is not None)
