# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The models of ``transformers`` that train beside ours: criterions for them, as fairseq's trainer calls these."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from fairseq.data import Dictionary
from torch import nn

from veco_fairseq.checkpoints.huggingface import import_transformers


def _xlmr_config(options: Namespace, symbols: Dictionary, **more: Any):
    """Return the configuration of an XLM-R with a VECO encoder's sizes."""
    return import_transformers().XLMRobertaConfig(
        vocab_size=len(symbols), hidden_size=options.encoder_embed_dim, intermediate_size=options.encoder_ffn_embed_dim,
        num_hidden_layers=options.encoder_layers, num_attention_heads=options.encoder_attention_heads,
        max_position_embeddings=options.max_positions + symbols.pad() + 1, type_vocab_size=1, pad_token_id=symbols.pad(),
        hidden_dropout_prob=options.dropout, attention_probs_dropout_prob=options.attention_dropout, **more,
    )  # fmt: skip


def masked_lm(options: Namespace, symbols: Dictionary) -> tuple[nn.Module, Callable]:
    """Return ``XLMRobertaForMaskedLM`` of a VECO encoder's sizes, and its criterion.

    Its head multiplies all rows. The products of those that are not masked are reported as "operations in vain".
    """
    config = _xlmr_config(options, symbols)

    def criterion(model: nn.Module, batch: dict[str, Any]):
        target = batch["target"]
        masked = int(target.ne(symbols.pad()).sum())
        labels = target.masked_fill(target.eq(symbols.pad()), -100)
        loss = model(input_ids=batch["net_input"]["src_tokens"], labels=labels).loss * masked
        of_a_row = config.hidden_size * (config.hidden_size + len(symbols))
        return loss, masked, {"operations in vain": 6 * (target.numel() - masked) * of_a_row}

    return import_transformers().XLMRobertaForMaskedLM(config), criterion


def classification(options: Namespace, symbols: Dictionary, classes: int) -> tuple[nn.Module, Callable]:
    """Return ``XLMRobertaForSequenceClassification`` of a VECO encoder's sizes, and its criterion."""

    def criterion(model: nn.Module, batch: dict[str, Any]):
        target = batch["target"]
        logits = model(input_ids=batch["net_input"]["tokens"]).logits
        return F.cross_entropy(logits.float(), target, reduction="sum"), len(target), {}

    config = _xlmr_config(options, symbols, num_labels=classes)
    return import_transformers().XLMRobertaForSequenceClassification(config), criterion


def translation(options: Namespace, symbols: Dictionary, smoothing: float) -> tuple[nn.Module, Callable]:
    """Return ``BartForConditionalGeneration`` of a translation model's sizes, and its label-smoothed criterion."""
    transformers = import_transformers()
    config = transformers.BartConfig(
        vocab_size=len(symbols), d_model=options.encoder_embed_dim, max_position_embeddings=options.max_source_positions,
        encoder_layers=options.encoder_layers, encoder_ffn_dim=options.encoder_ffn_embed_dim,
        encoder_attention_heads=options.encoder_attention_heads, decoder_layers=options.decoder_layers,
        decoder_ffn_dim=options.decoder_ffn_embed_dim, decoder_attention_heads=options.decoder_attention_heads,
        dropout=options.dropout, attention_dropout=options.attention_dropout, activation_function=options.activation_fn,
        pad_token_id=symbols.pad(), eos_token_id=symbols.eos(), decoder_start_token_id=symbols.eos(),
    )  # fmt: skip

    def criterion(model: nn.Module, batch: dict[str, Any]):
        given = batch["net_input"]
        logits = model(input_ids=given["src_tokens"], decoder_input_ids=given["prev_output_tokens"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch["target"].flatten(), label_smoothing=smoothing,
                               reduction="sum", ignore_index=symbols.pad())  # fmt: skip
        return loss, batch["ntokens"], {}

    return transformers.BartForConditionalGeneration(config), criterion
