# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Notes on what a run has done, and files that grow from where an earlier run has left them."""

import errno
import os

import numpy as np
import pytest

from veco_fairseq.data.prepare.growing import GrowingFile, GrowingTokens, Progress, can_go_on, hidden_paths, to_be_repeated
from veco_fairseq.errors import UserError


def test_notes_are_of_one_part_and_of_one_text(tmp_path):
    progress = Progress(tmp_path / "root/notes")
    assert progress.begun("mono/xx", {}) is None and progress.survey("mono/xx", {}) is None
    text = {"train": (("ä", 3),), "valid": 2}
    progress.surveys["mono/xx"] = [text, {"rows": 7}]
    progress.part = {"name": "mono/xx", "made_from": text, "done": 5}
    progress.save()
    assert "ä" in (tmp_path / "root/notes").read_text(encoding="utf-8")
    again = Progress(tmp_path / "root/notes")
    assert again.begun("mono/xx", text)["done"] == 5 and again.survey("mono/xx", text) == {"rows": 7}
    for name, made_from in (("mono/yy", text), ("mono/xx", {**text, "valid": 3})):
        assert again.begun(name, made_from) is None and again.survey(name, made_from) is None
    for damaged in ("{", "3", "[1, 2, 3]"):
        (tmp_path / "root/notes").write_text(damaged)
        again = Progress(tmp_path / "root/notes")
        assert (again.surveys, again.part) == ({}, {})


def test_a_file_goes_on_where_it_was_noted_and_no_further(tmp_path):
    path = tmp_path / "folder/file"
    file = GrowingFile(path)
    file.write(b"abc")
    assert file.mark() == 3
    file.write(b"defg")
    assert file.length == 7
    file.close()
    again = GrowingFile(path, 3)
    again.write(b"x")
    assert again.mark() == 4
    again.close()
    assert path.read_bytes() == b"abcx"
    GrowingFile(path).close()
    assert path.read_bytes() == b""


def test_what_is_noted_is_on_the_disk_before(tmp_path, monkeypatch):
    """Otherwise notes could outlive a power cut that the tokens do not."""
    on_disk, fsync = {}, os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda number: (fsync(number), on_disk.update({os.fstat(number).st_ino: os.fstat(number).st_size}))
    )
    tokens = GrowingTokens(tmp_path / "train", 300)
    tokens.add(np.array([5, 6, 2, 7, 2]), np.array([3, 2], dtype=np.int32))
    assert on_disk == {} and tokens.mark() == {"lines": 2, "tokens": 5}
    tokens.close()
    assert [on_disk[path.stat().st_ino] for path in hidden_paths(tmp_path / "train")] == [5 * 2, 2 * 4]


def test_the_index_is_the_last_to_get_its_name(tmp_path, monkeypatch):
    """Where it is, a part counts as made; a kill between the two renamings leaves the tokens without it."""
    named, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (replace(old, new), named.append(os.path.basename(new))))
    tokens = GrowingTokens(tmp_path / "train", 300)
    tokens.add(np.array([5, 6, 2]), np.array([3], dtype=np.int32))
    tokens.finish()
    assert named == ["train.bin", "train.idx"]


@pytest.mark.parametrize("vocabulary, itemsize", [(65_499, 2), (65_500, 4)])
def test_tokens_go_on_if_both_files_have_what_is_noted(tmp_path, vocabulary, itemsize):
    prefix = tmp_path / "train"
    tokens = GrowingTokens(prefix, vocabulary)
    tokens.add(np.array([5, 6, 2, 7, 2]), np.array([3, 2], dtype=np.int32))
    state = tokens.mark()
    tokens.close()
    assert state == {"lines": 2, "tokens": 5}
    sizes = [path.stat().st_size for path in hidden_paths(prefix)]
    assert sizes == [5 * itemsize, 2 * 4] and can_go_on(prefix, vocabulary, state)
    hidden_paths(prefix)[0].rename(f"{prefix}.bin")  # as a run leaves it that is killed before its index has its name
    assert can_go_on(prefix, vocabulary, state) and hidden_paths(prefix)[0].exists()
    for path in hidden_paths(prefix):
        content = path.read_bytes()
        path.write_bytes(content + b"more")
        assert can_go_on(prefix, vocabulary, state)
        path.write_bytes(content[:-1])
        assert not can_go_on(prefix, vocabulary, state)
        path.write_bytes(content)
    os.unlink(hidden_paths(prefix)[1])
    assert not can_go_on(prefix, vocabulary, state)


def test_what_cannot_be_written_is_told_and_other_errors_stay(tmp_path):
    for number, words, advice in (
        (errno.EDQUOT, "Disk quota exceeded", "free some space"), (errno.EFBIG, "File too large", "raise ulimit -f"),
        (errno.EACCES, "Permission denied", "change its rights"), (errno.EIO, "Input/output error", "choose another folder"),
    ):  # fmt: skip
        with pytest.raises(UserError) as raised, to_be_repeated(tmp_path / "x"):
            raise OSError(number, words)
        again = f"{advice} and run the same command again, which goes on from here"
        assert str(raised.value) == f"{tmp_path}/x: cannot be written ({words}): {again}"
    for other in (KeyError, BrokenPipeError(errno.EPIPE, "Broken pipe")):  # of | head, which has seen enough of what is said
        with pytest.raises((KeyError, BrokenPipeError)), to_be_repeated(tmp_path / "x"):
            raise other
