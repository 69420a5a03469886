# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The file that keeps a second training out of a folder, and a second command that makes it."""

import errno
import fcntl
import os
import resource
import socket
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from veco_fairseq import lock
from veco_fairseq.data.cleaning import rules
from veco_fairseq.data.cleaning.cleaning import clean
from veco_fairseq.data.prepare.binarizing import Splits, binarize
from veco_fairseq.data.prepare.preparation import prepare_root
from veco_fairseq.errors import UserError
from veco_fairseq.vocab.vocap import Options, make_vocabulary


@pytest.fixture
def file(tmp_path):
    """The file of a folder, which this process locks at most for the time of a test."""
    yield tmp_path.resolve() / lock.LOCK_NAME
    lock._release(tmp_path.resolve() / lock.LOCK_NAME)


def refused_elsewhere(folder) -> bool:
    """Whether another process may not lock the folder."""
    if (child := os.fork()) == 0:
        lock._held.clear()
        try:
            lock.lock_folder(folder)
        except UserError:
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_it_names_the_process_and_can_be_locked_twice_by_it(tmp_path, file):
    """What a killed training has left there goes."""
    file.write_text("123456789 a-host-with-a-long-name.example.org\n")
    lock.lock_folder(tmp_path)
    descriptor = lock._held[file]
    lock.lock_folder(str(tmp_path / "." / "x" / ".."))
    assert lock._held[file] == descriptor and refused_elsewhere(tmp_path)
    assert file.read_text() == f"{os.getpid()} {socket.gethostname()}\n"  # at last: whoever closes the file unlocks it
    lock._release(file)
    lock._release(file)
    assert not file.exists() and file not in lock._held and not refused_elsewhere(tmp_path)


def test_a_full_disk_is_locked_too_and_keeps_no_file(tmp_path, file):
    """... although the holder's name has no room there."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        lock.lock_folder(tmp_path)
        assert refused_elsewhere(tmp_path) and file.stat().st_size == 0
        with lock.folder_to_make(tmp_path / "new/root"):
            assert (tmp_path / "new/root" / lock.MAKING_NAME).exists()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert not (tmp_path / "new").exists()


def test_others_may_read_whose_it_is(tmp_path, file):
    before = os.umask(0o022)
    lock.lock_folder(tmp_path)
    os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_user_may_remove_it(tmp_path, file):
    lock.lock_folder(tmp_path)
    file.unlink()
    lock._release(file)
    assert file not in lock._held


def test_a_file_system_without_locks_is_told(tmp_path, file, monkeypatch, caplog):
    opened, closed = [], []

    def no_locks(descriptor, how):
        opened.append(descriptor)
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    close = os.close
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    monkeypatch.setattr(os, "close", lambda descriptor: (closed.append(descriptor), close(descriptor)))
    lock.lock_folder(tmp_path)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == f"{tmp_path}: cannot be locked ({os.strerror(errno.ENOLCK)}): start no second process that writes into it"
    assert closed == opened and file not in lock._held


@pytest.mark.parametrize("made_anew", [False, True], ids=["gone", "another's"])
def test_a_file_that_its_holder_has_just_removed_is_made_anew(tmp_path, file, monkeypatch, made_anew):
    """Between the opening and the lock: the lock of a file without a name would keep nobody out."""
    lockf, tries = fcntl.lockf, []

    def removed_at_first(descriptor, how):
        if not tries:
            file.unlink()
            if made_anew:
                file.write_text("")
        tries.append(how)
        lockf(descriptor, how)

    monkeypatch.setattr(fcntl, "lockf", removed_at_first)
    lock.lock_folder(tmp_path)
    assert len(tries) == 2 and os.path.samestat(os.fstat(lock._held[file]), file.stat())


@pytest.mark.parametrize("content, words", [
    ("", "another process"), ("12\n", "another process"), ("12 node7\n", "process 12 on node7"), ("12 here\n", "process 12"),
])  # fmt: skip
def test_the_holder_is_told_as_far_as_it_is_known(monkeypatch, content, words):
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    assert lock._in_words(content.split()) == words


@contextmanager
def another_process(held):
    """It holds what the context manager holds; its number."""
    (here, there), (wait, end) = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        os.close(end)
        with held:
            os.write(there, b".")
            os.read(wait, 1)
        os._exit(0)
    os.read(here, 1)
    try:
        yield child
    finally:
        os.close(end)
        os.waitpid(child, 0)


@pytest.mark.parametrize("make", [
    lambda folder: prepare_root(SimpleNamespace(output=folder)),
    lambda folder: binarize(Splits(("xx", "yy"), {}), Path("model"), Path("dict"), folder, workers=1),
    lambda folder: make_vocabulary(Options({}, folder, 100), print),
], ids=["prepare", "binarize", "vocap"])  # fmt: skip
def test_two_commands_do_not_make_a_folder_at_once(tmp_path, make):
    """Each removed what the other had begun: one ended with an error, and the other's data could be empty."""
    with another_process(lock.folder_to_make(tmp_path / "x" / "y")) as child, pytest.raises(UserError) as told:
        make(tmp_path / "x" / "y")
    assert str(told.value) == (
        f"{tmp_path}/x/y: process {child} already makes this folder: wait for its end, or choose another folder"
    )
    assert list(tmp_path.iterdir()) == []  # it had stayed empty


@pytest.mark.parametrize("side", [0, 1])
def test_two_commands_do_not_clean_into_a_file_at_once(tmp_path, side):
    """One had told of its own pairs, where the other's lay; the other ended with an error."""
    outputs = tmp_path / "x", tmp_path / "y"
    outputs[side].symlink_to("text")  # which stays, and what it leads to is written
    with another_process(lock.file_to_make(tmp_path / "text")) as child, pytest.raises(UserError) as told:
        clean(outputs, outputs, rules.Options("en", "de"), workers=1)
    assert str(told.value) == f"{outputs[side]}: process {child} already makes this file: wait for its end, or choose another"
    assert list(tmp_path.iterdir()) == [outputs[side]]


def test_a_folder_that_was_made_stays_without_the_lock(tmp_path):
    for text in ("1", "2"):
        with lock.folder_to_make(tmp_path / "x"):
            (tmp_path / "x" / "file").write_text(text)
            assert (tmp_path / "x" / lock.MAKING_NAME).exists()
        assert [path.name for path in (tmp_path / "x").iterdir()] == ["file"]


def test_a_folder_that_cannot_be_made_is_left_to_its_writer(tmp_path):
    (tmp_path / "x").touch()
    with lock.folder_to_make(tmp_path / "x" / "y"):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]
