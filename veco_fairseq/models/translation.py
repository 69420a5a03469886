# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translation models in the shape of a VECO encoder.

``--arch veco_mt_{tiny,small,base,large}`` is fairseq's own ``transformer`` with other defaults. So ``veco convert`` writes
an ordinary fairseq translation model, which all tools for such models take.
``--arch veco_transformer_{tiny,small,base,large}`` adds parts that fairseq's model has no place for.
"""

from argparse import ArgumentParser

from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.models.transformer import TransformerDecoder, TransformerModel, base_architecture

from veco_fairseq.errors import UserError


class VecoTransformerDecoder(TransformerDecoder):
    """A decoder whose output projection can be pre-training's whole LM head."""

    def build_output_projection(self, args, dictionary, embed_tokens) -> None:
        """Build fairseq's projection; with ``--keep-lm-head``, put dense layer, activation and LayerNorm before it."""
        super().build_output_projection(args, dictionary, embed_tokens)
        if getattr(self.args, "keep_lm_head", False):
            weight = self.output_projection.weight
            self.output_projection = RobertaLMHead(self.output_embed_dim, len(dictionary), self.args.activation_fn, weight)


@register_model("veco_transformer")
class VecoTransformer(TransformerModel):
    """A ``transformer`` of fairseq with ``--keep-lm-head`` and ``--tie-self-attention``.

    Raises:
        UserError: the number of layers to tie differs from the decoder's, or a layer does not exist or has another shape.
    """

    def __init__(self, args, encoder, decoder):
        super().__init__(args, encoder, decoder)
        for layer, number in zip(decoder.layers, tied_layers(args)):
            # Only the projections are shared: a module's name finds its cached states, and layers can share one encoder layer.
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                setattr(layer.self_attn, name, getattr(encoder.layers[number].self_attn, name))

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        return {}

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add the transformer's options and two more."""
        super().add_args(parser)
        parser.add_argument(
            "--keep-lm-head",
            action="store_true",
            help="end the decoder in pre-training's LM head, with its dense layer, LayerNorm and bias",
        )
        parser.add_argument(
            "--tie-self-attention",
            metavar="I,J,...",
            help="encoder layers, counted from 0, whose self-attention the decoder layers share (VECO, section 6.1)",
        )

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens) -> VecoTransformerDecoder:
        return VecoTransformerDecoder(args, tgt_dict, embed_tokens, no_encoder_attn=args.no_cross_attention)


def tied_layers(args) -> list[int]:
    """Return the encoder layer of every decoder layer's self-attention, or an empty list."""
    option = getattr(args, "tie_self_attention", None)
    if not option:
        return []
    if not all(number.isdecimal() for number in option.split(",")):
        raise UserError(f"--tie-self-attention {option}: give encoder layers such as 3,4,5")
    numbers = [int(number) for number in option.split(",")]
    if len(numbers) != args.decoder_layers:
        raise UserError(f"--tie-self-attention {option}: {len(numbers)} layers for --decoder-layers {args.decoder_layers}")
    if max(numbers) >= args.encoder_layers:
        raise UserError(f"--tie-self-attention {option}: the encoder has layers 0 to {args.encoder_layers - 1}")
    if any(getattr(args, f"encoder_{name}") != getattr(args, f"decoder_{name}") for name in ("embed_dim", "attention_heads")):
        raise UserError("--tie-self-attention: encoder and decoder differ in --*-embed-dim or --*-attention-heads")
    return numbers


def _architecture(args, layers: int, dim: int, heads: int) -> None:
    """Set the layout of pre-training on both sides, where the command line has not chosen otherwise.

    Args:
        args: the options. fairseq's parser leaves out model options that were not given, also the two
            ``max_*_positions``, which the translation task has, too. So the values here are the defaults, and the task
            gets the same positions as the model.
        layers: of the encoder, and of the decoder without ``--decoder-layers``.
        dim: of the embeddings and states; the FFN is four times as wide.
        heads: of every attention.
    """
    args.encoder_layers = getattr(args, "encoder_layers", layers)
    args.encoder_embed_dim = getattr(args, "encoder_embed_dim", dim)
    args.encoder_ffn_embed_dim = getattr(args, "encoder_ffn_embed_dim", 4 * dim)
    args.encoder_attention_heads = getattr(args, "encoder_attention_heads", heads)
    args.decoder_layers = getattr(args, "decoder_layers", args.encoder_layers)
    args.decoder_attention_heads = getattr(args, "decoder_attention_heads", args.encoder_attention_heads)
    args.encoder_learned_pos = getattr(args, "encoder_learned_pos", True)
    args.decoder_learned_pos = getattr(args, "decoder_learned_pos", True)
    args.max_source_positions = getattr(args, "max_source_positions", 512)
    args.max_target_positions = getattr(args, "max_target_positions", 512)
    args.layernorm_embedding = getattr(args, "layernorm_embedding", True)
    args.no_scale_embedding = getattr(args, "no_scale_embedding", True)
    args.share_all_embeddings = getattr(args, "share_all_embeddings", True)
    args.share_decoder_input_output_embed = getattr(args, "share_decoder_input_output_embed", True)
    args.activation_fn = getattr(args, "activation_fn", "gelu")
    args.attention_dropout = getattr(args, "attention_dropout", 0.1)
    # fairseq's defaults do the rest: dropout 0.1, post-LayerNorm, a decoder as wide as the encoder.
    base_architecture(args)


@register_model_architecture("transformer", "veco_mt_tiny")
@register_model_architecture("veco_transformer", "veco_transformer_tiny")
def veco_mt_tiny(args) -> None:
    """3 layers, 192/768, 4 heads: fine-tunes a converted ``veco_tiny``."""
    _architecture(args, layers=3, dim=192, heads=4)


@register_model_architecture("transformer", "veco_mt_small")
@register_model_architecture("veco_transformer", "veco_transformer_small")
def veco_mt_small(args) -> None:
    """6 layers, 768/3072, 12 heads: fine-tunes a converted ``veco_small``."""
    _architecture(args, layers=6, dim=768, heads=12)


@register_model_architecture("transformer", "veco_mt_base")
@register_model_architecture("veco_transformer", "veco_transformer_base")
def veco_mt_base(args) -> None:
    """12 layers, 768/3072, 12 heads: fine-tunes a converted ``veco_base``."""
    _architecture(args, layers=12, dim=768, heads=12)


@register_model_architecture("transformer", "veco_mt_large")
@register_model_architecture("veco_transformer", "veco_transformer_large")
def veco_mt_large(args) -> None:
    """24 layers, 1024/4096, 16 heads: fine-tunes a converted ``veco_large``."""
    _architecture(args, layers=24, dim=1024, heads=16)
