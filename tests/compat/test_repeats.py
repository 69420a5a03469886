# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--no-repeat-ngram-size``, which had done nothing without fairseq's CUDA kernel."""

from argparse import Namespace
from itertools import pairwise
from math import inf
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import SequenceGenerator
from support.models import all_random

from veco_fairseq.models.translation import VecoTransformer

END, PAD = 2, 1


@pytest.mark.parametrize("size, banned", [(1, {4, 5, 6}), (2, {6}), (3, {6}), (4, set()), (9, set())])
def test_a_token_that_would_repeat_some_in_a_row_is_impossible(size, banned):
    """After 5 4 6 5 4: 4 6 and 5 4 6 were there; before them are </s>, and behind them padding, as in a search."""
    tokens = torch.tensor([[END, 5, 4, 6, 5, 4, PAD, PAD], [END, 7, 8, 7, 8, 7, PAD, PAD]])
    lprobs = NGramRepeatBlock(size)(tokens, torch.zeros(2, 9), 2, 1, 5)
    assert set(lprobs[0].eq(-inf).nonzero().flatten().tolist()) == banned
    assert set(lprobs[1].eq(-inf).nonzero().flatten().tolist()) == ({7, 8} if size == 1 else {8} if size < 5 else set())


def test_the_only_possible_token_stays():
    lprobs = torch.full((1, 9), -inf)
    lprobs[0, 5] = -1.0  # of a prefix 5 4 5
    assert NGramRepeatBlock(1)(torch.tensor([[END, 5, 4, PAD]]), lprobs, 1, 1, 2)[0, 5] == -1


@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_search_repeats_nothing(size):
    words = make_dictionary()
    args = Namespace(
        encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2, encoder_layers=1, decoder_layers=1
    )
    ARCH_CONFIG_REGISTRY["veco_mt_tiny"](args)
    torch.manual_seed(1)
    model = all_random(VecoTransformer.build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words)))
    generator = SequenceGenerator([model], words, beam_size=2, max_len_a=0, max_len_b=12, no_repeat_ngram_size=size)
    sample = {"net_input": {"src_tokens": torch.tensor([[5, 6, END]]), "src_lengths": torch.tensor([3])}}
    tokens = generator.generate([model], sample)[0][0]["tokens"].tolist()
    in_a_row = [(token,) for token in tokens] if size < 2 else list(pairwise(tokens))
    assert len(tokens) == 13 and (len(set(in_a_row)) == len(in_a_row)) == bool(size)
