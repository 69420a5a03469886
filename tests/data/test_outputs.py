# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Files and folders that are written as a whole or not at all, and texts whose reading fails."""

import errno
import gzip
import lzma
import os
import random
import signal
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import pytest
from conftest import REPOSITORY

from veco_fairseq.errors import UserError
from veco_fairseq.files import (
    atomic_folder,
    atomic_output,
    count_lines,
    count_translations,
    is_device,
    read_blocks,
    read_json,
    read_lines,
    read_translations,
    write_text,
)


def test_folders_are_made_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a/b/text"
    with atomic_output(path) as temporary:
        assert fnmatch(temporary, tmp_path / "a/b/.text.*.tmp") and not path.exists()
        temporary.write_text("new")
    assert path.read_text() == "new" and os.listdir(path.parent) == ["text"]


def test_nobody_writes_into_the_file_of_another(tmp_path):
    """... who writes the same one: another thread, or a process on another machine, which may have the same number."""
    with atomic_output(tmp_path / "text") as first, atomic_output(tmp_path / "text") as second:
        first.write_text("first")
        second.write_text("second")
        assert first.read_text() == "first"
    assert (tmp_path / "text").read_text() == "first" and os.listdir(tmp_path) == ["text"]


def test_a_device_or_a_pipe_is_written_into_and_stays(tmp_path):
    """A renamed file took the place of /dev/full, where a script of root wrote there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "a line\n")
    assert os.read(end, 100) == b"a line\n" and pipe.is_fifo()
    with pytest.raises(ValueError):
        with atomic_output(pipe):
            raise ValueError
    os.close(end)
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]
    assert is_device(Path("/dev/null")) and not any(map(is_device, (tmp_path, tmp_path / "none", Path(__file__))))


@pytest.mark.parametrize("linked", [False, True])
def test_an_open_file_is_written_into(tmp_path, linked):
    """As /dev/stdout, a link to /proc/self/fd/1, where the shell has opened a file for it."""
    with open(tmp_path / "text", "w+") as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        if linked:
            (tmp_path / "link").symlink_to(path)
            path = tmp_path / "link"
        write_text(path, "new")
        assert file.read() == "new" and path.is_symlink()
    (tmp_path / "usual").symlink_to(tmp_path / "text")
    assert not is_device(tmp_path / "usual")


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_leads_to_what_was_written(tmp_path, there):
    """... on a larger disk, say."""
    (tmp_path / "large").mkdir()
    if there:
        (tmp_path / "large/model").write_text("old")
        (tmp_path / "large/folder").mkdir()
    (tmp_path / "model").symlink_to("large/model")
    (tmp_path / "folder").symlink_to("large/folder")
    with pytest.raises(ValueError), atomic_output(tmp_path / "model") as temporary:
        assert temporary.parent == tmp_path / "large"
        raise ValueError
    assert (tmp_path / "model").exists() is there
    write_text(tmp_path / "model", "new")
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "text").write_text("new")
    assert (tmp_path / "model").is_symlink() and (tmp_path / "folder").is_symlink()
    assert (tmp_path / "large/model").read_text() == (tmp_path / "large/folder/text").read_text() == "new"
    assert sorted(os.listdir(tmp_path / "large")) == ["folder", "model"]


TERMINATED = """
import os, signal, sys
from veco_fairseq.files import atomic_folder, atomic_output
with atomic_folder(sys.argv[1]) as folder, atomic_output(folder / "text") as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGTERM)
    print("not reached")
"""


def test_sigterm_leaves_nothing_behind(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        [sys.executable, "-c", TERMINATED, tmp_path / "new"], env=environment, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout, os.listdir(tmp_path)) == (143, b"", [])


def test_sigterm_keeps_its_meaning(tmp_path):
    """Afterwards, and where it has one; and in another thread, which cannot change it."""
    before = signal.getsignal(signal.SIGTERM)
    with atomic_output(tmp_path / "text") as temporary:
        temporary.write_text("")
        during = signal.getsignal(signal.SIGTERM)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write_text, tmp_path / "other", "").result()
        assert signal.getsignal(signal.SIGTERM) == during
    assert signal.getsignal(signal.SIGTERM) == before and (during == before) == (before != signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with atomic_output(tmp_path / "text") as temporary:
            temporary.write_text("")
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.ENOENT, "no", "elsewhere")], ids=repr)
def test_another_error_passes_and_the_old_file_stays(tmp_path, error):
    (tmp_path / "text").write_text("old")
    with pytest.raises(type(error)):
        with atomic_output(tmp_path / "text") as temporary:
            temporary.write_text("half")
            raise error
    assert (tmp_path / "text").read_text() == "old" and os.listdir(tmp_path) == ["text"]


PYTORCHS = "PytorchStreamWriter failed writing file data/0"


@pytest.mark.parametrize("error, words", [
    (OSError(errno.EISDIR, "Is a directory"), "(Is a directory): choose another path"),
    (OSError(errno.EIO, "Input/output error"), "(Input/output error): free some space or choose another folder"),
    *((RuntimeError(words), "(the write failed): free some space or choose another folder") for words in (
        "[enforce fail] . unexpected pos 768 vs 662", "basic_ios::clear: iostream error", "I/O error", "file write failed")),
    (RuntimeError("Permission denied (os error 13)"), "(Permission denied): change its rights or choose another path"),
    (RuntimeError("Error: I/O error: Read-only file system (os error 30)"), "(Read-only file system): choose another folder"),
    (RuntimeError(PYTORCHS), "(the write failed): free some space or choose another folder"),
    (OSError(errno.EROFS, PYTORCHS), "(Read-only file system): choose another folder"),
    (OSError(errno.EACCES, "Permission denied", "HERE"), "(Permission denied): change its rights or choose another path"),
    (OSError(errno.EACCES, "Permission denied", "HERE/text"), "(Permission denied): change its rights or choose another path"),
    (OSError(errno.EACCES, "Permission denied", "TEMPORARY.idx"), "(Permission denied): change its rights or choose another path"),
])  # fmt: skip
def test_why_it_could_not_be_written_and_what_to_do(tmp_path, error, words):
    with pytest.raises(UserError) as caught:
        with atomic_output(tmp_path / "text") as temporary:
            if isinstance(error, OSError) and error.filename:
                error.filename = error.filename.replace("HERE", str(tmp_path)).replace("TEMPORARY", str(temporary))
            try:
                raise error
            except OSError as first:
                if first.strerror == PYTORCHS:  # PyTorch's own error comes while this one is on its way
                    raise RuntimeError(PYTORCHS)  # noqa: B904
                raise
    assert str(caught.value) == f"{tmp_path / 'text'}: cannot be written {words}"


def test_a_folder_is_written_as_a_whole(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()  # an empty one is as good as none
    with pytest.raises(KeyboardInterrupt):
        with atomic_folder(path) as folder:
            (folder / "half").touch()
            raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["folder"] and os.listdir(path) == []
    with atomic_folder(path) as folder:
        (folder / "whole").touch()
    assert os.listdir(tmp_path) == ["folder"] and os.listdir(path) == ["whole"]
    for there in (path, path / "whole"):
        with pytest.raises(UserError, match=f"--output {there}: is there already"):
            with atomic_folder(there):
                pass
    assert os.listdir(path) == ["whole"]


NOISE = random.Random(1).randbytes(30_000).hex().encode() + b"\n"


@pytest.mark.parametrize("name, content, line", [
    ("t.gz", gzip.compress(b"a\nb\n", mtime=0) + b"no more of it", 2), ("t.gz", gzip.compress(b"a\n" + NOISE, mtime=0)[:-40], 1),
    ("t.gz", gzip.compress(b"", 0, mtime=0)[:10] + b"\xff" * 9, 0), ("t.xz", lzma.compress(b"a\nb\n")[:-2] + b"??", 0),
])  # fmt: skip
def test_damage_of_any_kind_is_told_by_each_reader(tmp_path, name, content, line):
    path = tmp_path / name
    path.write_bytes(content)
    for read in (count_lines, lambda path: list(read_lines(path)), lambda path: list(read_blocks(path, 5))):
        with pytest.raises(UserError, match=rf"{name}: is damaged after line {line} \(.+\): fetch or compress it again"):
            read(path)
    with pytest.raises((OSError, EOFError, zlib.error, lzma.LZMAError)):
        {"t.gz": gzip, "t.xz": lzma}[name].open(path).read()


@pytest.mark.parametrize("content, message", [
    (b"a\nb\0\n", r"line 2: has a NUL character at 2"), (b"a\n\xe2\x82", r"line 2: not UTF-8 \(byte 0xe2 at 1\)"),
    (b"a\nbc\xe2\nd", r"line 2: not UTF-8 \(byte 0xe2 at 3\)"),
])  # fmt: skip
def test_what_is_no_text_has_no_number_of_lines(tmp_path, content, message):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(UserError, match=message):
        count_lines(tmp_path / "text")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="a file that cannot be read from its beginning")
def test_another_error_of_the_system_is_told_in_its_words():
    with pytest.raises(UserError, match=r"/proc/self/mem: cannot be read \(Input/output error\)"):
        list(read_lines("/proc/self/mem"))


def test_texts_that_are_each_others_translations_have_as_many_lines(tmp_path):
    x, y, z = (tmp_path / name for name in "xyz")
    for path, lines in ((x, 1200), (y, 1200), (z, 1201)):
        path.write_text("a\n" * lines)
    assert count_translations(x, y) == 1200
    with pytest.raises(UserError, match="x has 1,200 lines and .*/z has 1,201: line N"):
        count_translations(x, y, z)
    with pytest.raises(UserError, match="x has 1,200 lines and .*/z has 1,201: line N"):
        read_translations(x, z)
    z.write_text("")
    for paths in ((z, z), (x, z), (z, x)):
        with pytest.raises(UserError, match="/z: holds no text"):
            count_translations(*paths)


def test_a_pipe_has_no_lines_to_read_again(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("pipe", "is a pipe, and would be read more than once"), ("", "is a folder"), ("x", "no such file")):
        with pytest.raises(UserError, match=words):
            count_translations(tmp_path / name, tmp_path / name)


def test_the_line_of_what_is_no_json(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1,\n\n  "b": x}')
    with pytest.raises(UserError, match=r"x\.json, line 3: is not JSON \(Expecting value\)"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"x\.json: cannot be read as JSON \((maximum recursion|Stack overflow)"):
        read_json(tmp_path / "x.json")
