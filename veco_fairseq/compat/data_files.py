# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Finds fairseq's token files, dictionaries and texts, and checks them for damage before they are used."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, indexed_dataset
from fairseq.data.indexed_dataset import IndexedRawTextDataset, MMapIndexedDataset, data_file_path, index_file_path
from fairseq.file_chunker_utils import Chunker, ChunkLineIterator

from veco_fairseq.data.tokens import load_tokens, require_files
from veco_fairseq.data.vocabulary import add_dictionary
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines

_fairseq_add_from_file = Dictionary.add_from_file
_fairseq_make_dataset = indexed_dataset.make_dataset
_fairseq_dataset_exists = indexed_dataset.dataset_exists
_fairseq_infer_dataset_impl = indexed_dataset.infer_dataset_impl
_fairseq_split_paths = utils.split_paths


def split_paths(paths: str, *args) -> list[str]:
    """Return the paths that are joined with ":"; a file or folder with a colon in its name, such as of a time, is one."""
    return [paths] if os.path.exists(paths) else _fairseq_split_paths(paths, *args)


def make_dataset(path: str, impl: str, fix_lua_indexing: bool = False, dictionary: Dictionary | None = None):
    """Open a data set, usual token files with :func:`load_tokens`."""
    if impl == "mmap" and MMapIndexedDataset.exists(path):
        return load_tokens(path, dictionary)
    return _fairseq_make_dataset(path, impl, fix_lua_indexing, dictionary)


def dataset_exists(path: str, impl: str | None) -> bool:
    """Return whether there is a token file; for fairseq, one of the two files without the other is none.

    Raises:
        UserError: the index or the tokens are missing, but not both; or they are of another kind than ``--dataset-impl``.
    """
    if impl in (None, "mmap") and any(map(os.path.lexists, (index_file_path(path), data_file_path(path)))):
        require_files(path)
    if impl is not None and all(map(os.path.isfile, (index_file_path(path), data_file_path(path)))):
        kind = _fairseq_infer_dataset_impl(path)
        if kind not in (None, "raw", "cached" if impl == "lazy" else impl):  # raw: there is a text beside them
            raise UserError(f"{path}: was made with --dataset-impl {kind}, not {impl}: leave the option out")
    return _fairseq_dataset_exists(path, impl)


def infer_dataset_impl(path: str) -> str | None:
    """Return the format of a token file; fairseq reads an unknown format as one of 2017.

    Raises:
        UserError: the format is unknown.
    """
    dataset_exists(path, None)
    found = _fairseq_infer_dataset_impl(path)
    if found is None and os.path.isfile(index_file_path(path)):
        raise UserError(f"{index_file_path(path)}: not an index of fairseq-preprocess: preprocess it again")
    return found


def open_chunk(chunk: Chunker) -> ChunkLineIterator:
    """Replace ``Chunker.__enter__``, by which fairseq-preprocess reads; skip a byte order mark at the beginning."""
    chunk.fd = open(chunk.path, encoding="utf-8-sig")
    return ChunkLineIterator(chunk.fd, chunk.start_offset, chunk.end_offset)


def read_raw(dataset: IndexedRawTextDataset, path: str, dictionary: Dictionary) -> None:
    """Read the text of ``--dataset-impl raw`` as all others; errors as in :func:`veco_fairseq.files.read_lines`."""
    dataset.lines = list(read_lines(path))
    options = {"add_if_not_exist": False, "append_eos": dataset.append_eos, "reverse_order": dataset.reverse_order}
    dataset.tokens_list = [dictionary.encode_line(line, **options).long() for line in dataset.lines]
    dataset.sizes = np.array(list(map(len, dataset.tokens_list)))


def add_from_file(dictionary: Dictionary, file) -> None:
    """Add the tokens of a dict.txt, with :func:`add_dictionary` if the file is given by its name."""
    if isinstance(file, (str, Path)):
        add_dictionary(dictionary, file)
    else:
        _fairseq_add_from_file(dictionary, file)


class _Eos:
    def __str__(self) -> str:
        return "eos"


def of_sentences(build: Callable) -> Callable:
    """Make a ``_build_slice_indices`` that can cut a text into its sentences (``--sample-break-mode eos``).

    fairseq's shorter way for them asks NumPy for a type that version 2 has not. Its way for all others, which this break mode gets
    by another name, gives the same.
    """

    @wraps(build)
    def built(sizes, break_mode, document_sep_len: int, block_size: int | None):
        if break_mode == "eos":
            break_mode, block_size = _Eos(), block_size or 0
        return build(sizes, break_mode, document_sep_len, block_size)

    return built
