# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--no-repeat-ngram-size`` where fairseq's CUDA kernel for it is not built: fairseq looks at the padding behind a translation."""

import math

from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import Tensor


def no_repeat_ngram(block: NGramRepeatBlock, tokens: Tensor, lprobs: Tensor, *sizes: int) -> Tensor:
    """Make each next token impossible with which a hypothesis would have some tokens in a row for the second time.

    One that is the only possible one stays, as the next one of a prefix.

    Args:
        block: has the number of tokens in a row.
        tokens: what each hypothesis begins with, its tokens, and padding, (hypotheses, length).
        lprobs: of the next tokens, (hypotheses, vocabulary), changed in place.
        sizes: the numbers of sentences and of hypotheses for each, and of tokens that each hypothesis has so far.
    """
    size, (_, _, step) = block.no_repeat_ngram_size, sizes
    for of_next, given in zip(lprobs, tokens[:, 1 : step + 1].tolist()):
        last = given[len(given) - size + 1 :]
        again = [given[i + size - 1] for i in range(len(given) - size + 1) if given[i : i + size - 1] == last]
        if again and of_next.gt(-math.inf).sum() > 1:
            of_next[again] = -math.inf
    return lprobs
