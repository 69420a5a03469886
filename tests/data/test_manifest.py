# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""When a step counts as done, and what is removed before it is done again."""

import errno
import json
import os
from pathlib import Path

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.manifest import Manifest, checksum, fingerprint


@pytest.fixture
def manifest(tmp_path):
    """One with two steps that are done."""
    found = Manifest(tmp_path, "m.json", ["a"])
    for step, name in (("one", "a"), ("two", "b")):
        (tmp_path / name).write_text(f"text of {step}")
        found.finish(step, {"lines": [1, 2], "of": step}, [name], {})
    return found


def test_a_step_is_done_if_its_sources_and_files_are_the_same(manifest, tmp_path):
    made_from = {"lines": (1, 2), "of": "one"}
    assert manifest.is_done("one", made_from) and Manifest(tmp_path, "m.json", ["a"]).is_done("one", made_from)
    assert not manifest.is_done("one", {**made_from, "lines": (1, 3)}) and not manifest.is_done("three", made_from)
    (tmp_path / "a").write_text("longer than it was")
    assert not manifest.is_done("one", made_from)
    (tmp_path / "a").unlink()
    assert not manifest.is_done("one", made_from)


def test_what_is_done_again_is_forgotten_and_removed_first(manifest, tmp_path, capsys):
    for name in (".a.77.tmp", ".c.78.tmp", "c", "other"):
        (tmp_path / name).touch()
    manifest.start("one", ["c"])
    assert sorted(os.listdir(tmp_path)) == ["b", "m.json", "other"]
    assert list(Manifest(tmp_path, "m.json", []).steps) == ["two"]
    line = f"{tmp_path}: was made from other options or texts, or has changed since: one and what follows are made again\n"
    assert capsys.readouterr().out == line
    manifest.start("two")
    assert capsys.readouterr().out == "" and not (tmp_path / "b").exists()  # told once
    Manifest(tmp_path, "m.json", []).start("new", ["d"])
    assert capsys.readouterr().out == ""


def test_steps_of_another_vocabulary_are_not_left_over(manifest):
    manifest.require_all(["one", "two", "three"])
    with pytest.raises(UserError, match=": two would be left over from another vocabulary"):
        manifest.require_all(["one"])
    with pytest.raises(UserError, match=": one, two would be left over"):
        manifest.require_all([])


def test_files_of_others_are_not_replaced(manifest, tmp_path):
    Manifest(tmp_path, "m.json", ["a", "b"])
    with pytest.raises(UserError, match="holds a b that this command did not make: name another folder"):
        Manifest(tmp_path, "other.json", ["none", "b"])


def test_a_manifest_that_cannot_be_read_is_no_reason_to_remove_the_folder(manifest, tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(UserError) as raised:
        Manifest(tmp_path, "m.json", [])
    assert str(raised.value) == f"{tmp_path}/m.json: permission denied: change its rights or choose another path"


@pytest.mark.parametrize("step", [{"files": {"/a": 4}, "report": {}}, {"files": {"x/../../a": 4}, "report": {}},
                                  {"files": {"a": 4}, "report": []}, {"files": {"a": 4}}])  # fmt: skip
def test_steps_that_would_remove_other_files_are_refused(tmp_path, step):
    (tmp_path / "m.json").write_text(json.dumps({"steps": {"one": {"made_from": {}, **step}}}))
    with pytest.raises(UserError, match=r"m\.json: damaged: remove the folder"):
        Manifest(tmp_path, "m.json", [])


def test_a_file_that_was_replaced_has_another_fingerprint(tmp_path):
    path = tmp_path / "text"
    path.write_text("text")
    os.utime(path, ns=(1, 2_000_000_003))
    assert fingerprint([path, path]) == [["text", 4, 2_000_000_003, checksum(b"text", b"text", b"text")]] * 2
    assert len({checksum(b"ab", b"c"), checksum(b"a", b"bc"), checksum(b"abc"), checksum(b"c", b"ab")}) == 4


@pytest.mark.parametrize("size, places", [(5, (0, 2, 4)), (500_001, (0, 65_535, 217_232, 282_767, 434_465, 500_000))])
def test_a_file_of_the_same_size_and_time_has_another_fingerprint_if_its_beginning_middle_or_end_differ(tmp_path, size, places):
    """Archives that are made reproducible, and cp -p, keep the time; the new text counted as the old one."""
    path = tmp_path / "text"
    found = []
    for place in (None, *places):
        content = bytearray(b"a" * size)
        if place is not None:
            content[place] = ord("b")
        path.write_bytes(content)
        os.utime(path, ns=(1, 2_000_000_003))
        found.append(json.dumps(fingerprint([path])))
    assert len({*found}) == 1 + len(places)


def test_a_pipe_has_no_fingerprint(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: is a pipe, and would be read more than once"):
        fingerprint([tmp_path / "pipe"])


def test_a_file_that_cannot_be_read_is_told():
    """... as a disk or a server that fails is, here by a file of which no byte can be read."""
    with pytest.raises(UserError, match=r"/proc/self/mem: cannot be read \(Input/output error\)"):
        fingerprint([Path("/proc/self/mem")])
