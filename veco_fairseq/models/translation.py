# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--arch veco_mt_{tiny,small,base,large}``: fairseq's stock ``transformer`` in the shape of a VECO encoder.

Nothing but defaults stands here, so that what ``scripts/convert_to_seq2seq.py`` writes is an ordinary fairseq
translation model for every tool that takes one.
"""

from fairseq.models import register_model_architecture
from fairseq.models.transformer import base_architecture


def _architecture(args, layers: int, dim: int, heads: int) -> None:
    """The layout of pre-training on both sides, where the command line has not chosen otherwise.

    Args:
        args: the options; fairseq's parser leaves out those of the model that were not given, the two
            ``max_*_positions`` among them, although the translation task knows them too. What is set here is
            therefore the default, and the task gets the same positions as the model.
        layers: of the encoder, and of the decoder unless ``--decoder-layers`` says otherwise.
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
    # The stock defaults are the rest: dropout 0.1, post-LayerNorm, the decoder's width that of the encoder.
    base_architecture(args)


@register_model_architecture("transformer", "veco_mt_tiny")
def veco_mt_tiny(args) -> None:
    """3 layers, 192/768, 4 heads: fine-tunes a converted ``veco_tiny``."""
    _architecture(args, layers=3, dim=192, heads=4)


@register_model_architecture("transformer", "veco_mt_small")
def veco_mt_small(args) -> None:
    """6 layers, 768/3072, 12 heads: fine-tunes a converted ``veco_small``."""
    _architecture(args, layers=6, dim=768, heads=12)


@register_model_architecture("transformer", "veco_mt_base")
def veco_mt_base(args) -> None:
    """12 layers, 768/3072, 12 heads: fine-tunes a converted ``veco_base``."""
    _architecture(args, layers=12, dim=768, heads=12)


@register_model_architecture("transformer", "veco_mt_large")
def veco_mt_large(args) -> None:
    """24 layers, 1024/4096, 16 heads: fine-tunes a converted ``veco_large``."""
    _architecture(args, layers=24, dim=1024, heads=16)
