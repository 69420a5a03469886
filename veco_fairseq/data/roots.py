# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The data root of pre-training: its languages and pairs, and their token files.

Layout::

    ROOT/dict.txt
    ROOT/mono/<lang>/{train,valid}.{bin,idx}
    ROOT/bitext/<src>-<tgt>/{train,valid}.<src>-<tgt>.<lang>.{bin,idx}
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

from veco_fairseq.data.sentencepiece import DICT_NAME, MASK
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.errors import UserError

SUFFIXES = (".idx", ".bin")  # of a token file


def load_dictionary(root: Path) -> Dictionary:
    """Load ROOT/dict.txt, with ``<mask>`` as the last symbol, as in XLM-R.

    Raises:
        UserError: the file does not exist or is not a dictionary.
    """
    path = root / DICT_NAME
    if not path.is_file():
        if of_languages := sorted(path.parent.glob("dict.*.txt")):
            raise UserError(
                f"{root}: is translation data (it has {of_languages[0].name}), for --task translation: make a data root for "
                "pre-training with veco prepare"
            )
        raise UserError(f"{path}: no such file: a data root needs the dictionary that its files were made with")
    dictionary = read_dictionary(path)
    dictionary.add_symbol(MASK)
    return dictionary


def load_dictionary_of_all(paths: Sequence[Path]) -> Dictionary:
    """Load the dictionary of the first of several roots; the others may lack theirs.

    Raises:
        UserError: as :func:`load_dictionary`; or another root has another dictionary.
    """
    first, *others = paths
    dictionary = load_dictionary(first)
    for other in others:
        if (other / DICT_NAME).exists() and load_dictionary(other) != dictionary:
            raise UserError(f"{other / DICT_NAME}: differs from {first}'s: shards need one dictionary")
    return dictionary


def find_languages(root: Path, split: str) -> dict[str, Path]:
    """Return language -> prefix of its token file, for the languages of ROOT/mono that have this split.

    One of the two files is enough here; opening them reports the missing one.
    """
    prefixes = {path.with_suffix("") for suffix in SUFFIXES for path in root.glob(f"mono/*/{split}{suffix}")}
    return {prefix.parent.name: prefix for prefix in sorted(prefixes)}


def find_pairs(root: Path, split: str) -> dict[str, tuple[Path, Path]]:
    """Return "src-tgt" -> prefixes of both sides' token files, for the pairs of ROOT/bitext that have this split.

    One file is enough here, too.
    """
    pairs = {}
    for folder in sorted(path for path in root.glob("bitext/*") if path.is_dir()):
        there = {path.name for path in folder.iterdir()}
        parts = folder.name.split("-")
        for cut in range(1, len(parts)):
            sides = "-".join(parts[:cut]), "-".join(parts[cut:])
            x, y = (folder / f"{split}.{folder.name}.{side}" for side in sides)
            if any(f"{prefix.name}{suffix}" in there for prefix in (x, y) for suffix in SUFFIXES):
                pairs[folder.name] = x, y
    return pairs


def choose(found: dict[str, Any], wanted: str | None, option: str, root: Path) -> dict[str, Any]:
    """Return what has the names in the comma-separated ``wanted``, or all that was found.

    A pair may be named in either order, also one of languages with hyphens: pt-BR-en is en-pt-BR.

    Raises:
        UserError: a name was not found, or is given twice.
    """
    if not wanted:
        return found
    chosen = {}
    for name in (name.strip() for name in wanted.split(",")):
        parts = name.split("-")
        match = next((n for n in ("-".join(parts[cut:] + parts[:cut]) for cut in range(len(parts))) if n in found), None)
        if match is None:
            there = ", ".join(found) if found else "none"
            raise UserError(f"{option} {name}: not in {root} (there is: {there})")
        if match in chosen:
            raise UserError(f"{option} {name}: named twice")
        chosen[match] = found[match]
    return chosen


def visits(paths: Sequence[str], epoch: int) -> list[int]:
    """Return the epochs that have had this epoch's root, this one included; its pairs go on where the last one ended."""
    root = paths[(epoch - 1) % len(paths)]
    return [number for number in range(1, epoch + 1) if paths[(number - 1) % len(paths)] == root]
