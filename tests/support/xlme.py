# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Small models of XLM-E and their criterion."""

from argparse import Namespace
from types import SimpleNamespace

import torch
from conftest import make_dictionary
from support.models import all_random

from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterion, ReplacedTokenCriterionConfig
from veco_fairseq.models.xlme import XlmeModel


def make_xlme(dictionary=None, dropout=0.1, **options) -> XlmeModel:
    """A small model with random weights, not in training mode."""
    torch.manual_seed(1)
    args = Namespace(
        encoder_layers=2, generator_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=32, encoder_attention_heads=4,
        max_positions=64, dropout=dropout, attention_dropout=dropout, **options,
    )  # fmt: skip
    return all_random(XlmeModel.build_model(args, SimpleNamespace(source_dictionary=dictionary or make_dictionary())))


def criterion_for(task, **options) -> ReplacedTokenCriterion:
    return ReplacedTokenCriterion(ReplacedTokenCriterionConfig(**options), task)
