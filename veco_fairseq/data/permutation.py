# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A random permutation of any size, computed one element at a time."""

from collections.abc import Sequence

import numpy as np


def permuted(positions: np.ndarray, size: int, key: Sequence[int]) -> np.ndarray:
    """Return the elements at ``positions`` of a random permutation of 0 ... size - 1, without computing the others.

    A Feistel network permutes the numbers of the next even number of bits. A result that is not below ``size`` is permuted
    again until it is (cycle walking; Black and Rogaway, CT-RSA 2002).

    Args:
        positions: any number of integers below ``size``.
        size: of the permutation.
        key: integers that choose the permutation.

    Returns:
        int64, of the shape of ``positions``.
    """
    bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low = (np.uint64(1) << bits) - np.uint64(1)
    rounds = np.random.SeedSequence(key).generate_state(4, np.uint64)
    values = positions.astype(np.uint64)
    walking = np.arange(len(values))
    while len(walking):
        left, right = values[walking] >> bits, values[walking] & low
        for round_key in rounds:
            left, right = right, left ^ (_mixed(right + round_key) & low)
        values[walking] = left << bits | right
        walking = walking[values[walking] >= size]
    return values.astype(np.int64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finaliser of each value: every bit of the result depends on every bit of the value."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
