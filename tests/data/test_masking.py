# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Masking: shares, fates, and what is never touched."""

import numpy as np
import torch
from conftest import make_dictionary

from veco_fairseq.data.masking import Corruption, Masker, masked_places, positions

DICTIONARY = make_dictionary(1000)
MASK = DICTIONARY.index("<mask>")


def mask_many(probability: float, sequence, times: int):
    masker = Masker(DICTIONARY, MASK, probability)
    return [masker(torch.tensor(sequence), np.random.default_rng(i)) for i in range(times)]


def test_share_and_fates():
    sequence = [0, *range(10, 37), 2]  # 27 ordinary tokens
    results = mask_many(0.15, sequence, 2000)
    counts = np.array([int(targets.ne(1).sum()) for _, targets in results])
    assert set(counts) == {4, 5} and abs(counts.mean() - 0.15 * 27) < 0.03  # rounded at random, not down
    chosen = np.concatenate([corrupted[targets.ne(1)].numpy() for corrupted, targets in results])
    original = np.concatenate([targets[targets.ne(1)].numpy() for _, targets in results])
    masked, kept = chosen == MASK, chosen == original
    assert abs(masked.mean() - 0.8) < 0.02 and abs(kept.mean() - 0.1) < 0.02
    replaced = chosen[~masked & ~kept]
    assert replaced.min() >= DICTIONARY.nspecial and replaced.max() < MASK and len(set(replaced)) > 300


def test_untouched_elsewhere_and_targets_are_the_originals():
    sequence = torch.tensor([0, *range(10, 30), 2])
    for corrupted, targets in mask_many(0.25, sequence.tolist(), 50):
        chosen = targets.ne(1)
        assert torch.equal(corrupted[~chosen], sequence[~chosen]) and torch.equal(targets[chosen], sequence[chosen])


def test_at_least_one_and_never_a_special():
    for corrupted, targets in mask_many(0.01, [0, 3, 17, 3, 2], 50):
        assert targets.tolist() == [1, 1, 17, 1, 1]
        assert corrupted[[0, 1, 3, 4]].tolist() == [0, 3, 3, 2]
    for corrupted, targets in mask_many(0.5, [0, 3, 3, 2], 5):  # nothing to mask
        assert corrupted.tolist() == [0, 3, 3, 2] and targets.eq(1).all()


def test_the_first_and_the_last_ordinary_token_are_hidden_and_take_the_place_of_others():
    """Of the ids 4, 5 and 6, before <mask>."""
    masker, tokens = Masker(make_dictionary(3), 7, 1.0), torch.tensor([0, 4, 5, 6, 2])
    results = [masker(tokens, np.random.default_rng(seed)) for seed in range(99)]
    assert {tuple(targets.tolist()) for _, targets in results} == {(1, 4, 5, 6, 1)}
    assert {int(corrupted[2]) for corrupted, _ in results} == {4, 5, 6, 7}
    replacer = Masker(make_dictionary(3), 7, 1.0, Corruption(masked=0.0, replaced=1.0))  # never by <mask>
    assert {int(replacer(tokens, np.random.default_rng(seed))[0][2]) for seed in range(99)} == {4, 5, 6}


def test_all_of_it():
    for _, targets in mask_many(1.0, [0, 5, 6, 7, 2], 20):
        assert targets.tolist() == [1, 5, 6, 7, 1]


def test_a_mask_in_the_text_is_never_to_be_predicted():
    """Nor is it ever what takes the place of another token by chance."""
    sequence = [0, MASK, 12, MASK, 14, 2]
    for corrupted, targets in mask_many(1.0, sequence, 50):
        assert targets.tolist() == [1, 1, 12, 1, 14, 1] and corrupted[[1, 3]].tolist() == [MASK, MASK]


def test_places_of_what_is_to_be_predicted():
    targets = torch.ones(2, 3, 4, dtype=torch.long)
    targets[0, 0, 1], targets[0, 2, 3], targets[1, 1, 0] = 5, 6, 7
    places = masked_places(targets, 1)
    assert places.tolist() == [1, 11, 16] and targets.flatten()[places].tolist() == [5, 6, 7]
    assert [indices.tolist() for indices in positions(places, targets.shape)] == [[0, 0, 1], [0, 2, 1], [1, 3, 0]]


def test_more_or_less_than_the_share_of_one_sequence():
    """Of 40 tokens a quarter and a tenth more, or less: 14 and 6."""
    masker, tokens = Masker(DICTIONARY, MASK, 0.25), torch.tensor([0, *range(10, 50), 2])
    for more, count in ((0.1, 14), (-0.1, 6), (0.0, 10)):
        found = {int(masker(tokens, np.random.default_rng(seed), more)[1].ne(1).sum()) for seed in range(20)}
        assert found <= {count, count + 1} and count in found
