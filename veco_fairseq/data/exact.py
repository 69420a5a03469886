# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""SentencePiece models that add and remove no spaces. Nothing here needs PyTorch."""

from collections.abc import Sequence
from functools import lru_cache

import sentencepiece
from sentencepiece import sentencepiece_model_pb2


def spell(model: sentencepiece.SentencePieceProcessor, pieces: Sequence[str]) -> list[list[str]]:
    """Each of another model's pieces as pieces of this one, which together have just its characters."""
    return exact(model).encode([piece.replace("▁", " ") for piece in pieces], out_type=str)


@lru_cache(maxsize=2)  # a model of 250,000 pieces takes half a second
def exact(model: sentencepiece.SentencePieceProcessor) -> sentencepiece.SentencePieceProcessor:
    """Return a model that adds and removes no spaces."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto())
    proto.normalizer_spec.add_dummy_prefix = False  # it begins with a space if its ▁ says so
    proto.normalizer_spec.remove_extra_whitespaces = False
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
