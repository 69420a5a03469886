# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Constraints of translations (Post and Vilar, 2018): their pieces, and a search that lets a prefix be before them."""

import math
import re
from functools import partial
from typing import Any

import torch
from fairseq.search import LexicallyConstrainedBeamSearch, Search
from fairseq.token_generation_constraints import ConstraintState
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from veco_fairseq.data.exact import spell
from veco_fairseq.inference.requests import UNSPACED, WORD_START

# A word of these, of Thai, Lao, Tibetan, Burmese or Khmer, has no space before it.
_JOINED = re.compile(rf"{UNSPACED.pattern}|[\u0e00-\u109f\u1780-\u17ff]")
_fairseq_step_sentence = LexicallyConstrainedBeamSearch.step_sentence


def inside_a_text(constraint: list[str], pieces: SentencePieceProcessor) -> list[str]:
    """Return a constraint's pieces without the space before them, in a language that has none between words."""
    text = "".join(constraint).removeprefix(WORD_START)
    return spell(pieces, [text])[0] if _JOINED.match(text) else constraint


def let_prefixes_be(search: Search) -> None:
    """Change a search with constraints so that it keeps what a prefix asks for; another one stays as it is."""
    if isinstance(search, LexicallyConstrainedBeamSearch):
        search.step_sentence = partial(step_sentence, search)


def step_sentence(
    search: LexicallyConstrainedBeamSearch, step: int, number: int, lprobs: Tensor, *hypotheses_and_candidates: Any
) -> tuple[Tensor, Tensor, Tensor, list[ConstraintState]]:
    """Choose how a sentence's hypotheses go on.

    A prefix makes all next tokens but one impossible. fairseq's search fills the beam with the impossible ones, since they
    are further along with the constraints, and often finds nothing in the end. Here they are left out.

    Args:
        step, number: of the search and of the sentence.
        lprobs: scores of the hypotheses with each next token, (hypotheses, vocabulary).
        hypotheses_and_candidates: the states of the hypotheses; and hypotheses, next tokens and scores of those that are the
            best without constraints, (candidates) each.

    Returns:
        Scores, next tokens, hypotheses and states of those that are chosen, (candidates to return) each.
    """
    states, *candidates = hypotheses_and_candidates
    possible = lprobs.gt(-math.inf).sum(1)
    at_its_end = possible.max() < 2 and (lprobs.argmax(1) == search.eos)[possible > 0].all()
    if possible.min() > 1 or at_its_end:
        return _fairseq_step_sentence(search, step, number, lprobs, states, *candidates)
    alive = possible.nonzero().squeeze(1)
    if possible.max() > 1:  # what comes after a prefix, within which some hypotheses became impossible
        hypotheses, tokens, scores = (one[candidates[2].gt(-math.inf)] for one in candidates)
        scores, tokens, hypotheses, states = _fairseq_step_sentence(
            search, step, number, lprobs[alive], [states[place] for place in alive], torch.searchsorted(alive, hypotheses), tokens, scores
        )  # fmt: skip
        hypotheses = alive[hypotheses]
    else:  # the prefix has the next token
        scores, tokens = lprobs[alive].max(1)
        hypotheses, states = alive, [states[place].advance(token) for place, token in zip(alive, tokens)]
    left = search.num_cands - len(scores)
    return (
        torch.cat([scores, scores.new_full((left,), -math.inf)]),
        torch.cat([tokens, tokens.new_full((left,), search.pad)]),
        torch.cat([hypotheses, hypotheses.new_zeros(left)]),
        [*states, *states[:1] * left],
    )
