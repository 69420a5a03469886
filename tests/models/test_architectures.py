# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the architectures set, and what the models make of single options."""

import argparse
import logging
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import make_dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.roberta import RobertaModel
from support.models import pair_batch
from support.nlu import TOKENS, make_nlu

from veco_fairseq.errors import UserError
from veco_fairseq.models import xlme
from veco_fairseq.models.base import NOT_GIVEN, SIZES, WITHOUT_EFFECT, Size, architecture, encoder_architecture
from veco_fairseq.models.nlu import VecoNluModel
from veco_fairseq.models.translation import VecoTransformer, tied_layers
from veco_fairseq.models.veco import VecoEncoder, VecoModel
from veco_fairseq.models.xlme import DetectionHead, XlmeModel

# layers, dim, FFN, heads
LAYOUTS = {"tiny": (3, 192, 768, 4), "small": (6, 768, 3072, 12), "base": (12, 768, 3072, 12), "large": (24, 1024, 4096, 16),
           "xl": (48, 1536, 6144, 24)}  # fmt: skip
ARCHITECTURES = {"veco": "tiny small base large", "xlme": "tiny base large xl", "veco_nlu": "tiny small base large xl",
                 "veco_mt": "tiny small base large", "veco_mt_scaled": "large", "veco_transformer": "tiny small base large"}  # fmt: skip
TASK = SimpleNamespace(source_dictionary=make_dictionary())


def options_of(arch, **chosen):
    args = Namespace(**chosen)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


@pytest.mark.parametrize("arch", [f"{kind}_{size}" for kind, sizes in ARCHITECTURES.items() for size in sizes.split()])
def test_an_architecture_has_the_layout_of_its_size(arch):
    args = options_of(arch)
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    expected = LAYOUTS[arch.rpartition("_")[2]]
    assert tuple(getattr(args, f"encoder_{name}") for name in names) == expected
    if "mt" in arch or "transformer" in arch:
        assert tuple(getattr(args, f"decoder_{name}") for name in names) == expected
    assert str(SIZES["large"]) == "24 layers, 1024/4096, 16 heads"


@pytest.mark.parametrize("layers, chosen, expected", [(6, {}, 2), (2, {}, 1), (6, {"generator_layers": 5}, 5)])
def test_an_xlme_of_somebody_elses_size(layers, chosen, expected):
    args = Namespace(**chosen)
    xlme._architecture(args, Size(layers, 40, 5))
    assert (args.encoder_layers, args.encoder_embed_dim, args.generator_layers) == (layers, 40, expected)
    args = Namespace(**chosen)
    encoder_architecture(args, Size(layers, 40, 5))  # as docs/architecture.md says
    model = XlmeModel.build_model(args, TASK)
    assert [len(one.sentence_encoder.layers) for one in (model.encoder, model.generator)] == [layers, expected]


def test_options_that_are_not_given():
    expected = {"max_positions": 512, "table_dim": None, "autocast": "none", "init_from": None, "freeze_backbone_updates": 0,
                "checkpoint_activations": False, "relative_position_bias": False, "dropout": 0.1, "attention_dropout": 0.1,
                "activation_dropout": 0.0, "activation_fn": "gelu", "untie_weights_roberta": False}  # fmt: skip
    for arch, more in {"veco_tiny": {}, "xlme_tiny": {"generator_layers": 1, "generator_embeddings": "shared"},
                       "veco_nlu_tiny": {"attach_memory": False, "head_dropout": 0.1}}.items():  # fmt: skip
        args = vars(options_of(arch))
        assert {name: args[name] for name in (*expected, *more)} == {**expected, **more}
    assert options_of("veco_nlu_tiny", dropout=0.3).head_dropout == 0.3
    assert options_of("veco_nlu_tiny", head_dropout=0.3).dropout == 0.1
    args = vars(options_of("xlme_tiny", generator_layers=2, table_dim=9, autocast="bf16"))
    assert [args[name] for name in ("generator_layers", "table_dim", "autocast")] == [2, 9, "bf16"]


# What these models do with the options of RoBERTa that they do not refuse; their layers are fairseq's.
USED = """encoder_layers encoder_embed_dim encoder_ffn_embed_dim encoder_attention_heads activation_fn dropout attention_dropout
    activation_dropout max_positions encoder_layerdrop quant_noise_pq quant_noise_pq_block_size quant_noise_scalar
    checkpoint_activations layernorm_embedding min_params_to_wrap""".split()


def test_every_option_of_roberta_is_used_or_refused():
    """layernorm_embedding is always on, and min_params_to_wrap belongs to --ddp-backend fully_sharded, which is refused."""
    parser = argparse.ArgumentParser(add_help=False)
    RobertaModel.add_args(parser)
    defaults = {action.dest: action.default for action in parser._actions}
    assert defaults.keys() - {*USED, *WITHOUT_EFFECT} == set()
    assert all(defaults[name] in NOT_GIVEN for name in WITHOUT_EFFECT)


@pytest.mark.parametrize("model, arch", [(VecoModel, "veco_tiny"), (XlmeModel, "xlme_tiny"), (VecoNluModel, "veco_nlu_tiny")])
@pytest.mark.parametrize("option, value, message", [
    ("quant_noise_scalar", 0.5, "--quant-noise-scalar: fairseq's quantization does not know the embeddings here"),
    ("untie_weights_roberta", True, "--untie-weights-roberta: the LM head shares the token embeddings here"),
    ("encoder_normalize_before", True, "--encoder-normalize-before: the layers here end with their LayerNorms"),
    ("pooler_dropout", 0.25, "--pooler-dropout: there is no pooler here; what is fine-tuned .* has --head-dropout: leave it out"),
    ("pooler_activation_fn", "relu", "--pooler-activation-fn: there is no pooler here: leave it out"),
    ("encoder_layers_to_keep", "0,2", "--encoder-layers-to-keep: layers are not pruned here"),
    ("mha_heads_to_keep", 2, "--mha-heads-to-keep: nothing is pruned here"),
])  # fmt: skip
def test_what_roberta_has_and_these_models_do_not_is_refused(model, arch, option, value, message):
    """... and not taken without an effect."""
    with pytest.raises(UserError, match=message):
        model.build_model(architecture(arch, **{option: value}), SimpleNamespace(**vars(TASK), nlu_task="pair"))


def test_weights_start_from_the_modules_own_initialisation():
    """Uniform within dim^-0.5, so with a standard deviation of (3 dim)^-0.5; BERT's is 0.02 at any width."""
    torch.manual_seed(1)
    layer = VecoModel.build_model(architecture("veco_tiny"), TASK).encoder.sentence_encoder.layers[1]
    assert layer.fc1.weight.std().item() == pytest.approx((3 * 192) ** -0.5, rel=0.02)
    assert layer.fc1.weight.abs().max() < 192**-0.5


@pytest.mark.parametrize("activation, expected", [("gelu", F.gelu), ("relu", F.relu), ("tanh", torch.tanh)])
def test_a_layer_has_the_options_of_its_model(activation, expected):
    args = architecture("veco_tiny", activation_fn=activation, attention_dropout=0.25, activation_dropout=0.3, dropout=0.05,
                        relative_position_bias=True, encoder_attention_heads=6, quant_noise_pq=0.1)  # fmt: skip
    layer = VecoEncoder(args, make_dictionary()).sentence_encoder.layers[2]
    x = torch.linspace(-2, 2, 9)
    assert torch.equal(layer.activation_fn(x), expected(x)) and not layer.normalize_before
    assert [module.dropout_module.p for module in (layer.self_attn, layer.encoder_attn, layer)] == [0.25, 0.25, 0.05]
    assert layer.activation_dropout_module.p == 0.3
    assert layer.self_attn.q_proj._forward_pre_hooks and layer.encoder_attn.q_proj._forward_pre_hooks  # --quant-noise-pq
    assert layer.self_attn.num_heads == layer.encoder_attn.num_heads == 6 == len(layer.self_attn.relative_bias.w)


@pytest.mark.parametrize("table_dim", [1, 191])
def test_a_table_is_as_wide_as_the_option_says(table_dim):
    encoder = VecoEncoder(architecture("veco_tiny", table_dim=table_dim), make_dictionary())
    assert encoder.sentence_encoder.embed_tokens.weight.shape[1] == table_dim


def test_the_precision_of_autocast(make_model):
    cpu = torch.device("cpu")
    with torch.autocast("cpu", torch.float16):  # of fairseq's --amp
        with make_model().autocast(cpu):
            assert torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
        with make_model(autocast="bf16").autocast(cpu):
            assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    with make_model().autocast(cpu):
        assert not torch.is_autocast_enabled("cpu")


def test_freezing_tells_how_many_parameters_are_trained(make_model, caplog):
    """Of three layers, four projections of 16 x 16 with biases, and a LayerNorm."""
    model = make_model()
    count = sum(parameter.numel() for parameter in model.parameters())
    with caplog.at_level(logging.INFO):
        for frozen in (False, True, True, False):
            model.freeze_backbone(frozen)
    first, second = caplog.messages
    assert first == f"only cross-attention is trained: {3 * (4 * (16 * 16 + 16) + 2 * 16):,} parameters"
    assert second.startswith(f"all parameters are trained: {count:,} parameters; TLM joins")
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_prediction_of_a_concatenation_is_not_of_x(make_model):
    corrupted, targets = pair_batch()
    found = make_model()(corrupted, targets, *(torch.cat(list(sides), 1) for sides in (corrupted, targets)))
    assert not found["tlm"].from_x.any() and len(found["tlm"].from_x) == targets.ne(1).sum()
    for branch in "hs":
        assert found[branch].from_x.tolist() == [True] * int(targets[0].ne(1).sum()) + [False] * int(targets[1].ne(1).sum())
    assert list(make_model()(corrupted, targets, plug_in=False)) == ["h"]


@torch.no_grad()
def test_the_detection_head_by_hand():
    """The first number of a state is below 0, where relu ends and tanh does not."""
    for name, function in (("relu", F.relu), ("tanh", torch.tanh)):
        head, states = DetectionHead(2, name), torch.tensor([[[-1.0, 2.0]]])
        head.dense.weight.copy_(torch.eye(2))
        head.dense.bias.fill_(0.5)
        head.out_proj.weight.copy_(torch.tensor([[3.0, 5.0]]))
        head.out_proj.bias.fill_(7.0)
        torch.testing.assert_close(head(states), 3 * function(torch.tensor([[-0.5]])) + 5 * function(torch.tensor([[2.5]])) + 7)
    model = XlmeModel.build_model(architecture("xlme_tiny", activation_fn="tanh"), TASK)
    assert model.detection_head.activation_fn is torch.tanh


# Understanding


def test_the_heads_of_understanding():
    """An answer has a first and a last token, however many labels there are."""
    assert make_nlu("span", 5).head.out_proj.out_features == 2
    for task in ("classification", "tagging"):
        model = make_nlu(task, 5, plug_in=True, head_dropout=0.35)
        assert model.head.out_proj.out_features == 5 and model.head.dropout.p == 0.35
        assert task == "tagging" or model.head.dense.weight.shape == (16, 32)  # [H; S] becomes as wide as the model
    assert list(model.head._modules) == ["dropout", "out_proj"]
    assert not hasattr(model.encoder, "lm_head") and model.head.out_proj.in_features == 32


def test_logits_of_understanding_are_in_fp32():
    alone = torch.full((3,), -1)
    expected, found = (make_nlu(autocast=precision)(TOKENS, alone) for precision in ("none", "bf16"))
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0.1)


def test_a_fine_tuned_model_without_its_head_is_not_taken():
    """Unlike a pre-trained one: a damaged checkpoint would get a random head."""
    state = {name: tensor for name, tensor in make_nlu().state_dict().items() if not name.startswith("head.")}
    with pytest.raises(RuntimeError, match='Missing key.* "head.dense.weight"'):
        make_nlu().load_state_dict(state)


# Translation

SHAPES = {"decoder_layers": 2, "encoder_layers": 3, "encoder_embed_dim": 8, "decoder_embed_dim": 8,
          "encoder_attention_heads": 2, "decoder_attention_heads": 2}  # fmt: skip


@pytest.mark.parametrize("option, expected", [(None, []), ("", []), ("2,0", [2, 0]), ("1,1", [1, 1])])
def test_tied_layers(option, expected):
    assert tied_layers(Namespace(**SHAPES, tie_self_attention=option)) == expected
    assert tied_layers(Namespace(**SHAPES)) == []


@pytest.mark.parametrize("option, shapes, message", [
    ("-1,0", {}, "-1,0: give encoder layers such as 3,4,5"), ("0,", {}, "0,: give encoder layers"),
    ("0,1,2", {}, "0,1,2: 3 layers for --decoder-layers 2"), ("3,0", {}, "3,0: the encoder has layers 0 to 2"),
    ("0,1", {"decoder_embed_dim": 4}, "encoder and decoder differ"), ("0,1", {"encoder_attention_heads": 4}, "encoder and decoder differ"),
])  # fmt: skip
def test_layers_that_cannot_be_tied(option, shapes, message):
    with pytest.raises(UserError, match=f"--tie-self-attention.*{message}"):
        tied_layers(Namespace(**{**SHAPES, **shapes}, tie_self_attention=option))


def test_no_model_offers_those_of_fairseq_by_name():
    """They are of other classes: RoBERTa's, and translators."""
    assert VecoModel.hub_models() == XlmeModel.hub_models() == VecoTransformer.hub_models() == {}
