# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""One SentencePiece model of several languages' vocabularies."""

from collections import defaultdict
from collections.abc import Iterable
from math import exp, log

from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.vocab.sizes import META, NORMAL


def union_model(
    pieces: Iterable[str], scores: dict[str, dict[str, float]], probabilities: dict[str, float], like: bytes
) -> bytes:
    """A serialised unigram model with the pieces, the most probable first.

    A piece's probability is its probability in text of which language i is a share q_i.

    Args:
        pieces: but for <unk>, <s> and </s>.
        scores: by language, its pieces' log probabilities.
        probabilities: q_i by language.
        like: a serialised model, whose normalisation and first symbols the new one takes over.
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
