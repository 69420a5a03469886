# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Resamples of a test set, whose scores are worked out by hand."""

import pytest

from veco_fairseq.inference.scoring import score


def test_a_resample_may_have_no_match():
    """Of two lines a quarter of the resamples is the first twice, a quarter the second twice, and the others are both.

    chrF of abcd and x against abcd and y: of 5 characters 4 match, and all longer ones: (4/5 + 3) / 4.
    """
    result = score(["abcd", "x"], ["abcd", "y"], lang="en", samples=1000)
    assert result["chrf"]["score"] == pytest.approx(95) and result["chrf"]["interval"] == pytest.approx(50)
    assert result["chrf"]["mean"] == pytest.approx(100 / 4 + 0 / 4 + 95 / 2, abs=3)
    nothing = score(["x", "x"], ["a", "b"], lang="en", samples=10)["chrf"]
    assert (nothing["score"], nothing["mean"], nothing["interval"]) == (0, 0, 0)
