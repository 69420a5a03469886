# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Searches whose translations end in ``</s>`` and a token: what keeps one from its end also keeps it from ``</s>``."""

import math
from collections.abc import Callable

import torch
from fairseq.search import LexicallyConstrainedBeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor


def meeting_constraints(search: LexicallyConstrainedBeamSearch, end: int) -> Callable:
    """Make the step of a search in which ``end``, too, follows no hypothesis that has not met its constraints."""
    fairseq_step = search.step

    def step(number: int, lprobs: Tensor, *rest):
        if search.constraint_states:
            lacking = [[not state.finished for state in states] for states in search.constraint_states]
            lprobs[..., end].masked_fill_(torch.tensor(lacking, device=lprobs.device), -math.inf)
        return fairseq_step(number, lprobs, *rest)

    return step


def of_least_length(generator: SequenceGenerator, end: int) -> Callable:
    """Make the step of a search in which ``end``, too, comes no sooner than ``--min-len`` lets it, unless a prefix has it."""
    fairseq_step = generator.search.step

    def step(number: int, lprobs: Tensor, *rest):
        if number < generator.min_len - 1:  # the token follows
            lprobs[..., end].masked_fill_(lprobs.gt(-math.inf).sum(-1) > 1, -math.inf)
        return fairseq_step(number, lprobs, *rest)

    return step
