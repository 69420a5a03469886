# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes one SentencePiece model from several languages' vocabularies."""

from collections import defaultdict
from collections.abc import Iterable
from math import exp, log

from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.vocab.sizes import META, NORMAL


def union_model(
    pieces: Iterable[str], scores: dict[str, dict[str, float]], probabilities: dict[str, float], like: bytes
) -> bytes:
    """Return a serialised unigram model with these pieces, the most probable first.

    A piece's probability is that in text in which language i has the share q_i.

    Args:
        pieces: without <unk>, <s> and </s>.
        scores: the pieces' log probabilities, by language.
        probabilities: q_i by language.
        like: a serialised model; the new one takes over its normalisation and first symbols.
    """
    mixture: dict[str, float] = defaultdict(float)
    for language, of_language in scores.items():
        for piece, score in of_language.items():
            mixture[piece] += probabilities[language] * exp(score)
    model = sentencepiece_model_pb2.ModelProto.FromString(like)
    del model.pieces[META:]
    for piece in sorted(pieces, key=lambda piece: (-mixture[piece], piece)):
        model.pieces.add(piece=piece, score=log(mixture[piece]), type=NORMAL)
    model.trainer_spec.vocab_size = len(model.pieces)
    return model.SerializeToString()
