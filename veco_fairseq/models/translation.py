# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translation models in the shape of a VECO encoder.

``--arch veco_mt_{tiny,small,base,large}`` is fairseq's own ``transformer`` with other defaults. So ``veco convert`` writes
an ordinary fairseq translation model. fairseq's programs read it with ``--user-dir veco_fairseq``, by which they know its name.
``--arch veco_mt_scaled_large`` is for the authors' released model, which multiplies its token embeddings by the square root
of their width.
``--arch veco_transformer_{tiny,small,base,large}`` adds parts that fairseq's model has no place for.
"""

from argparse import ArgumentParser

from fairseq.models import register_model
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.models.transformer import TransformerDecoder, TransformerModel, base_architecture

from veco_fairseq.errors import UserError
from veco_fairseq.models.base import SIZES, Size, register, set_defaults, set_encoder_size


class VecoTransformerDecoder(TransformerDecoder):
    """A decoder whose output projection can be pre-training's whole LM head."""

    def build_output_projection(self, args, dictionary, embed_tokens) -> None:
        """Build fairseq's projection; with ``--keep-lm-head``, put dense layer, activation and LayerNorm before it.

        Raises:
            UserError: with ``--keep-lm-head``, there is an adaptive softmax in the projection's place.
        """
        super().build_output_projection(args, dictionary, embed_tokens)
        if getattr(self.args, "keep_lm_head", False):
            if self.output_projection is None:
                raise UserError("--adaptive-softmax-cutoff: has no place for the LM head: leave it out, or --keep-lm-head")
            weight = self.output_projection.weight
            head = RobertaLMHead(self.output_embed_dim, len(dictionary), self.args.activation_fn, weight)
            self.register_module("output_projection", head)


@register_model("veco_transformer")
class VecoTransformer(TransformerModel):
    """A ``transformer`` of fairseq with ``--keep-lm-head`` and ``--tie-self-attention``.

    Raises:
        UserError: the number of layers to tie differs from the decoder's, or a layer does not exist or has another shape.
    """

    def __init__(self, args, encoder, decoder):
        super().__init__(args, encoder, decoder)
        # children, since --decoder-layerdrop leaves layers out of a loop over the list
        for layer, number in zip(decoder.layers.children(), tied_layers(args)):
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


def _architecture(args, size: Size) -> None:
    """Set the layout of pre-training on both sides, where the command line has not chosen otherwise.

    Args:
        args: the options. fairseq's parser leaves out model options that were not given, also the two
            ``max_*_positions``, which the translation task has, too. So the values here are the defaults, and the task
            gets the same positions as the model.
        size: of the encoder, and of the decoder without ``--decoder-layers``.
    """
    set_encoder_size(args, size)
    set_defaults(args, decoder_layers=args.encoder_layers, decoder_attention_heads=args.encoder_attention_heads)
    set_defaults(args, encoder_learned_pos=True, decoder_learned_pos=True, layernorm_embedding=True, no_scale_embedding=True)
    set_defaults(args, max_source_positions=512, max_target_positions=512)
    set_defaults(args, share_all_embeddings=True, share_decoder_input_output_embed=True)
    set_defaults(args, activation_fn="gelu", attention_dropout=0.1)
    # fairseq's defaults do the rest: dropout 0.1, post-LayerNorm, a decoder as wide as the encoder.
    base_architecture(args)


def _scaled_architecture(args, size: Size) -> None:
    """Set the same layout, with token embeddings that are multiplied by the square root of their width."""
    set_defaults(args, no_scale_embedding=False)
    _architecture(args, size)


for name in ("tiny", "small", "base", "large"):
    text = f"{SIZES[name]}: fine-tunes a converted ``veco_{name}``."
    register("transformer", f"veco_mt_{name}", _architecture, text)
    register("veco_transformer", f"veco_transformer_{name}", _architecture, text)
register(
    "transformer", "veco_mt_scaled_large", _scaled_architecture,
    f"{SIZES['large']}: fine-tunes what ``veco import`` has made of the authors' model, whose token embeddings are multiplied by the "
    "square root of their width.",
)  # fmt: skip
