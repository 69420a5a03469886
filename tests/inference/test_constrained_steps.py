# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Single steps of a search with constraints in which some hypotheses are impossible, wherever these stand; and constraints' pieces."""

from math import inf

import pytest
import torch
from conftest import make_dictionary
from fairseq.search import LexicallyConstrainedBeamSearch
from fairseq.token_generation_constraints import OrderedConstraintState, pack_constraints
from sentencepiece import SentencePieceProcessor

from veco_fairseq.data.sentencepiece import train_sentencepiece
from veco_fairseq.inference.constraints import inside_a_text, step_sentence

ASKED_FOR = 5


@pytest.fixture
def step():
    """Does a step of a beam of three, two of whose words are asked for; of each choice hypothesis, token, score and progress."""
    search = LexicallyConstrainedBeamSearch(make_dictionary(), "ordered")
    search.num_cands = 6
    (packed,) = pack_constraints([[torch.tensor([ASKED_FOR, 7])]])

    def step(rows):
        lprobs = torch.full((3, search.vocab_size), -inf)
        for hypothesis, row in rows.items():
            for token, score in row.items():
                lprobs[hypothesis, token] = score
        scores, places = lprobs.flatten().topk(6)
        candidates = places // search.vocab_size, places % search.vocab_size, scores
        found = step_sentence(search, 2, 0, lprobs, [OrderedConstraintState.create(packed)] * 3, *candidates)
        scores, tokens, hypotheses, states = found
        assert len(scores) == len(tokens) == len(hypotheses) == 6 <= len(states)
        choices = zip(hypotheses.tolist(), tokens.tolist(), scores.tolist(), states)
        return [(*choice, state.bank) for *choice, state in choices if choice[2] > -inf]

    return step


@pytest.mark.parametrize("alive", [(0, 1), (1, 2), (2, 0)])
def test_what_is_chosen_belongs_to_its_own_hypothesis(step, alive):
    one, two = alive
    found = step({one: {4: -1.0, ASKED_FOR: -4.0, 6: -2.5}, two: {4: -3.0, ASKED_FOR: -3.5, 8: -6.0}})
    assert [choice for choice in found if choice[3]] == [(two, ASKED_FOR, -3.5, 1), (one, ASKED_FOR, -4.0, 1)]
    others = [(one, 4, -1.0, 0), (one, 6, -2.5, 0), (two, 4, -3.0, 0), (two, 8, -6.0, 0)]
    assert [choice for choice in found if not choice[3]] == others


@pytest.mark.parametrize("alive", [0, 1, 2])
@pytest.mark.parametrize("token, progress", [(4, 0), (ASKED_FOR, 1)])
def test_the_next_token_of_a_prefix_is_the_only_choice(step, alive, token, progress):
    assert step({alive: {token: -1.5}}) == [(alive, token, -1.5, progress)]


@pytest.mark.parametrize("word, space", [
    ("世界", ""), ("ワイン", ""), ("ไวน์", ""), ("ເຫຼົ້າ", ""), ("ཆང", ""), ("ဝိုင်", ""), ("ស្រា", ""),
    ("wine", "▁"), ("वाइन", "▁"), ("와인", "▁"), ("ღვინო", "▁"),
])  # fmt: skip
def test_a_language_without_spaces_gets_none_before_a_constraint(word, space):
    """The translation had one there, in the middle of a Chinese sentence."""
    text = [f"{word} {word} {word}x"] * 9
    model = SentencePieceProcessor(model_proto=train_sentencepiece(text, 40, character_coverage=1, at_most=True))
    found = inside_a_text(model.encode(word, out_type=str), model)
    assert "".join(found) == space + model.normalize(word).removeprefix("▁")
    assert not any(map(model.is_unknown, map(model.piece_to_id, found)))
