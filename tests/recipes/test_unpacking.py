# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The recipes' archives are unpacked into their folder, and nowhere else."""

import io
import os
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import REPOSITORY

unpack = runpy.run_path(str(REPOSITORY / "data-bin-recipes/lib/unpack.py"))["main"]


def make_tar(path, *members):
    """Of (name, type, target of a link), a file's contents being "text"."""
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"text"))
    return str(path)


def make_zip(path, *names, link=None):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            if name == link:
                info.external_attr = 0o120777 << 16
            archive.writestr(info, "../../" if name == link else "text")
    return str(path)


FILE, LINK, HARD, DEVICE = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE
BAD = {
    "a path above": [("good", FILE, ""), ("../../x", FILE, "")],
    "a path in the middle": [("a/../../../x", FILE, "")],
    "a link": [("way", LINK, "../.."), ("way/x", FILE, "")],
    "a hard link": [("way", HARD, "../../secret"), ("way", FILE, "")],
    "a device": [("null", DEVICE, "")],
}


def outside(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "to" not in path.relative_to(folder).parts)


@pytest.fixture
def folder(tmp_path):
    """tmp_path/deep/to is unpacked into, and tmp_path holds a secret."""
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "deep").mkdir()
    return tmp_path / "deep" / "to"


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("old", [False, True], ids=["filter", "Python before 3.11.4"])
def test_a_tar_cannot_write_elsewhere(folder, tmp_path, monkeypatch, bad, old):
    path = make_tar(tmp_path / "a.tar.gz", *BAD[bad])
    folder.mkdir()
    if old:
        monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(SystemExit, match=r"^unpack\.py: error: .*a\.tar\.gz: cannot be unpacked \(.*\): it is") as caught:
        unpack(path, str(folder))
    assert "\n" not in str(caught.value)
    assert outside(tmp_path) == ["a.tar.gz", "deep", "secret"]
    assert (tmp_path / "secret").read_text() == "mine"


@pytest.mark.parametrize(
    "old",
    [False, pytest.param(True, marks=pytest.mark.skipif(sys.version_info >= (3, 14), reason="tarfile needs it itself"))],
    ids=["filter", "Python before 3.11.4"],
)
def test_folders_and_files_are_unpacked(folder, tmp_path, monkeypatch, old):
    if old:
        monkeypatch.delattr(tarfile, "data_filter")
    unpack(make_tar(tmp_path / "a.tgz", ("a", tarfile.DIRTYPE, ""), ("a/b..c", FILE, ""), ("d", FILE, "")), str(folder))
    unpack(make_zip(tmp_path / "a.zip", "zip/b..c", "e"), str(folder))
    assert all((folder / name).read_text() == "text" for name in ("a/b..c", "d", "zip/b..c", "e"))


def test_an_encrypted_zip_is_one_line(folder, tmp_path):
    path = make_zip(tmp_path / "a.zip", "x")
    whole = bytearray(Path(path).read_bytes())
    whole[6] |= 1  # the flag of encryption, of the file
    whole[whole.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    Path(path).write_bytes(whole)
    with pytest.raises(SystemExit, match=r"a\.zip: cannot be unpacked \(.*encrypted"):
        unpack(path, str(folder))


def test_what_cannot_be_inflated_is_one_line(folder, tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", "text " * 9)
    whole = bytearray(path.read_bytes())
    whole[30 + len("x")] = 0xFF  # where the file's data begin: of no kind of block that there is
    path.write_bytes(whole)
    with pytest.raises(SystemExit, match=r"a\.zip: cannot be unpacked \(.*invalid block type"):
        unpack(str(path), str(folder))


@pytest.mark.parametrize("names", [["good", "../../x"], ["/x"], ["..\\..\\x"], ["a/../../x"]])
def test_a_zip_cannot_write_elsewhere(folder, tmp_path, names):
    with pytest.raises(SystemExit, match=r"a\.zip: cannot be unpacked \('.*x' is outside the folder\)"):
        unpack(make_zip(tmp_path / "a.zip", *names), str(folder))
    assert outside(tmp_path) == ["a.zip", "deep", "secret"]


def test_a_link_in_a_zip_is_a_file(folder, tmp_path):
    with pytest.raises(SystemExit):
        unpack(make_zip(tmp_path / "a.zip", "way", "way/x", link="way"), str(folder))
    assert outside(tmp_path) == ["a.zip", "deep", "secret"]
    assert not (folder / "way").is_symlink()


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:40], lambda whole: b"<html>", lambda whole: b"", lambda whole: whole[:-30] + bytes(30)]
)
@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tgz", "a.tar.bz2"])
def test_a_damaged_archive_is_one_line(folder, tmp_path, name, damage):
    path = (make_zip if name == "a.zip" else lambda path, name: make_tar(path, (name, FILE, "")))(tmp_path / name, "x")
    with open(path, "rb") as file:
        whole = file.read()
    with open(path, "wb") as file:
        file.write(damage(whole))
    with pytest.raises(SystemExit, match=f"{name}: cannot be unpacked"):
        unpack(path, str(folder))


def test_unpack_in_a_recipe(folder, tmp_path):
    source = (
        f"set -euo pipefail; source {REPOSITORY}/data-bin-recipes/lib/understanding.sh; OUT={tmp_path}; step unpacking {folder}"
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "VECO_SKIP_SETUP": "1", "PATH": path}

    def run(path):
        script = f"{source} unpack '{{}}' {path}"
        return subprocess.run(["bash", "-c", script, "a recipe"], capture_output=True, text=True, env=environment)

    result = run(make_tar(tmp_path / "a.tar.gz", *BAD["a path above"]))
    assert result.returncode == 1 and not folder.exists() and not (tmp_path / "x").exists()
    assert "a.tar.gz: cannot be unpacked" in result.stderr and "Traceback" not in result.stderr
    result = run(make_tar(tmp_path / "b.tgz", ("b/text", FILE, ""), ("b/link", LINK, "text")))
    assert result.returncode == 0, result.stderr
    assert (folder / "b/text").read_text() == (folder / "b/link").read_text() == "text"
