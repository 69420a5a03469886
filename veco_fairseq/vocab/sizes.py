# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A language's vocabularies of 1,000, 2,000, ... pieces, and the ALP of each.

The paper trains a model for each of fifty sizes. Here one model of the largest size is trained, and made smaller step by
step, as the trainer itself gets to its size (Kudo, 2018): the pieces whose loss costs the corpus the least likelihood are
removed, and the probabilities of the others are estimated again. ``every_size`` trains all models, for comparison.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from zipfile import BadZipFile

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.data.sentencepiece import train_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, atomic_output
from veco_fairseq.vocab.alp import Words, average_log_probability, count_pieces, without_normaliser, words_of

NORMAL = sentencepiece_model_pb2.ModelProto.SentencePiece.NORMAL
META = 3  # every model begins with <unk>, <s>, </s>
# Errors of reading a damaged .npz.
DAMAGED = (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, BadZipFile, NotImplementedError, RuntimeError,
           MemoryError, OverflowError, struct.error, zlib.error)  # fmt: skip
UNSEEN = 0.5  # counted for a piece that does not occur, for its probability


@dataclass
class Vocabularies:
    """One language's vocabularies, the smallest first.

    Attributes:
        pieces: of all of them.
        sizes: the number of pieces of each, without SentencePiece's three symbols.
        scores: log probabilities, float32, (sizes, pieces); NaN where a vocabulary does not have the piece.
        alp: of each on the language's corpus.
        instances: the language's number of sentences, n_i of equation 3.
        words: the corpus of the ALPs.
    """

    pieces: list[str]
    sizes: list[int]
    scores: np.ndarray
    alp: np.ndarray
    instances: int
    words: Words

    def of_size(self, size: int) -> dict:
        """Return the vocabulary of ``size`` pieces, each with its log probability."""
        scores = self.scores[self.sizes.index(size)]
        return {self.pieces[i]: float(scores[i]) for i in np.flatnonzero(~np.isnan(scores))}

    def save(self, path: Path_) -> None:
        """Write an .npz that numpy reads without unpickling."""
        with atomic_output(path) as temporary, open(temporary, "wb") as stream:
            np.savez_compressed(
                stream, pieces=_joined(self.pieces), sizes=self.sizes, scores=self.scores, alp=self.alp,
                instances=self.instances, words=_joined(self.words.texts), word_counts=self.words.counts,
                sentences=self.words.sentences,
            )  # fmt: skip

    @classmethod
    def load(cls, path: Path_, *, with_words: bool = True) -> "Vocabularies":
        """Read a file of :meth:`save`.

        Args:
            with_words: also the corpus, whose words may take 200 MB.

        Raises:
            UserError: the file is damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as found:
                words = Words([], np.empty(0, np.int64), int(found["sentences"]))
                if with_words:
                    words.texts, words.counts = _split(found["words"]), found["word_counts"]
                sizes = [int(size) for size in found["sizes"]]
                instances = int(found["instances"])
                read = cls(_split(found["pieces"]), sizes, found["scores"], found["alp"], instances, words)
            if read.scores.shape != (len(sizes), len(read.pieces)) or read.alp.shape != (len(sizes),):
                raise ValueError("sizes that do not fit")
            return read
        except DAMAGED as error:
            if isinstance(error, OSError) and error.filename is not None:  # it cannot be read, and may be whole
                raise
            raise UserError(f"{path}: is damaged: remove it, and run the command again") from error


def _joined(texts: list[str]) -> np.ndarray:
    """Join texts without line ends to bytes, which numpy writes without pickling."""
    return np.frombuffer("\n".join(texts).encode("utf-8"), dtype=np.uint8)


def _split(joined: np.ndarray) -> list[str]:
    return joined.tobytes().decode("utf-8").split("\n")


def all_sizes(
    lines: Sequence[str], instances: int, *, largest: int, step: int, coverage: float, every_size: bool = False
) -> tuple[bytes, Vocabularies]:
    """Make a language's vocabularies of ``step``, 2 ``step``, ... ``largest`` pieces; also return the largest model, serialised.

    Sizes that the language's characters would fill are left out. If the text has fewer than ``largest`` pieces, the
    last vocabulary has all of them.

    Args:
        lines: of the language, not empty.
        instances: n_i, which may be larger than the number of lines.
        coverage: the share of the text's characters that the vocabularies must cover.
        every_size: train a model for every size.

    Raises:
        UserError: the text has more characters than ``largest``, or is empty.
    """
    model = largest_model = _train(lines, largest, coverage)
    words = words_of(lines, sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString()))
    _add_characters(model, words, coverage)
    most = len(model.pieces) - META
    characters = sum(len(piece.piece) == 1 for piece in model.pieces[META:])
    sizes = [size for size in range(step, most, step) if size > characters] + [most]
    counts = count_pieces(words, without_normaliser(model))
    alp, scores_of = [], {}
    for size in reversed(sizes):
        if size < most and every_size:
            model = _train(lines, size, coverage)
            _add_characters(model, words, coverage)
            counts = count_pieces(words, without_normaliser(model))
        elif size < most:
            model, counts = shrink(model, counts, words, size)
        alp.append(average_log_probability(counts, words.sentences))
        scores_of[size] = {piece.piece: piece.score for piece in model.pieces[META:]}
    pieces = sorted(set().union(*scores_of.values()))
    scores = np.array([[scores_of[size].get(piece, np.nan) for piece in pieces] for size in sizes], dtype=np.float32)
    found = Vocabularies(pieces, sizes, scores, np.array(alp[::-1]), instances, words)
    return largest_model.SerializeToString(), found


def _train(lines: Sequence[str], size: int, coverage: float) -> sentencepiece_model_pb2.ModelProto:
    """Train a model of ``size`` pieces, or of as many as there are."""
    try:
        serialised = train_sentencepiece(lines, size + META, character_coverage=coverage, at_most=True, option="--largest")
    except UserError as error:
        if "too few" not in str(error):
            raise
        raise UserError(
            f"--largest {size:,}: is below the number of the text's characters: raise it, or lower --character-coverage"
        ) from error
    return sentencepiece_model_pb2.ModelProto.FromString(serialised)


def _add_characters(model: sentencepiece_model_pb2.ModelProto, words: Words, coverage: float) -> None:
    """With full coverage, add characters of lines that the trainer left out, as it does if they hold <unk> or its own marks."""
    if coverage < 1:
        return
    missing = set("".join(words.texts)) - {piece.piece for piece in model.pieces}
    for character in sorted(missing):
        model.pieces.add(piece=character, score=log(UNSEEN / words.counts.sum()), type=NORMAL)


def shrink(model: sentencepiece_model_pb2.ModelProto, counts: np.ndarray, words: Words, size: int):
    """Return the model with only its ``size`` most useful pieces, and their counts in the corpus.

    A piece is worth the likelihood that the corpus would lose if each of its occurrences became the piece's next best
    segmentation (Kudo, 2018, section 3.2, as SentencePiece approximates it). Characters always stay.

    Args:
        model: a unigram model; a new one is returned.
        counts: of its pieces in the corpus, by id.
        words: the corpus.
        size: pieces to keep, at least as many as there are characters.
    """
    worth = _worth(model, counts)
    kept = np.sort(np.argsort(-worth, kind="stable")[:size]) + META
    small = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
    del small.pieces[:]
    small.pieces.extend(model.pieces[i] for i in (*range(META), *map(int, kept)))
    small.trainer_spec.vocab_size = len(small.pieces)
    estimate(small, count_pieces(words, without_normaliser(small)))
    return small, count_pieces(words, without_normaliser(small))


def _worth(model: sentencepiece_model_pb2.ModelProto, counts: np.ndarray) -> np.ndarray:
    """Return the likelihood that every ordinary piece is worth, by its position; infinite for characters."""
    pieces = [piece.piece for piece in model.pieces[META:]]
    frequency, total = counts.tolist(), int(counts.sum())
    best = without_normaliser(model).nbest_encode(pieces, nbest_size=2)
    worth = np.zeros(len(pieces))
    for place, (text, segmentations) in enumerate(zip(pieces, best)):
        if len(text) == 1:
            worth[place] = np.inf
        elif segmentations[0] == [place + META] and len(segmentations) > 1 and frequency[place + META]:
            occurrences, instead = frequency[place + META], segmentations[1]
            log_total_instead = log(total + occurrences * (len(instead) - 1))
            log_p_instead = sum(log(frequency[i] + occurrences) - log_total_instead for i in instead)
            worth[place] = occurrences * (log(occurrences) - log(total) - log_p_instead)
    return worth


def estimate(model: sentencepiece_model_pb2.ModelProto, counts: np.ndarray) -> None:
    """Set the pieces' scores to the logarithms of their shares of the corpus."""
    shares = np.maximum(counts[META : len(model.pieces)], UNSEEN) / counts.sum()
    for piece, score in zip(model.pieces[META:], np.log(shares)):
        piece.score = score
