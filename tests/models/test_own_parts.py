# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Parts of somebody else's, below this project's classes: what they override counts in training, as it does elsewhere."""

from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.models.transformer import TransformerConfig
from support.models import PAD, gradients, pair_batch, tokens
from support.xlme import make_xlme

from veco_fairseq.errors import UserError
from veco_fairseq.models.base import architecture
from veco_fairseq.models.veco import VecoEncoder, VecoModel
from veco_fairseq.modules.embedding import TokenEmbedding
from veco_fairseq.modules.encoder import VecoTransformerEncoder
from veco_fairseq.modules.layer import VecoLayer
from veco_fairseq.modules.lm_head import LMHead, drawn_from
from veco_fairseq.modules.prediction import Subset


class Embedding(TokenEmbedding):
    """One whose rows are made larger."""

    def forward(self, ids):
        return 3 * super().forward(ids)


class Head(LMHead):
    """One whose logits have a border, as a product with a table cannot have."""

    def forward(self, features, masked_tokens=None, **kwargs):
        return super().forward(features, masked_tokens, **kwargs).mul(4).tanh()


class Layer(VecoLayer):
    """One that passes half of its input on."""

    def residual_connection(self, x, residual):
        return x + 0.5 * residual


class Encoder(VecoEncoder):
    def build_embedding(self, vocab_size, embedding_dim, padding_idx):
        return Embedding(vocab_size, embedding_dim, padding_idx)

    def build_lm_head(self, embed_dim, output_dim, activation_fn, weight):
        return Head(
            embed_dim, output_dim, activation_fn=activation_fn, table=weight, embedding=self.sentence_encoder.embed_tokens
        )


@pytest.fixture
def model():
    args = architecture("veco_tiny", encoder_embed_dim=16, encoder_attention_heads=4, dropout=0.0, attention_dropout=0.0)
    task = SimpleNamespace(source_dictionary=make_dictionary())
    torch.manual_seed(3)
    return VecoModel(args, Encoder(args, task.source_dictionary)).train()


def losses(model, vocabulary=None):
    """-log P of x's and y's hidden tokens by H, and whether each was the likeliest, from the model's modules one by one."""
    corrupted, targets = (part.flatten(0, 1) for part in pair_batch())
    hidden = targets.ne(PAD)
    logits, gold = model.encoder.lm_head(model.unplugged(corrupted))[hidden], targets[hidden]
    if vocabulary is not None:
        gone = torch.ones(logits.size(1), dtype=torch.bool).index_fill(0, vocabulary.tokens, False)
        logits = logits.index_add(1, vocabulary.tokens, vocabulary.offsets.expand(len(logits), -1))
        logits = logits.masked_fill(gone, -torch.inf)
    return -logits.log_softmax(-1)[torch.arange(len(gold)), gold], logits.argmax(-1).eq(gold)


def test_embeddings_and_head_of_ones_own_train(model):
    found = model(*pair_batch())["h"]
    expected, correct = losses(model)
    torch.testing.assert_close(found.nll, expected)
    assert torch.equal(found.correct, correct)
    found.nll.sum().backward()
    actual = gradients(model)
    model.zero_grad()
    expected.sum().backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(actual[name], gradient, msg=name)


def test_they_train_with_a_softmax_over_some_tokens(model):
    vocabulary = Subset(torch.arange(4, 45), torch.linspace(0, 1, 41))
    found = model(*pair_batch(), vocabulary=vocabulary)["h"]
    expected, correct = losses(model, vocabulary)
    torch.testing.assert_close(found.nll, expected)
    assert torch.equal(found.correct, correct)


def test_a_head_that_is_not_tied_to_the_embeddings_trains(monkeypatch):
    """... its own projection, in VECO and in XLM-E's generator."""
    monkeypatch.setattr(VecoEncoder, "build_lm_head", lambda self, embed_dim, output_dim, activation_fn, weight: LMHead(
        embed_dim, output_dim, activation_fn=activation_fn, table=None, embedding=self.sentence_encoder.embed_tokens))  # fmt: skip
    args = architecture("veco_tiny", encoder_embed_dim=16, encoder_attention_heads=4, dropout=0.0, attention_dropout=0.0)
    model = VecoModel(args, VecoEncoder(args, make_dictionary())).train()
    expected, correct = losses(model)
    found = model(*pair_batch())["h"]
    torch.testing.assert_close(found.nll, expected)
    assert torch.equal(found.correct, correct)
    generator = make_xlme(dropout=0.0).generator
    states, gold = torch.randn(3, 16), torch.tensor([5, 9, 44])
    table = generator.sentence_encoder.embed_tokens.weight
    nll, _, _ = drawn_from(generator.lm_head, table, states, gold, draw=lambda probabilities, rows: probabilities.argmax(-1))
    torch.testing.assert_close(nll, torch.nn.functional.cross_entropy(generator.lm_head(states), gold, reduction="none"))


@pytest.mark.parametrize("part", ["sentence_encoder.embed_tokens", "lm_head"])
@pytest.mark.parametrize("before", [False, True], ids=["of the output", "of the input"])
def test_hooks_count(make_model, part, before):
    model = make_model(dropout=0)
    plain = model(*pair_batch())["h"].nll
    module, seen = model.encoder.get_submodule(part), []
    if before:
        module.register_forward_pre_hook(lambda module, given: seen.append(given))
    else:
        module.register_forward_hook(lambda module, given, output: 2 * output)
    found = model(*pair_batch())["h"].nll
    if before:
        assert seen
        torch.testing.assert_close(found, plain)
    else:
        torch.testing.assert_close(found, losses(model)[0])
        assert not torch.allclose(found, plain, rtol=1e-3)


def test_what_somebody_froze_stays_frozen_when_the_backbone_is_trained_again(make_model):
    model = make_model(layers=2)
    own = {"encoder.sentence_encoder.embed_tokens.weight", "encoder.sentence_encoder.layers.0.encoder_attn.q_proj.bias"}
    for name in own:
        model.get_parameter(name).requires_grad_(False)
    for _ in range(2):
        model.freeze_backbone(True)
        trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        assert trained == {name for name, _ in model.named_parameters() if ".encoder_attn" in name} - own
        model.freeze_backbone(False)
        assert {name for name, parameter in model.named_parameters() if not parameter.requires_grad} == own


def test_a_generators_own_head_draws_by_its_own_probabilities():
    """All of them lie on one token, which only its forward knows."""
    model = make_xlme(dropout=0.0)
    model.generator.lm_head.register_forward_hook(lambda module, given, logits: logits.index_fill(1, torch.tensor(9), 50.0))
    corrupted, targets = pair_batch()
    found, gold = model(corrupted, targets), targets[targets.ne(PAD)]
    assert torch.equal(found.correct, gold.eq(9)) and found.nll[gold.ne(9)].min() > 40
    assert found.replaced.sum() == gold.ne(9).sum()


@pytest.mark.parametrize("option", ["scale_attn", "scale_fc", "scale_heads", "scale_resids"])
def test_parts_of_normformer_are_for_layers_that_compute_them(option):
    """fairseq would make their parameters, and nothing would train them."""
    args = architecture("veco_tiny", encoder_embed_dim=16, encoder_attention_heads=4, **{option: True})
    with pytest.raises(UserError, match=f"^--{option.replace('_', '-')}: VECO's layers have no parts of NormFormer"):
        VecoEncoder(args, make_dictionary())

    class Own(VecoLayer):
        def forward(self, x, *rest):
            return x

    assert len(list(Own(TransformerConfig.from_namespace(args)).parameters())) > 26  # those of a layer without it


def test_a_layers_own_residual_connection_counts(make_model, monkeypatch):
    """Plugged out and in, against the equations with the layer's modules."""
    monkeypatch.setattr(
        VecoTransformerEncoder, "build_encoder_layer", lambda self, args: Layer(TransformerConfig.from_namespace(args))
    )
    model = make_model(layers=1, dropout=0)
    x, y = tokens(2, 7), tokens(2, 8, seed=1)
    encoder = model.encoder.sentence_encoder
    (layer,) = encoder.layers
    start = encoder.forward_embedding(x)[0].mul(x.ne(PAD).unsqueeze(-1)).transpose(0, 1)
    memory, padding = torch.randn(8, 2, 16), y.eq(PAD)
    a = layer.self_attn_layer_norm(0.5 * start + layer.self_attn(start, start, start, key_padding_mask=x.eq(PAD))[0])
    c = layer.encoder_attn_layer_norm(0.5 * a + layer.encoder_attn(a, memory, memory, key_padding_mask=padding)[0])
    for states, found in ((a, model.unplugged(x)), (c, model.plugged(x, memory.transpose(0, 1), y))):
        expected = layer.final_layer_norm(0.5 * states + layer.fc2(layer.activation_fn(layer.fc1(states))))
        torch.testing.assert_close(found, expected.transpose(0, 1))
