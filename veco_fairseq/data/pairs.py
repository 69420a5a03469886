# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The pairs (x, y) of VECO: adjacent segments of a document, and translations.

A source of pairs has a name, a number of sentences (for language sampling), and ``lengths``, an int32 array (pairs, 2)
of x's and y's tokens with ``<s>`` and ``</s>``. ``source[i]`` is pair i as two tensors of ids without them.
"""

import numpy as np
import torch
from fairseq.data.token_block_utils_fast import _get_slice_indices_fast
from torch import Tensor

from veco_fairseq.errors import UserError

SPECIALS = 2  # <s> and </s> around every sequence


class AdjacentSegments:
    """Neighbouring segments of a document as pairs (VECO, section 4; packing is this project's choice).

    Consecutive lines are packed into segments of at most ``max_length`` tokens. A segment never crosses the end of a
    document (a blank line), and a longer line is cut. Neighbours form pairs, each segment in one pair. A last single
    segment is halved, or dropped if it has fewer than two tokens.

    Memory holds only offsets into the language's tokens and lengths: one int64 a line, and three and two int32 a pair.

    Args:
        name: the language.
        dataset: one line an item, each ending with ``</s>``; an item that is only ``</s>`` ends a document.
        max_length: of a segment, in tokens, with ``<s>`` and ``</s>``.

    Attributes:
        dropped: the number of single segments of one token.
        documents: the number of documents.

    Raises:
        UserError: no pair can be made.
    """

    def __init__(self, name: str, dataset, max_length: int):
        self.name, self.dataset = name, dataset
        tokens = np.asarray(dataset.sizes, dtype=np.int64) - 1  # without the line's </s>
        self.sentences = int(np.count_nonzero(tokens))
        self.line_starts = np.zeros(len(tokens) + 1, dtype=np.int64)
        np.cumsum(tokens, out=self.line_starts[1:])
        segments = self._pack(tokens, max_length - SPECIALS)
        # The first token of its first line identifies a document: the last border at or before a segment.
        borders = np.unique(np.concatenate(([0], self.line_starts[1:][tokens == 0])))
        document = np.searchsorted(borders, segments[:, 0], side="right")
        self.documents = len(np.unique(document))
        self.bounds, self.dropped = self._pair_up(segments, document)
        if len(self.bounds) == 0:
            raise UserError(f"{name}: no document of at least two tokens, so no pair of segments")
        self.lengths = (np.diff(self.bounds, axis=1) + SPECIALS).astype(np.int32)

    @staticmethod
    def _pack(tokens: np.ndarray, capacity: int) -> np.ndarray:
        """Return segments as (first token, last token + 1), from the lines' lengths; 0 ends a document."""
        if not tokens.any():  # which fairseq's packer cannot take
            return np.empty((0, 2), dtype=np.int64)
        lines = tokens
        if tokens.max(initial=0) > capacity:  # cut over-long lines: all pieces are full but the last
            pieces = np.maximum(1, -(-tokens // capacity))
            lines = np.repeat(tokens, pieces)
            ordinal = np.arange(len(lines)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
            lines = np.minimum(capacity, lines - ordinal * capacity)
        # fairseq's packer drops blocks of length 1, but here they may be half a pair. So it counts in half tokens.
        blocks = _get_slice_indices_fast(2 * lines, "complete_doc", 2 * capacity, 0)
        return np.asarray(blocks, dtype=np.int64).reshape(-1, 2) // 2

    @staticmethod
    def _pair_up(segments: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, int]:
        """Return pairs as (x's first token, y's first, y's last + 1), and the number of dropped segments."""
        first = np.searchsorted(document, document)  # of each segment, the document's first segment
        leads = np.flatnonzero((np.arange(len(segments)) - first) % 2 == 0)
        after = np.minimum(leads + 1, len(segments) - 1)
        has_partner = (after > leads) & (document[after] == document[leads])
        start, end = segments[leads, 0], segments[leads, 1]
        middle = np.where(has_partner, end, (start + end) // 2)
        end = np.where(has_partner, segments[after, 1], end)
        kept = (middle > start) & (end > middle)
        return np.stack([start, middle, end], axis=1)[kept], int(np.count_nonzero(~kept))

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start, middle, end = (int(bound) for bound in self.bounds[index])
        first = int(np.searchsorted(self.line_starts, start, side="right")) - 1
        last = int(np.searchsorted(self.line_starts, end, side="left"))
        text = torch.cat([self.dataset[line][:-1] for line in range(first, last)])
        offset = start - int(self.line_starts[first])
        return text[offset : offset + middle - start], text[offset + middle - start : offset + end - start]


class BitextPairs:
    """Sentences and their translations.

    Args:
        name: "src-tgt".
        source, target: the two sides, line by line, each item ending with ``</s>``.
        max_length: of a side, in tokens, with ``<s>`` and ``</s>``; longer pairs are dropped, and pairs with an empty
            side, too.

    Attributes:
        dropped: the number of pairs dropped.

    Raises:
        UserError: the sides have unequal numbers of lines, or no pair is left.
    """

    def __init__(self, name: str, source, target, max_length: int):
        self.name, self.source, self.target = name, source, target
        if len(source) != len(target):
            raise UserError(
                f"{name}: {len(source):,} lines on one side ({source.path}) and {len(target):,} on the other "
                f"({target.path}): they are not translations of each other; preprocess them again"
            )
        lengths = np.stack([source.sizes, target.sizes], axis=1) - 1 + SPECIALS
        kept = ((lengths <= max_length) & (lengths > SPECIALS)).all(axis=1)
        self.sentences = int(kept.sum())
        self.dropped = len(lengths) - self.sentences
        if self.sentences == 0:
            raise UserError(f"{name}: no pair has at most {max_length} tokens a side (--bitext-max-length)")
        self.lines = None if self.dropped == 0 else np.flatnonzero(kept)
        self.lengths = lengths[kept].astype(np.int32)

    def __len__(self) -> int:
        return self.sentences

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        line = int(index) if self.lines is None else int(self.lines[index])
        return self.source[line][:-1], self.target[line][:-1]
