# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Batches of sequences with similar lengths, for all commands that compute states or translate."""

from collections.abc import Iterator, Sequence

import numpy as np
from fairseq.data import data_utils


def by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int | None = None) -> Iterator[list[int]]:
    """Yield batches of indices of sequences with similar lengths, the longest first, so that memory runs out at once.

    Args:
        lengths: in tokens.
        max_tokens: of a batch, with padding; a longer sequence gets its own batch.
        max_sentences: of a batch.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    longer = int((sizes > max_tokens).sum())
    yield from ([int(place)] for place in order[:longer])
    rest = order[longer:]
    for batch in data_utils.batch_by_size(rest, sizes.__getitem__, sizes[rest], max_tokens, max_sentences):
        yield batch.tolist()
