# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The presets veco_mt_*: fairseq's stock transformer in VECO's shape."""

from argparse import Namespace
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, build_model
from fairseq.models.transformer import TransformerModel
from torch.utils._python_dispatch import TorchDispatchMode

from veco_fairseq.errors import UserError
from veco_fairseq.models.veco import VecoEncoder

SIZES = {  # layers, dim, FFN, heads
    "tiny": (3, 192, 768, 4),
    "small": (6, 768, 3072, 12),
    "base": (12, 768, 3072, 12),
    "large": (24, 1024, 4096, 16),
}


def parse(*arguments):
    parser = options.get_training_parser("translation")
    return options.parse_args_and_arch(parser, ["data", "--task", "translation", *arguments])


def build(args):
    words = make_dictionary()
    with torch.device("meta"):
        return build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words))


@pytest.mark.parametrize("size", SIZES)
def test_preset_has_the_size_of_its_pretraining_model(size):
    layers, dim, ffn, heads = SIZES[size]
    args = parse("--arch", f"veco_mt_{size}")
    for side in ("encoder", "decoder"):
        names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
        values = [getattr(args, f"{side}_{name}") for name in names]
        assert values == [layers, dim, ffn, heads]
        assert getattr(args, f"{side}_learned_pos") and not getattr(args, f"{side}_normalize_before")
    assert args.layernorm_embedding and args.no_scale_embedding and args.share_all_embeddings
    assert (args.activation_fn, args.dropout, args.attention_dropout) == ("gelu", 0.1, 0.1)


def test_scaled_preset_is_the_same_but_for_its_embeddings():
    usual, scaled = (vars(parse("--arch", f"veco_mt_{name}large")) for name in ("", "scaled_"))
    assert scaled == {**usual, "arch": "veco_mt_scaled_large", "no_scale_embedding": False}
    assert (
        build(parse("--arch", "veco_mt_scaled_large", "--encoder-layers", "1", "--decoder-layers", "1")).decoder.embed_scale == 32
    )


@pytest.mark.parametrize("size", SIZES)
def test_encoder_takes_the_unplugged_pretraining_model(size):
    """Every shape of pre-training's encoder without cross-attention, 514 positions included."""
    translation = build(parse("--arch", f"veco_mt_{size}")).encoder.state_dict()
    args = Namespace()
    ARCH_CONFIG_REGISTRY[f"veco_{size}"](args)
    with torch.device("meta"):
        veco = VecoEncoder(args, make_dictionary()).sentence_encoder
    unplugged = {name: tensor.shape for name, tensor in veco.state_dict().items() if "encoder_attn" not in name}
    assert {name: tensor.shape for name, tensor in translation.items()} == unplugged
    assert unplugged["embed_positions.weight"] == (514, SIZES[size][1])


def test_result_is_a_stock_model_with_one_embedding_table():
    model = build(parse("--arch", "veco_mt_tiny", "--decoder-layers", "2"))
    assert type(model) is TransformerModel and ARCH_MODEL_REGISTRY["veco_mt_tiny"] is TransformerModel
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 2)
    assert model.encoder.embed_tokens is model.decoder.embed_tokens
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight
    for side in (model.encoder, model.decoder):
        assert side.embed_scale == 1 and side.embed_positions.weight.shape == (514, 192)
        assert side.max_positions() == 512 and side.layernorm_embedding is not None and side.layer_norm is None


def test_positions_default_to_512_for_model_and_task():
    args = parse("--arch", "veco_mt_tiny")
    assert (args.max_source_positions, args.max_target_positions) == (512, 512)
    task = convert_namespace_to_omegaconf(args).task
    assert (task.max_source_positions, task.max_target_positions) == (512, 512)


def test_command_line_wins():
    given = {
        "encoder_layers": 2,
        "encoder_embed_dim": 32,
        "encoder_ffn_embed_dim": 48,
        "encoder_attention_heads": 2,
        "decoder_layers": 1,
        "decoder_ffn_embed_dim": 40,
        "decoder_attention_heads": 8,
        "activation_fn": "relu",
        "dropout": 0.3,
        "attention_dropout": 0.0,
        "max_source_positions": 1024,
        "max_target_positions": 77,
    }
    arguments = [part for name, value in given.items() for part in ("--" + name.replace("_", "-"), str(value))]
    args = parse("--arch", "veco_mt_large", *arguments)
    assert {name: getattr(args, name) for name in given} == given
    task = convert_namespace_to_omegaconf(args).task
    assert (task.max_source_positions, task.max_target_positions) == (1024, 77)
    model = build(args)
    assert model.encoder.embed_positions.weight.shape == (1026, 32)
    assert model.decoder.embed_positions.weight.shape == (79, 32)


def test_a_decoder_can_be_without_cross_attention():
    for arch in ("veco_mt_tiny", "veco_transformer_tiny"):
        assert build(parse("--arch", arch)).decoder.layers[0].encoder_attn is not None
        assert build(parse("--arch", arch, "--no-cross-attention")).decoder.layers[0].encoder_attn is None


def test_decoder_is_as_deep_as_the_encoder_unless_said_otherwise():
    assert parse("--arch", "veco_mt_base", "--encoder-layers", "5").decoder_layers == 5


@pytest.mark.parametrize("arch", ["veco_mt_tiny", "transformer_iwslt_de_en"])
def test_autocast_rounds_an_attentions_inputs_once_and_gelu_copies_nothing(arch):
    """In stock fairseq each of the projections rounds them, and gelu is computed on a copy in fp32, of which backward keeps one."""
    torch.manual_seed(5)
    sizes = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 12 --decoder-embed-dim 12 --encoder-ffn-embed-dim 20 "
    sizes += "--decoder-ffn-embed-dim 20 --encoder-attention-heads 2 --decoder-attention-heads 2"
    words = make_dictionary()
    given = parse("--arch", arch, "--activation-fn", "gelu", "--share-all-embeddings", *sizes.split())
    model = build_model(given, SimpleNamespace(source_dictionary=words, target_dictionary=words)).train()
    model.load_state_dict({name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()})
    tokens = torch.randint(words.nspecial, len(words), (2, 7))
    rounded, of_gelu = Counter(), set()

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if operator is torch.ops.aten._to_copy.default and kwargs["dtype"] == torch.bfloat16:
                rounded[tuple(args[0].shape)] += 1
            elif operator in (torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default):
                of_gelu.add(args[0].dtype)
            return operator(*args, **(kwargs or {}))

    with Recorder():
        with torch.autocast("cpu", torch.bfloat16):
            logits, _ = model(tokens, torch.tensor([7, 7]), tokens)
        in_forward = dict(rounded)
        logits.float().sum().backward()
    # The encoder's states before attention and FFN; the decoder's before self-attention, cross-attention, FFN and projection, and
    # the encoder's once more, as keys and values. The projection's are (batch, length, dim).
    assert in_forward[7, 2, 12] == 2 + 3 + 1 and in_forward[2, 7, 12] == 1 and of_gelu == {torch.bfloat16}


def test_an_adaptive_softmax_has_no_lm_head():
    with pytest.raises(UserError, match="^--adaptive-softmax-cutoff: has no place for the LM head"):
        build(parse("--arch", "veco_transformer_tiny", "--keep-lm-head", "--adaptive-softmax-cutoff", "5"))


@pytest.mark.parametrize("arch", ["veco_mt_tiny", "veco_transformer_tiny", "transformer_tiny"])
def test_a_checkpoint_with_tied_embeddings_and_an_adaptive_softmax_is_loaded(arch):
    """fairseq adds the projection that such a model does not have."""
    args = parse("--arch", arch, "--share-decoder-input-output-embed", "--adaptive-softmax-cutoff", "10,20")
    state = build(args).state_dict()
    assert not any("output_projection" in name for name in state)
    build(args).load_state_dict(state, strict=True, model_cfg=args)
