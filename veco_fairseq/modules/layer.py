# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""One VECO layer: self-attention, a cross-attention that is plugged in or out, and the FFN."""

import copy

from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.modules.attention import attend
from veco_fairseq.modules.relative_bias import BiasedSelfAttention
from veco_fairseq.options.flags import flag

# Options of fairseq's decoder layer that give it more parameters.
NORMFORMER = ("scale_attn", "scale_fc", "scale_heads", "scale_resids")


class VecoLayer(TransformerDecoderLayerBase):
    """The layer of VECO (ACL 2021, section 2.2), post-LayerNorm::

        a = LN_self(s + SelfAttn(s))
        c = LN_cross(a + CrossAttn(q=a, kv=memory))     plugged in;  c = a when plugged out
        s' = LN_ffn(c + FFN(c))

    The modules have the names of fairseq's decoder layer (``self_attn``, ``encoder_attn``, ...). So the tensors of an XLM-R
    layer fit this one by name, and its tensors fit a translation decoder's layer. Nothing here is causal or incremental,
    so PyTorch's kernels compute both attentions, except in training on a CPU (:func:`veco_fairseq.modules.attention.unfused`).

    Args:
        cfg: a :class:`TransformerConfig`; only the encoder's sizes are used, since VECO is one encoder.
        cross_attention: False for a layer without cross-attention, as in XLM-R.

    Raises:
        UserError: an architecture asks for one of :data:`NORMFORMER`, which no :meth:`forward` of somebody's own computes.
    """

    def __init__(self, cfg: TransformerConfig, cross_attention: bool = True):
        cfg = copy.copy(cfg)
        cfg.decoder = copy.copy(cfg.decoder)
        for name in ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before", "xformers_att_config"):
            setattr(cfg.decoder, name, getattr(cfg.encoder, name))
        if unused := [name for name in NORMFORMER if getattr(cfg, name, False) and type(self).forward is VecoLayer.forward]:
            raise UserError(f"{flag(unused[0])}: VECO's layers have no parts of NormFormer: leave it out")
        super().__init__(cfg, no_encoder_attn=not cross_attention)

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build the self-attention of fairseq's decoder layer, or XLM-E's with ``--relative-position-bias``."""
        if not getattr(cfg, "relative_position_bias", False):
            return super().build_self_attention(embed_dim, cfg, add_bias_kv, add_zero_attn)
        return BiasedSelfAttention(
            embed_dim, cfg.decoder.attention_heads, dropout=cfg.attention_dropout, q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )  # fmt: skip

    def forward(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        attention: list[Tensor] | None = None,
    ) -> Tensor:
        """Compute equations 2-9 of the paper, then the FFN.

        Args:
            x: the states of the layer below, (length, batch, dim).
            padding_mask: (batch, length), true where ``x`` is padding.
            memory: H^L of the other sequence, (memory length, batch, dim); without it the cross-attention is plugged out.
            memory_padding_mask: (batch, memory length), true where ``memory`` is padding.
            attention: a list that receives the cross-attention's weights, (batch, length, memory length),
                the mean over the heads.

        Returns:
            (length, batch, dim).
        """
        h, _ = attend(self.self_attn, x, x, padding_mask)
        x = self.self_attn_layer_norm(self.residual_connection(self.dropout_module(h), x))
        if memory is not None:
            h, weights = attend(self.encoder_attn, x, memory, memory_padding_mask, need_weights=attention is not None)
            if attention is not None and weights is not None:
                attention.append(weights)
            x = self.encoder_attn_layer_norm(self.residual_connection(self.dropout_module(h), x))
        h = self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))
        return self.final_layer_norm(self.residual_connection(self.dropout_module(h), x))
