# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The stack of VECO layers: XLM-R's encoder with a cross-attention that a memory plugs in."""

from functools import partial

import torch
from fairseq.models.transformer import TransformerConfig, TransformerEncoder
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from veco_fairseq.errors import UserError
from veco_fairseq.modules.device import on_cpu
from veco_fairseq.modules.layer import VecoLayer


class VecoTransformerEncoder(TransformerEncoder):
    """A Transformer encoder of fairseq with :class:`VecoLayer` as its layers.

    Plugged out it is XLM-R, with the same parameters and names.
    """

    cross_attention = True

    def __init__(self, args, dictionary, embed_tokens):
        super().__init__(args, dictionary, embed_tokens)
        self.checkpoint_activations = args.checkpoint_activations
        if args.relative_position_bias:  # as in T5, all layers share one table of distances; each has its own gates
            # children, since --encoder-layerdrop leaves layers out of a loop over the list
            biases = [layer.self_attn.relative_bias for layer in self.layers.children()]
            for bias in biases:
                bias.d = biases[0].d

    def build_encoder_layer(self, args) -> VecoLayer:
        return VecoLayer(TransformerConfig.from_namespace(args), self.cross_attention)

    def forward(
        self,
        tokens: Tensor,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        attention: list[Tensor] | None = None,
        token_embeddings: Tensor | None = None,
    ) -> Tensor:
        """Return H(tokens) without a memory, and S(tokens | memory) with one (VECO, section 2.2).

        Args:
            tokens: (batch, length), padded on the right.
            memory: H^L of the other sequences, (batch, memory length, dim). Every layer attends to this one memory
                through its own key and value projections.
            memory_padding_mask: (batch, memory length), true where ``memory`` is padding.
            attention: a list that receives each layer's cross-attention weights.
            token_embeddings: of ``tokens``, (batch, length, dim), if they have been looked up already.

        Returns:
            The last layer's states, (batch, length, dim).

        Raises:
            UserError: there is a memory, and no cross-attention that could look at it.
        """
        if memory is not None and not self.cross_attention:
            raise UserError(
                "the model has no cross-attention to plug in, as XLM-E and what was fine-tuned with --plug out: give another"
            )
        padding_mask = tokens.eq(self.padding_idx)
        x, _ = self.forward_embedding(tokens, token_embeddings)
        x = (x * padding_mask.logical_not().unsqueeze(-1).type_as(x)).transpose(0, 1)
        if torch.is_autocast_enabled("cpu") and on_cpu(x):
            # The states between the layers stay in bf16, as the products are: otherwise each product casts them.
            x = x.to(torch.get_autocast_dtype("cpu"))
        if memory is not None:
            if torch.is_autocast_enabled(memory.device.type) and not memory.requires_grad:
                memory = memory.to(torch.get_autocast_dtype(memory.device.type))
            # Cast and rearranged once, and not for all layers' keys and values.
            memory = memory.transpose(0, 1).contiguous()
        for layer in self.layers:
            if self.checkpoint_activations and torch.is_grad_enabled():
                layer = partial(checkpoint, layer, use_reentrant=False)
            x = layer(x, padding_mask, memory, memory_padding_mask, attention)
        return x.transpose(0, 1)

    def upgrade_state_dict_named(self, state_dict, name: str):
        """Do nothing: there is no older layout, and a decoder's layers have no method for it."""
        return state_dict


class UnpluggedTransformerEncoder(VecoTransformerEncoder):
    """XLM-R's encoder: the same stack with layers that have no cross-attention."""

    cross_attention = False
