# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How many lines a text has, found out without reading line by line."""

import gzip
import lzma
import os

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.files import count_lines, read_lines


@pytest.mark.parametrize(
    "raw", [b"", b"a", b"a\n", b"a\r\nb\r\n", b"\n\n", "\ufeffa\u2028b\x85c\n".encode(), b"a\n" * 600_000 + b"b"]
)
def test_lines_are_counted_as_they_are_read(tmp_path, raw):
    for name, pack in (("t", bytes), ("t.gz", gzip.compress), ("t.xz", lzma.compress)):
        (tmp_path / name).write_bytes(pack(raw))
        assert count_lines(tmp_path / name) == len(list(read_lines(tmp_path / name)))


@pytest.mark.parametrize("name", ["t.gz", "t.xz"])
def test_damage_is_told_by_its_line(tmp_path, name):
    packed = (gzip.compress if name.endswith("gz") else lzma.compress)(os.urandom(30_000).hex().encode() + b"\n")
    (tmp_path / name).write_bytes(packed[:-40])
    for read in (count_lines, lambda path: list(read_lines(path))):
        with pytest.raises(UserError, match="damaged after line"):
            read(tmp_path / name)
