# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--print-alignment`` of fairseq-generate and fairseq-interactive."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import utils
from fairseq.sequence_generator import SequenceGenerator

from veco_fairseq.compat.alignment import generate

WEIGHTS = {  # (source tokens, translation tokens), by the translation's first word
    7: [[0.9, 0.2, 0.5], [0.1, 0.8, 0.5], [0.0, 0.0, 0.0]], 8: [[0.3, 0.5], [0.7, 0.5], [0.0, 0.0]], 9: [[0.6, 0.5], [0.4, 0.5], [0.0, 0.0]],
}  # fmt: skip
LINKS = {7: [(0, 0), (1, 1)], 8: [(1, 0)], 9: [(0, 0)]}


@pytest.mark.parametrize("full_context", [False, True])
def test_sentences_with_fewer_translations_than_the_beam_are_aligned_too(monkeypatch, full_context):
    """With a beam of 2: one translation, none, and two; it had ended in an IndexError."""
    made = [[[7, 7, 2]], [], [[8, 2], [9, 2]]]
    found = [[{"tokens": torch.tensor(one), "attention": torch.tensor(WEIGHTS[one[0]])} for one in beam] for beam in made]
    monkeypatch.setattr(SequenceGenerator, "_generate", lambda generator, sample, **options: options["prefix_tokens"] and found)

    def align(sources, lengths, shifted):
        assert sources.tolist() == [[4, 5, 2], [6, 6, 2], [6, 6, 2]] and lengths.tolist() == [3, 4, 4]
        assert shifted.tolist() == [[2, 7, 7], [2, 8, 1], [2, 9, 1]]
        return [torch.tensor(WEIGHTS[first]).t() for first in (7, 8, 9)]

    generator = SimpleNamespace(
        pad=1, eos=2, left_pad_target=False, extract_alignment=utils.extract_hard_alignment,
        model=SimpleNamespace(models=[SimpleNamespace(full_context_alignment=full_context)], forward_align=align if full_context else None),
    )  # fmt: skip
    sources = {"src_tokens": torch.tensor([[4, 5, 2], [3, 3, 2], [6, 6, 2]]), "src_lengths": torch.tensor([3, 9, 4])}
    links = [[one["alignment"] for one in beam] for beam in generate(generator, [], {"net_input": sources}, prefix_tokens=True)]
    assert links == [[LINKS[7]], [], [LINKS[8], LINKS[9]]]
    found[:] = [[], []]
    assert generate(generator, [], {"net_input": sources}, prefix_tokens=True) == [[], []]
