# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--quant-noise-pq``: blocks of weights that are left out of one pass, and are still there after it."""

from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary, save_pretrained
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import quant_noise
from support.converted import convert
from support.models import gradients, pair_batch

NOISE = {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 4}


def test_a_block_is_dropped_for_one_pass_and_trained_with_the_others():
    torch.manual_seed(2)
    linear = torch.nn.Linear(8, 6, bias=False)
    own = linear.weight.detach().clone()
    assert quant_noise(linear, 0.5, 4) is linear
    x = torch.eye(8, requires_grad=True)
    first, second = linear(x), linear(x)
    for y in (first, second):
        kept = y.t().ne(0)
        torch.testing.assert_close(y.t(), 2 * own * kept)  # 1 / (1 - p)
        assert 0 < kept.sum() < kept.numel() and kept.view(6, 2, 4).float().std(2).eq(0).all()
    assert not torch.equal(first, second)
    assert torch.equal(linear.weight, own) and isinstance(linear.weight, torch.nn.Parameter)
    first.sum().backward()  # with the weights of its own pass
    torch.testing.assert_close(x.grad, first.detach().sum(1).expand(8, 8))
    assert torch.equal(linear.weight.grad, torch.ones(6, 8))
    assert torch.equal(linear.eval()(x), x @ own.t())


def test_a_module_that_fails_has_its_weights_again():
    linear = quant_noise(torch.nn.Linear(8, 6), 0.5, 4)
    own = linear.weight
    with pytest.raises(RuntimeError):
        linear(torch.rand(3, 7))
    assert linear.weight is own


def test_without_noise_nothing_is_added():
    assert not quant_noise(torch.nn.Linear(8, 6), 0.0, 4)._forward_pre_hooks


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_attention_has_the_noise_in_training(dropout):
    torch.manual_seed(3)
    module, x = MultiheadAttention(8, 2, dropout=dropout, self_attention=True, q_noise=0.5, qn_block_size=4), torch.rand(5, 2, 8)
    module.dropout_module.p = 0.0 if dropout == 0 else 1e-6
    one, other = (module(x, x, x)[0] for _ in range(2))
    assert not torch.allclose(one, other, atol=1e-3)
    module.eval()
    torch.testing.assert_close(*(module(x, x, x)[0] for _ in range(2)))


def test_pretraining_keeps_its_weights_and_its_gradients_are_those_of_the_pass(make_model):
    """H, S and, with --checkpoint-activations, the backward pass call each layer again."""
    found = []
    for again in (False, True):
        model = make_model(checkpoint_activations=again, **NOISE).train()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        torch.manual_seed(5)
        sum(branch.nll.sum() for branch in model(*pair_batch()).values()).backward()
        torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
        found.append(gradients(model))
    torch.testing.assert_close(*found)


def test_a_translation_model_keeps_its_weights(make_model, tmp_path):
    path = save_pretrained(tmp_path / "pretrained.pt", make_model(layers=2, arch="veco_tiny"), make_dictionary().symbols)
    config, words = convert(path, 2).cfg, make_dictionary(mask=False)
    config.quant_noise.pq, config.quant_noise.pq_block_size = 0.5, 4
    model = TransformerModelBase.build_model(config, SimpleNamespace(source_dictionary=words, target_dictionary=words)).train()
    assert {"encoder.quant_noise.weight", "decoder.quant_noise.weight"} < model.state_dict().keys()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tokens = torch.randint(4, 40, (2, 6))
    model(tokens, torch.tensor([6, 6]), tokens)[0].sum().backward()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
