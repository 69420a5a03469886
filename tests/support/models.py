# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Weights, batches and gradients for the tests of models."""

from argparse import Namespace

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase

PAD = 1


def all_random(model):
    """A model whose weights are all random (biases and LayerNorms too), not in training mode."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def tokens(batch: int, length: int, seed: int = 0, shortest: int = 3) -> torch.Tensor:
    """Random sequences <s> ... </s>, of different lengths, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 44, (batch, length), generator=generator)
    ids[:, 0] = 0
    for row in range(batch):
        end = length - 1 - row % (length - shortest + 1)
        ids[row, end], ids[row, end + 1 :] = 2, PAD
    return ids


def masked(ids: torch.Tensor, seed: int = 0):
    """(corrupted, targets): every third ordinary token is masked."""
    chosen = (torch.arange(ids.size(-1)) % 3 == 1) & (ids >= 4)
    return ids.masked_fill(chosen, 44), torch.where(chosen, ids, PAD)


def by_decoder_layers(model, x, y, memory):
    """S of ``x`` by fairseq's decoder layers with the model's weights, in its mode (training or not)."""
    args = vars(model.args)
    decoder_args = {k.replace("encoder_", "decoder_"): v for k, v in args.items() if k.startswith("encoder_")}
    cfg = TransformerConfig.from_namespace(Namespace(**{**args, **decoder_args}))
    states, _ = model.encoder.sentence_encoder.forward_embedding(x)
    states = (states * x.ne(PAD).unsqueeze(-1)).transpose(0, 1)
    for ours in model.encoder.sentence_encoder.layers:
        layer = TransformerDecoderLayerBase(cfg).train(model.training)
        layer.load_state_dict(ours.state_dict(), strict=True)
        states, _, _ = layer(states, memory.transpose(0, 1), encoder_padding_mask=y.eq(PAD), self_attn_padding_mask=x.eq(PAD))
    return states.transpose(0, 1)


def pair_batch():
    both = torch.stack([tokens(3, 10, seed=3), tokens(3, 10, seed=4, shortest=5)])
    return masked(both)


def gradients(model):
    """Those that there are: the branches share one pass of the LM head, which gives a branch without a loss zeros."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
