# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The data root of pre-training: which languages and pairs it holds, and their token files.

Layout::

    ROOT/dict.txt
    ROOT/mono/<lang>/{train,valid}.{bin,idx}
    ROOT/bitext/<src>-<tgt>/{train,valid}.<src>-<tgt>.<lang>.{bin,idx}
"""

from pathlib import Path
from typing import Dict, Iterable, List, Optional, Tuple

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, data_file_path, index_file_path

from veco_fairseq.data.vocabulary import DICT_NAME, read_dictionary
from veco_fairseq.errors import UserError

MASK = "<mask>"
MAGIC = MMapIndexedDataset.Index._HDR_MAGIC  # the first bytes of every index


def load_dictionary(root: Path) -> Dictionary:
    """ROOT/dict.txt with ``<mask>`` as its last symbol, as XLM-R has it.

    Raises:
        UserError: there is no such file, or it is not a dictionary.
    """
    path = Path(root) / DICT_NAME
    if not path.is_file():
        raise UserError(f"{path}: no such file: a data root needs the dictionary that its files were made with")
    dictionary = read_dictionary(path)
    dictionary.add_symbol(MASK)
    return dictionary


class TokenFile(MMapIndexedDataset):
    """fairseq's, but mapped without reading it through first, which every loader process would do, for minutes."""

    def _do_init(self, path: str) -> None:
        self._path, self.path = path, Path(data_file_path(path))
        self._index = self.Index(index_file_path(path))
        self._bin_buffer_mmap = np.memmap(self.path, mode="r", order="C")
        self._bin_buffer = memoryview(self._bin_buffer_mmap)


def load_tokens(prefix: Path) -> TokenFile:
    """The token file PREFIX.bin with its index PREFIX.idx, as fairseq-preprocess writes them.

    Raises:
        UserError: one of the two is missing, empty, or does not belong to the other.
    """
    for suffix in (".idx", ".bin"):
        if not Path(f"{prefix}{suffix}").is_file():
            raise UserError(f"{prefix}{suffix}: no such file: run fairseq-preprocess (or prepare_root.py) again")
    with open(f"{prefix}.idx", "rb") as index:
        if index.read(len(MAGIC)) != MAGIC:
            raise UserError(f"{prefix}.idx: not an index of fairseq-preprocess (mmap): preprocess it again")
    if Path(f"{prefix}.bin").stat().st_size == 0:
        raise UserError(f"{prefix}.bin: holds no sentence")
    dataset = TokenFile(str(prefix))
    expected = int(dataset.sizes.sum(dtype="int64")) * dataset._index.dtype().itemsize
    actual = dataset.path.stat().st_size
    if actual != expected:
        raise UserError(f"{prefix}.bin: has {actual:,} bytes where its index says {expected:,}: preprocess it again")
    return dataset


def find_languages(root: Path, split: str) -> Dict[str, Path]:
    """Language -> prefix of its token file, for the languages of ROOT/mono that have this split."""
    found = sorted(Path(root).glob(f"mono/*/{split}.idx"))
    return {path.parent.name: path.with_suffix("") for path in found}


def find_pairs(root: Path, split: str) -> Dict[str, Tuple[Path, Path]]:
    """"src-tgt" -> prefixes of both sides' token files, for the pairs of ROOT/bitext that have this split."""
    pairs = {}
    for folder in sorted(path for path in Path(root).glob("bitext/*") if path.is_dir()):
        parts = folder.name.split("-")
        for cut in range(1, len(parts)):
            sides = ["-".join(parts[:cut]), "-".join(parts[cut:])]
            prefixes = [folder / f"{split}.{folder.name}.{side}" for side in sides]
            if any(Path(f"{prefix}.idx").is_file() for prefix in prefixes):
                pairs[folder.name] = tuple(prefixes)
    return pairs


def choose(found: Iterable[str], wanted: Optional[str], option: str, root: Path) -> List[str]:
    """The names in the comma-separated ``wanted``, or all that were found.

    A pair may be named either way round. Raises UserError for a name that is not there.
    """
    found = list(found)
    if not wanted:
        return found
    chosen = []
    for name in (name.strip() for name in wanted.split(",")):
        reverse = "-".join(reversed(name.split("-")))
        match = next((n for n in (name, reverse) if n in found), None)
        if match is None:
            there = ", ".join(found) if found else "none"
            raise UserError(f"{option} {name}: not in {root} (there is: {there})")
        if match in chosen:
            raise UserError(f"{option} {name}: named twice")
        chosen.append(match)
    return chosen
