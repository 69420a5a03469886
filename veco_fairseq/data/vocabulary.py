# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads fairseq's dictionaries, makes them from a checkpoint's symbols, and compares them."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from fairseq.data import Dictionary

from veco_fairseq.data.symbols import read_entries
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_


def read_dictionary(path: Path_) -> Dictionary:
    """Read a dict.txt as ``Dictionary.load`` does; errors as in :func:`veco_fairseq.data.symbols.read_entries`."""
    dictionary = Dictionary()
    add_dictionary(dictionary, path)
    return dictionary


def add_dictionary(dictionary: Dictionary, path: Path_) -> None:
    """Add the tokens of a dict.txt; errors as in :func:`veco_fairseq.data.symbols.read_entries`."""
    for token, count, overwrite in list(read_entries(path, dictionary.symbols)):
        dictionary.add_symbol(token, n=count, overwrite=overwrite)


def require_dictionaries(folder: Path, langs: Iterable[str], options: str) -> None:
    """Refuse languages of which a folder of translation data has no dictionary.

    Args:
        folder: if it is not there, its first file tells that.
        langs: the languages.
        options: that name them.

    Raises:
        UserError: names the language, and those that there are.
    """
    there = sorted(path.name[len("dict.") : -len(".txt")] for path in folder.glob("dict.*.txt"))
    for lang in langs if folder.is_dir() else ():
        if lang not in there:
            beside = f" beside those of {', '.join(there)}" if there else ""
            raise UserError(
                f"{folder}: has no dict.{lang}.txt{beside}: check the folder, {options}, or make it with fairseq-preprocess"
            )


def dictionary_of(symbols: Iterable[str]) -> Dictionary:
    """Make the dictionary of these symbols, fairseq's own first, as a checkpoint keeps them.

    A symbol that is there twice, as ``#fairseq:overwrite`` makes it, has both places, and is known by the second.
    """
    dictionary = Dictionary()
    for place, symbol in enumerate(symbols):
        dictionary.add_symbol(symbol, overwrite=place >= dictionary.nspecial)
    return dictionary


def require_same_symbols(theirs: Sequence[str] | None, dictionary: Dictionary, checkpoint: str, data: Path_) -> None:
    """Refuse a checkpoint of another dictionary, even one of the same size: its rows would mean other tokens.

    Args:
        theirs: the checkpoint's tokens with fairseq's four; None if it does not keep them.
        dictionary: of the data.
        checkpoint, data: their names.

    Raises:
        UserError: names both sizes and the first token that differs, and says what to do.
    """
    ours = dictionary.symbols
    if theirs is None or list(theirs) == ours:
        return
    row, *first = next((row, *pair) for row, pair in enumerate(zip_longest(theirs, ours)) if pair[0] != pair[1])
    there, here = ("missing" if token is None else repr(token) for token in first)
    raise UserError(
        f"{checkpoint}: was trained with another dictionary, of {len(theirs):,} tokens where {data} has {len(ours):,}; "
        f"first difference: token {row} is {there} there and {here} here; give data that was made with the checkpoint's dict.txt"
    )


def has_language_token(dictionary: Dictionary, lang: str) -> bool:
    """Return whether ``[lang]`` is one of the tokens, as in the authors' released dictionary."""
    return f"[{lang}]" in dictionary
