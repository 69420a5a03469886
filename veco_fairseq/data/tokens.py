# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Token files of fairseq-preprocess, PREFIX.bin and PREFIX.idx, checked so that damage never reaches a model.

Opening a file checks the whole index and the beginning of the tokens. The other tokens, which may be 100 GB, are checked
sentence by sentence as they are read.
"""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset, data_file_path, index_file_path

from veco_fairseq.data.prepare.growing import HEADER, MAGIC, VERSION
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_

BYTES_A_SENTENCE = 4 + 8  # its size and its place
CHUNK = 2**24  # numbers at a time
LOOKED_AT = 2**26  # bytes of the tokens that are checked when a file is opened
OPEN_FILES = 2**16  # as many as a process is allowed, where the system lets it; a mapped file stays open
AGAIN = "run fairseq-preprocess (or veco prepare) again"


class TokenFile(MMapIndexedDataset):
    """A memory-mapped token file. fairseq's own class first reads all of it in every loader process, for minutes.

    Each sentence is checked as it is read.

    Args:
        path: the prefix.
        types: the dictionary's number of tokens; without it any id is allowed.

    Raises:
        UserError: a sentence that is read has an id beyond the dictionary.
    """

    def __init__(self, path: str, types: int | None = None):
        self.types = types
        super().__init__(path)

    def __getstate__(self):
        return self._path, self.types

    def __setstate__(self, state):
        path, self.types = state
        self._do_init(path)

    def _do_init(self, path: str) -> None:
        self._path, self.path = path, Path(data_file_path(path))
        self._index = self.Index(index_file_path(path))
        self._bin_buffer_mmap = np.memmap(self.path, mode="r", order="C")
        self._bin_buffer = self._bin_buffer_mmap.data

    def __del__(self):
        if hasattr(self, "_bin_buffer_mmap"):  # not where the tokens could not be opened, of which the error tells
            super().__del__()

    def __getitem__(self, i) -> torch.Tensor:
        ids = super().__getitem__(i)
        if self.types is not None and int(ids.numpy().view(np.uint64).max()) >= self.types:  # a negative one is larger still
            raise self._unknown(ids.numpy(), f", sentence {int(i) + 1:,}")
        return ids

    @property
    def ids(self) -> np.ndarray:
        """Return all ids, mapped and not read."""
        return np.memmap(self.path, dtype=self._index.dtype, mode="r")

    def count(self, token: int) -> int:
        """Return how often a token occurs."""
        return sum(int(np.count_nonzero(chunk == token)) for _, chunk in _chunks(self.ids))

    def check(self, limit: int | None = None) -> None:
        """Check all ids, or those in the first ``limit`` bytes.

        Raises:
            UserError: an id is beyond the dictionary.
        """
        ids = self.ids if limit is None else self.ids[: limit // self._index.dtype().itemsize]
        for start, chunk in _chunks(ids):
            if self.types is not None and not 0 <= int(chunk.min()) <= int(chunk.max()) < self.types:
                at = start + int(np.flatnonzero((chunk < 0) | (chunk >= self.types))[0])
                sentence = int(np.searchsorted(self._index._pointers, at * chunk.itemsize, side="right"))
                raise self._unknown(chunk, f", sentence {sentence:,}")

    def _unknown(self, ids: np.ndarray, where: str) -> UserError:
        worst = int(ids.min()) if ids.min() < 0 else int(ids.max())
        return UserError(
            f"{self.path}{where}: has token {worst:,}, but the dictionary has {self.types:,} tokens: the file was made "
            f"with another dictionary or is damaged; {AGAIN}"
        )


def require_files(prefix: Path_) -> tuple[Path, Path]:
    """Return the index PREFIX.idx and the tokens PREFIX.bin; raise UserError if one of them is missing."""
    paths = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}: {AGAIN}")
    return paths


def load_tokens(prefix: Path_, dictionary: Dictionary | None = None) -> TokenFile:
    """Load the token file PREFIX.bin with its index PREFIX.idx, as fairseq-preprocess writes them.

    Args:
        dictionary: of the tokens; without one, as for alignments, any number is allowed.

    Raises:
        UserError: one of the two files is missing, empty or damaged, they do not belong together, or an id is beyond the
            dictionary; such an id may also be found later, when it is read.
    """
    index, tokens = require_files(prefix)
    with _open_files(tokens):
        return _checked(str(prefix), index, tokens, None if dictionary is None else len(dictionary))


def _checked(prefix: str, index: Path, tokens: Path, types: int | None) -> TokenFile:
    with open(index, "rb") as file:
        header = file.read(HEADER.size)
    if header[: len(MAGIC)] != MAGIC:
        raise UserError(f"{index}: not an index of fairseq-preprocess (mmap): preprocess it again")
    _, version, code, count = HEADER.unpack(header) if len(header) == HEADER.size else (None, 0, 0, 0)
    kind = indexed_dataset._code_to_dtype.get(code)
    if version != VERSION or kind is None or not np.issubdtype(kind, np.integer):
        raise UserError(f"{index}: is damaged (version {version}, ids of type {code}): preprocess it again")
    size, expected = index.stat().st_size, HEADER.size + BYTES_A_SENTENCE * count
    if size != expected:
        raise UserError(f"{index}: has {size:,} bytes, and {expected:,} for its {count:,} sentences: preprocess it again")
    if tokens.stat().st_size == 0 or count == 0:
        raise UserError(f"{tokens}: holds no sentence")
    dataset = TokenFile(prefix, types)
    _check_places(dataset, index, shortest=0 if types is None else 1)
    dataset.check(LOOKED_AT)
    return dataset


@contextmanager
def _open_files(path: Path) -> Iterator[None]:
    """Open a file with as many as :data:`OPEN_FILES` beside it: 900 pairs have 7,200 halves, and the usual limit is 1,024.

    Raises:
        UserError: the system allows fewer.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(most, OPEN_FILES)
    if limit != resource.RLIM_INFINITY and limit < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        raise UserError(
            f"{path}: cannot be opened beside so many others, which all stay open: let more files be open (ulimit -Hn), or take "
            "fewer languages and pairs"
        ) from error


def _check_places(dataset: TokenFile, index: Path, shortest: int) -> None:
    """Refuse an index whose sentences do not fill the tokens without gaps from the first byte to the last."""
    itemsize, end = dataset._index.dtype().itemsize, 0
    for start, sizes in _chunks(dataset.sizes):
        if sizes.min() < shortest:
            sentence = start + int(sizes.argmin()) + 1
            raise UserError(f"{index}: is damaged (sentence {sentence:,} of {sizes.min():,} tokens): preprocess it again")
        ends = end + np.cumsum(sizes, dtype=np.int64) * itemsize
        wrong = np.flatnonzero(dataset._index._pointers[start : start + len(sizes)] != ends - sizes.astype(np.int64) * itemsize)
        if len(wrong):
            raise UserError(f"{index}: is damaged (the place of sentence {start + int(wrong[0]) + 1:,}): preprocess it again")
        end = int(ends[-1])
    actual = dataset.path.stat().st_size
    if actual != end:
        raise UserError(f"{dataset.path}: has {actual:,} bytes where its index says {end:,}: preprocess it again")


def _chunks(numbers: np.ndarray) -> Iterator[tuple]:
    """Yield parts of a mapped array, with the position of their first number, so that it need not fit into memory."""
    for start in range(0, len(numbers), CHUNK):
        yield start, numbers[start : start + CHUNK]
