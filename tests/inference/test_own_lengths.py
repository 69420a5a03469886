# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The least and the greatest length of each translation of a batch, by steps of a search that chooses nothing."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from support.converted import translating

from veco_fairseq.inference.lengths import OwnLengths
from veco_fairseq.inference.translator import Translator

EOS, TOKENS = 2, 5


@pytest.fixture
def generator():
    search = SimpleNamespace(step=lambda number, lprobs, scores, tokens, sentences: lprobs)
    return SimpleNamespace(search=search, eos=EOS, min_len=3, max_len_a=0.5, max_len_b=2, max_len=9)


def test_what_may_follow_at_each_step(generator):
    """Half as many pieces as the source has, and two more; three at least, and one less than the model has positions."""
    assert OwnLengths(generator).begin([3, 5, 40]) == [3, 4, 8]
    assert generator.search.stop_on_max_len

    def allowed(step):
        """How many tokens may follow the hypotheses, two of the last sentence and two of the first; and whether the end may."""
        lprobs = torch.zeros(2, 2, TOKENS)
        lprobs[..., EOS] = -7.0
        found = generator.search.step(step, lprobs, None, None, torch.tensor([2, 0]))
        return found.isfinite().sum(2).tolist(), bool(found[..., EOS].eq(-7).all())

    assert allowed(0) == allowed(2) == ([[4, 4], [4, 4]], False)
    assert allowed(3) == allowed(7) == ([[5, 5], [1, 1]], True)
    assert allowed(8) == ([[1, 1], [1, 1]], True)


def test_no_sentences_have_no_lengths(generator):
    assert OwnLengths(generator).begin([]) == []


@pytest.mark.parametrize("beside", [1, 2])
def test_as_long_as_the_source_is_as_many_pieces(tmp_path, make_model, beside):
    """Of ``--match-source-len``: </s> and, of many directions, the token before the source had each counted as a piece."""
    folder = translating(tmp_path / "model", make_model)
    translator = Translator([folder / "model.pt"], data=folder, cpu=True)
    translator.task.tokens_beside = beside
    generator = translator.task.build_generator(translator.models, GenerationConfig(beam=3, match_source_len=True))
    source = torch.tensor([[7, 9, 12, 10, 2], [1, 1, 11, 6, 2]])
    found = generator.generate(translator.models, {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([5, 3])}})
    assert [best["tokens"].tolist().index(2) for best, *_ in found] == [5 - beside, 3 - beside]
