# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The names of fairseq's own symbols, which no text may spell. Nothing here needs PyTorch."""

import re

import sentencepiece

MASK = "<mask>"

# A piece with one of these names would be read as fairseq's (or this project's) own symbol.
RESERVED = ("<s>", "<pad>", "</s>", "<unk>", MASK)
_ALONE = re.compile(rf"(?:(?<=\s)|^)(?:{'|'.join(RESERVED)})(?!\S)")


def without_symbols(model: sentencepiece.SentencePieceProcessor, pieces: str) -> str:
    """Return a text's pieces, with spaces between, in which no unknown letters spell a symbol; they begin with U+FF1C instead.

    SentencePiece leaves letters that it does not know as they are. If it knows none of ``</s>``, this would end the sentence.
    """

    def known(piece: str) -> bool:
        number = model.piece_to_id(piece)
        return not (model.is_unknown(number) or model.is_control(number))

    return _ALONE.sub(lambda found: found[0] if known(found[0]) else f"\uff1c{found[0][1:]}", pieces) if "<" in pieces else pieces
