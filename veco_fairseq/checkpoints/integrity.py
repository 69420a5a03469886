# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checks that a checkpoint's bytes are those that were written, and that its weights are numbers.

torch.save writes a zip archive with a CRC-32 of each record, but torch does not check these when it reads. The format of
torch before 1.6 and safetensors have no checksums.
"""

import threading
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.options.literals import leaves
from veco_fairseq.parallel import default_workers

CHUNK = 1 << 20  # bytes at a time, few enough to stay in the processor's cache
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # types of weights
LARGEST_REPEATED = 1 << 30  # bytes of a tensor whose numbers are stored once, and stand in many places of it


class WrongBytes(Exception):
    """A record's CRC-32 is not the one that was written; ``record`` is its :class:`zipfile.ZipInfo`."""

    def __init__(self, record: zipfile.ZipInfo):
        super().__init__(f"{record.filename}: its CRC-32 is not what was written")
        self.record = record


class WrongSize(Exception):
    """A record does not have as many bytes as its tensor."""


class Records:
    """The records of a file that torch.save wrote.

    Args:
        path: the file.

    Raises:
        zipfile.BadZipFile: its directory is damaged.
    """

    def __init__(self, path: Path):
        self.path = path
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
        tensors = {int(record.filename.rpartition("/")[2]): record for record in records if _is_tensor(record)}
        self.tensors = [tensors[number] for number in sorted(tensors)]
        self.others = [record for record in records if not _is_tensor(record)]
        # torch.serialization.set_crc32_options(False) saves without: zeros
        self.have_crc = any(record.CRC for record in records)
        # a program that packed the file again may have compressed it, and then a tensor's bytes do not stand in it
        self.are_plain = all(record.compress_type == zipfile.ZIP_STORED for record in records)

    def check(self, records: Iterable[zipfile.ZipInfo]) -> None:
        """Read these records, on all processors, and compare their CRC-32.

        Raises:
            WrongBytes: of the first record that differs.
        """
        if self.have_crc:
            # the largest first, so that no thread is still busy with it at the end
            largest_first = sorted(records, key=lambda record: record.file_size, reverse=True)
            own = threading.local()  # an archive for each thread, since threads would wait for each other at one

            def begin() -> None:
                own.archive = zipfile.ZipFile(self.path)

            with ThreadPoolExecutor(min(16, default_workers()), initializer=begin) as pool:
                for _ in pool.map(lambda record: _check(own.archive, record), largest_first):
                    pass

    def of_state(self, state: Any) -> dict[str, zipfile.ZipInfo]:
        """Return the record of each storage in a loaded state, by the name of its first tensor, as ``model.a.weight``.

        torch.save numbers the storages in the order in which it meets them. The result is empty if this is not so here. What
        has no bytes is left out: torch makes several storages of an empty one that several tensors have.

        Raises:
            WrongSize: a storage has a size that no record has.
        """
        names: dict[int, str] = {}
        sizes: list[int] = []
        for name, tensor in tensors_of(state):
            if tensor.layout != torch.strided:  # a sparse one has several storages
                return {}
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage._cdata not in names:
                names[storage._cdata] = name
                sizes.append(storage.nbytes())
        records = [record for record in self.tensors if record.file_size]
        missing = Counter(sizes) - Counter(record.file_size for record in records)
        if missing:
            raise WrongSize(f"a tensor of {max(missing):,} bytes has no record of this size")
        if sizes != [record.file_size for record in records]:
            return {}
        return dict(zip(names.values(), records))


def _check(archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    try:
        with archive.open(record) as file:
            while file.read(CHUNK):
                pass
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:  # of its header, too
        raise WrongBytes(record) from error


def _is_tensor(record: zipfile.ZipInfo) -> bool:
    folder, _, number = record.filename.rpartition("/")
    return folder.endswith("/data") and number.isdecimal()


def tensors_of(state: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in nested dicts, lists and options, in their order, with their names, as ``model.a.weight``."""
    return ((name, value) for name, value in leaves(state) if isinstance(value, Tensor))


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor's numbers are in memory, one by one."""
    return tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"


def place_of(tensor: Tensor) -> tuple[Any, ...]:
    """Return where a tensor's numbers lie in memory, and how they are read there: the same for tied ones, on any device."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def check_kinds(path: str | Path, tensors: Mapping[str, Any], advice: str) -> None:
    """Refuse tensors that are no weights, such as whole numbers, of which a scale would make weights.

    Raises:
        UserError: names the tensor.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise UserError(f"{path}: its model, {name}, is no tensor: {advice}")
        # A counter may be a tensor of whole numbers; a weight may not.
        if not is_dense(tensor) or not (tensor.dtype in NUMBERS or tensor.numel() <= 1 and not tensor.is_complex()):
            kind = f"{tensor.dtype}".removeprefix("torch.") if is_dense(tensor) else f"{tensor.layout} on {tensor.device}"
            raise UserError(f"{path}: its model, {name}, is a tensor of {kind}, and must be one of numbers: {advice}")


def check_finite(path: str | Path, tensors: Mapping[str, Any]) -> None:
    """Refuse weights that are no numbers, or more than the file has room for.

    Raises:
        UserError: a tensor holds NaN or infinity, or is huge, of a few numbers that it repeats; names the tensor.
    """
    looked_at = set()
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or not is_dense(tensor) or tensor.dtype not in NUMBERS or not tensor.numel():
            continue
        stored = tensor.untyped_storage().nbytes()
        if tensor.nbytes > max(stored, LARGEST_REPEATED):
            raise UserError(
                f"{path}: its tensor {name} has {tensor.numel():,} values, and the file {stored:,} bytes of them: it was made to "
                "fill the memory, or is damaged; use another checkpoint"
            )
        if place_of(tensor) in looked_at:
            continue
        looked_at.add(place_of(tensor))
        lowest, highest = tensor.detach().aminmax()  # one pass, which keeps NaN
        if not (lowest.isfinite() and highest.isfinite()):
            count = int((~tensor.detach().isfinite()).sum())
            raise UserError(
                f"{path}: its tensor {name} holds NaN or infinity ({count:,} of {tensor.numel():,} values), so the model "
                "is useless: its training diverged; use an earlier checkpoint"
            )
