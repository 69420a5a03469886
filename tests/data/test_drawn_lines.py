# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The lines that are held out, or sampled: one of each stretch, at a place without a rhythm."""

import numpy as np
import pytest
import scipy.stats

from veco_fairseq.data.prepare.text import is_drawn


@pytest.mark.parametrize("chosen, total", [(0, 4), (1, 1), (3, 10), (4, 4), (99, 100), (250, 4000)])
def test_one_line_in_each_stretch_is_drawn(chosen, total):
    places = [place for place in range(total) if is_drawn(place, chosen, total)]
    assert [place * chosen // total for place in places] == list(range(chosen))
    assert np.flatnonzero(is_drawn(np.arange(total), chosen, total)).tolist() == places
    assert chosen != 250 or len(set(np.diff(places))) > 20  # of 31 distances that there can be


@pytest.mark.parametrize("rhythm", [2, 3, 5, 16])
def test_a_sample_is_like_a_text_with_a_rhythm(rhythm):
    """Every 16th line of a text with short and long lines in turn would have one length."""
    places = np.flatnonzero(is_drawn(np.arange(32_000), 2_000, 32_000))
    counts = np.bincount(places % rhythm, minlength=rhythm)
    assert scipy.stats.chisquare(counts).pvalue > 0.01


def test_the_last_of_many_lines_can_be_drawn():
    """... by whole numbers of 64 bits."""
    total = 1_500_000_000
    last = np.arange(total - 20, total)
    assert is_drawn(last, total, total).all()
    for chosen in (total - 1, total // 3, total // 10):
        assert is_drawn(last, chosen, total).tolist() == [is_drawn(place, chosen, total) for place in last.tolist()]
        assert is_drawn(last, chosen, total).any()
