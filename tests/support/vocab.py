# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Small models of SentencePiece for the tests of VoCap."""

import random

SPACE = "\u2581"


def text(seed: int, lines: int = 400, letters: str = "abcdefgh"):
    """Lines of words that come from a list of them, the first ones more often."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(300)]
    weights = [1 / rank for rank in range(1, 301)]
    return [" ".join(rng.choices(words, weights, k=rng.randint(3, 9))) for _ in range(lines)]
