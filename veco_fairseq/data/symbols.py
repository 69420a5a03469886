# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The tokens of a dict.txt, in the order of their ids. Nothing here needs PyTorch."""

import filecmp
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import sentencepiece

from veco_fairseq.data.sentencepiece import MODEL_NAME, load_sentencepiece, ordinary_pieces
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, read_lines

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq puts them before the file's
TARGET_TOKEN = re.compile(r"<2([^<>\s]+)>")
# Tokens of a dictionary that are no pieces of text.
NO_PIECE = re.compile(rf"<mask>|\[\w+\]|madeupword\d+|{TARGET_TOKEN.pattern}")
OVERWRITE = " #fairseq:overwrite"


def target_token(lang: str) -> str:
    """The token before a source that is to be translated into this language (Johnson et al., 2017)."""
    return f"<2{lang}>"


def vocabulary_folder(checkpoint: Path_) -> Path:
    """The checkpoint's folder; of a link without a SentencePiece model beside it, that of the file to which it leads."""
    folders = Path(checkpoint).parent, Path(os.path.realpath(checkpoint)).parent
    return next((folder for folder in folders if (folder / MODEL_NAME).is_file()), folders[0])


class Entry(NamedTuple):
    """A line of a dict.txt: the token, how often it occurs, and whether it may replace an earlier one of the same name."""

    token: str
    number: int
    overwrite: bool


def read_entries(path: Path_, known: Sequence[str] = SPECIALS) -> Iterator[Entry]:
    """Yield the lines of a dict.txt, read by the rules of fairseq's ``Dictionary.add_from_file``.

    Args:
        path: the file.
        known: tokens that the dictionary has already.

    Raises:
        UserError: the file is missing, empty or not UTF-8, a line is malformed, or a token is there twice.
    """
    seen = set(known)
    number = 0
    for number, line in enumerate(read_lines(path), 1):
        text = line.rstrip()
        overwrite = text.endswith(OVERWRITE)
        token, _, count = text.removesuffix(OVERWRITE).rpartition(" ")
        try:
            if not token.strip(" "):
                raise ValueError("a count without a token")
            entry = Entry(token, int(count), overwrite)
        except ValueError as error:
            raise UserError(
                f"{path}, line {number}: expected '<token> <count>', found {text.strip()[:40]!r}: mend the line, or give fairseq's "
                "dict.txt"
            ) from error
        if token in seen and not overwrite:
            raise UserError(f"{path}, line {number}: {token!r} is there twice; remove one")
        seen.add(token)
        yield entry
    if not number:
        raise UserError(f"{path}: empty; expected a fairseq dict.txt, a line '<token> <count>' for every token")


def read_symbols(path: Path_) -> list[str]:
    """Return the tokens by id, fairseq's four first; errors as in :func:`read_entries`."""
    return [*SPECIALS, *(entry.token for entry in read_entries(path))]


def text_tokens(symbols: Sequence[str]) -> set[str]:
    """Return the tokens of a dictionary that are pieces of text."""
    return {token for token in symbols[len(SPECIALS) :] if not NO_PIECE.fullmatch(token)}


def require_own_pieces(model: sentencepiece.SentencePieceProcessor, path: Path_, symbols: Sequence[str]) -> None:
    """Refuse a SentencePiece model and a dictionary that do not belong together.

    The model may have more pieces than the dictionary, which may be made from a text. But three quarters of the tokens
    must be pieces of the model; the others are characters that it does not know.

    Args:
        model, path: the model, and its file for the message.
        symbols: of the dictionary, by id.

    Raises:
        UserError: names both numbers.
    """
    tokens = text_tokens(symbols)
    shared = len(tokens.intersection(ordinary_pieces(model)))
    if shared < 0.75 * len(tokens):
        raise UserError(
            f"{path}: does not belong to the dictionary: only {shared:,} of its {len(tokens):,} tokens are pieces of this "
            "SentencePiece model: replace it by the model that the dictionary was made with"
        )


def own_model(folders: Sequence[Path], dictionaries: Sequence[Sequence[str]]) -> Path | None:
    """Find the SentencePiece model of a translation model, in the folder of its checkpoint or of its data.

    Where two folders have one, as beside a vocabulary that was trimmed, it is the one whose pieces are nearest to the
    tokens; of two that are as near, the first.

    Args:
        folders: where to look, the likeliest first.
        dictionaries: the symbols of the source and of the target, by id.

    Raises:
        UserError: the folders have different ones, and one of them is damaged.
    """
    paths = [folder / MODEL_NAME for folder in folders if (folder / MODEL_NAME).is_file()]
    if all(filecmp.cmp(paths[0], path, shallow=False) for path in paths[1:]):
        return paths[0] if paths else None
    tokens = [text_tokens(symbols) for symbols in dictionaries]

    def distance(path: Path) -> int:
        pieces = set(ordinary_pieces(load_sentencepiece(path)))
        return sum(len(pieces ^ of_one) for of_one in tokens)

    return min(paths, key=distance)
