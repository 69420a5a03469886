# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The average log probability of a corpus under a vocabulary (VoCap, equation 1)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

SPACE = "\u2581"  # SentencePiece's sign for a space before a word
WORDS_A_BATCH = 100_000


@dataclass
class Words:
    """A corpus as its different words, normalised. Words are enough, since no piece of a unigram model crosses their ends.

    Attributes:
        texts: the words, with :data:`SPACE` in front.
        counts: how often each word occurs, int64.
        sentences: the number of sentences in the corpus.
    """

    texts: list[str]
    counts: np.ndarray
    sentences: int


def words_of(lines: Iterable[str], model: sentencepiece.SentencePieceProcessor) -> Words:
    """Return the words of a corpus, normalised by ``model``; empty lines do not count as sentences."""
    counts: Counter[str] = Counter()
    sentences = 0
    for line in lines:
        normalised = model.normalize(line)
        if normalised:
            sentences += 1
            counts.update(normalised.removeprefix(SPACE).split(SPACE))  # each further space is a word of its own
    texts = sorted(counts)
    return Words([SPACE + text for text in texts], np.array([counts[text] for text in texts], np.int64), sentences)


def without_normaliser(model: sentencepiece_model_pb2.ModelProto) -> sentencepiece.SentencePieceProcessor:
    """Return the model without its normaliser, for text that is normalised and has :data:`SPACE` already."""
    bare = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
    normaliser = bare.normalizer_spec
    normaliser.name, normaliser.precompiled_charsmap = "identity", b""
    normaliser.add_dummy_prefix = normaliser.remove_extra_whitespaces = normaliser.escape_whitespaces = False
    return sentencepiece.SentencePieceProcessor(model_proto=bare.SerializeToString())


def count_pieces(words: Words, bare: sentencepiece.SentencePieceProcessor) -> np.ndarray:
    """Count how often each piece occurs in the corpus, int64: pieces by their ids, then characters without a piece.

    Each unknown character counts as its own piece. With one <unk> for all of them, a vocabulary would look better the
    fewer characters it can spell.

    Args:
        words: from :func:`words_of`.
        bare: from :func:`without_normaliser`.
    """
    counts = np.zeros(len(bare), dtype=np.int64)
    unknown: dict[str, int] = Counter()
    for start in range(0, len(words.texts), WORDS_A_BATCH):
        here = slice(start, start + WORDS_A_BATCH)
        encoded, times = bare.encode(words.texts[here]), words.counts[here]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        ids = np.fromiter((i for word in encoded for i in word), dtype=np.int64, count=int(lengths.sum()))
        of_pieces = np.repeat(times, lengths)
        np.add.at(counts, ids, of_pieces)
        for place in np.unique(np.repeat(np.arange(len(lengths)), lengths)[ids == bare.unk_id()]):
            pieces = bare.encode(words.texts[start + place], out_type=str)
            for piece in (p for p, i in zip(pieces, encoded[place]) if i == bare.unk_id()):
                for character in piece:
                    unknown[character] += int(times[place])
    counts[bare.unk_id()] = 0
    return np.concatenate([counts, np.fromiter(unknown.values(), dtype=np.int64, count=len(unknown))])


def average_log_probability(counts: np.ndarray, sentences: int) -> float:
    """Return ALP(D, V), equation 1: the mean over sentences of the sum over their pieces of log p_uni(piece), in nats.

    p_uni is the pieces' distribution in the same corpus, so their counts are enough.

    Args:
        counts: of every piece of V in the corpus D, from :func:`count_pieces`.
        sentences: |D|.
    """
    seen = counts[counts > 0].astype(np.float64)
    return float((seen * np.log(seen / seen.sum())).sum() / sentences)
