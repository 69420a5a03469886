# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The average log probability of a corpus under a vocabulary (VoCap, equation 1)."""

from collections import Counter
from dataclasses import dataclass
from typing import Iterable, List

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

SPACE = "\u2581"  # what SentencePiece writes for one, before a word


@dataclass
class Words:
    """A corpus as its different words, normalised: no piece of a unigram model crosses a word's border.

    Attributes:
        texts: the words, :data:`SPACE` in front.
        counts: how often each is there, int64.
        sentences: how many the corpus has.
    """

    texts: List[str]
    counts: np.ndarray
    sentences: int


def words_of(lines: Iterable[str], model: sentencepiece.SentencePieceProcessor) -> Words:
    """The words of a corpus, normalised as ``model`` does; empty lines are no sentences."""
    counts, sentences = Counter(), 0
    for line in lines:
        normalised = model.normalize(line)
        if normalised:
            sentences += 1
            counts.update(normalised.lstrip(SPACE).split(SPACE))
    texts = sorted(counts)
    return Words([SPACE + text for text in texts], np.array([counts[text] for text in texts], np.int64), sentences)


def without_normaliser(model: sentencepiece_model_pb2.ModelProto) -> sentencepiece.SentencePieceProcessor:
    """The model as it is, for text that is normalised and has :data:`SPACE` already."""
    bare = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
    normaliser = bare.normalizer_spec
    normaliser.name, normaliser.precompiled_charsmap = "identity", b""
    normaliser.add_dummy_prefix = normaliser.remove_extra_whitespaces = normaliser.escape_whitespaces = False
    return sentencepiece.SentencePieceProcessor(model_proto=bare.SerializeToString())


def count_pieces(words: Words, bare: sentencepiece.SentencePieceProcessor, threads: int = 1) -> np.ndarray:
    """How often each piece is in the corpus, by its id, int64.

    Args:
        words: of :func:`words_of`.
        bare: of :func:`without_normaliser`.
        threads: for encoding.
    """
    encoded = bare.encode(words.texts, num_threads=threads)
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    ids = np.fromiter((i for word in encoded for i in word), dtype=np.int64, count=int(lengths.sum()))
    counts = np.bincount(ids, weights=np.repeat(words.counts, lengths), minlength=len(bare))
    return counts.astype(np.int64)


def average_log_probability(counts: np.ndarray, sentences: int) -> float:
    """ALP(D, V), equation 1: the mean over sentences of the sum over their pieces of log p_uni(piece), in nats.

    p_uni is the pieces' distribution in the same corpus, so that their counts say it all.

    Args:
        counts: of every piece of V in the corpus D.
        sentences: |D|.
    """
    seen = counts[counts > 0].astype(np.float64)
    return float((seen * np.log(seen / seen.sum())).sum() / sentences)
