# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What Python 3.14 needs: fairseq's file mended, and data loaders that fork; and the versions that setup.py names."""

import hashlib
import os
import re
import runpy
import subprocess
import sys
import typing
from pathlib import Path
from types import SimpleNamespace

import fairseq
import pytest
from conftest import REPOSITORY

from veco_fairseq.commands import mend_fairseq as mending
from veco_fairseq.errors import UserError


@pytest.fixture(params=["\n", "\r\n"], ids=["unix", "dos"])
def released(tmp_path, request):
    """The released file, also where the installed one is mended, with the line ends of wheel and of source package."""
    path = tmp_path / "fairseq" / mending.NAME
    path.parent.mkdir(parents=True)
    installed = (Path(fairseq.__path__[0]) / mending.NAME).read_text(encoding="utf-8")
    path.write_text(installed.replace(mending.INSERTED, ""), encoding="utf-8", newline=request.param)
    return path


def test_mends_once_and_only_the_released_file(released):
    before = released.read_bytes()
    folder = released.parent.parent
    assert mending.mend(folder).endswith(": mended")
    after = released.read_bytes()
    ends = b"\r\n" if b"\r\n" in before else b"\n"
    inserted = mending.INSERTED.encode().replace(b"\n", ends)
    assert after.count(inserted) == 1 and after.replace(inserted, b"") == before
    assert "mended before" in mending.mend(folder) and released.read_bytes() == after
    other = before + b"\xff\n"  # no UTF-8, whoever changed it
    released.write_bytes(other)
    found = hashlib.sha256(other.replace(b"\r\n", b"\n").replace(b"\xff", "\ufffd".encode())).hexdigest()
    told = f"is not fairseq-fixed 0.12.3.1's (SHA-256 {found[:12]}..., not 901b08c0d0cf...): pip install --force-reinstall"
    with pytest.raises(UserError, match=re.escape(told)):
        mending.mend(folder)
    assert released.read_bytes() == other and [released] == list(released.parent.iterdir())


def test_a_copy_that_shares_the_file_is_left_alone(released, tmp_path):
    shared = tmp_path / "cache.py"  # as uv's cache does
    shared.hardlink_to(released)
    before = shared.read_text()
    mending.mend(released.parent.parent)
    assert shared.read_text() == before != released.read_text()


def test_the_mended_function_reads_optional_types_however_they_print(released):
    mending.mend(released.parent.parent)
    read = runpy.run_path(str(released))["interpret_dc_type"]
    for of in (int, list[str], dict[str, int]):
        # on every Python the last one of the built-in types prints as 3.14 prints them all
        for optional in (typing.Optional[of], typing.Union[None, of], of | None):  # noqa: UP007, UP045
            assert read(optional) == of
    for other in (int, typing.Union[int, str], dict[str, None], tuple[int, None]):  # noqa: UP007
        assert read(other) == other
    assert read(typing.Any) is str


def test_the_mended_file_has_the_rights_of_the_old_one(released):
    released.chmod(0o755)
    mending.mend(released.parent.parent)
    assert released.stat().st_mode & 0o777 == 0o755
    assert "was mended before" in mending.mend(released.parent.parent)


def test_what_cannot_be_mended_ends_with_1(released, monkeypatch, capsys):
    monkeypatch.setattr(mending.sys, "version_info", (3, 14))
    monkeypatch.setattr(mending.sys, "argv", ["mend_fairseq.py"])
    where = SimpleNamespace(submodule_search_locations=[str(released.parent.parent)])
    monkeypatch.setattr(mending.importlib.util, "find_spec", lambda name: where)
    mending.main(None)
    assert capsys.readouterr().out.endswith(": mended\n")
    released.write_text("other")
    with pytest.raises(UserError, match="is not fairseq-fixed"):
        mending.main(None)
    for missing in (None, SimpleNamespace(submodule_search_locations=None)):  # a module fairseq.py is no fairseq
        monkeypatch.setattr(mending.importlib.util, "find_spec", lambda name, missing=missing: missing)
        with pytest.raises(UserError, match="fairseq is not installed for .*: pip install"):
            mending.main(None)


def test_nothing_is_mended_before_3_14():
    result = subprocess.run([sys.executable, REPOSITORY / "scripts/mend_fairseq.py"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert ("nothing to mend" if sys.version_info < (3, 14) else "was mended before") in result.stdout


def test_the_plug_in_says_how_to_mend(tmp_path):
    (tmp_path / "fairseq.py").write_text("raise TypeError('str | None is not callable')")
    code = "import sys; sys.version_info = (3, 14); import veco_fairseq.plugin"
    path = os.pathsep.join((str(tmp_path), str(REPOSITORY)))
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path}, cwd=tmp_path, timeout=300
    )
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ") and "str | None is not callable" in last
    assert last.endswith(f"/{Path(sys.executable).name} -m veco_fairseq mend-fairseq")  # where there is no clone, too


LOADERS = """
import multiprocessing
multiprocessing.set_start_method("forkserver", force=True)  # the default of 3.14
import torch
from fairseq.data.iterators import EpochBatchIterator, GroupedEpochBatchIterator
import veco_fairseq.plugin

class Squares(torch.utils.data.Dataset):
    square = lambda self, number: number * number  # as fairseq's data sets have them, and pickle does not
    supports_prefetch = False
    def __init__(self): self.function = lambda number: number * number
    def __len__(self): return 6
    def __getitem__(self, index): return self.function(index)

for workers in (0, 2):
    for kind, batches in ((EpochBatchIterator, [[5, 3], [4]]), (GroupedEpochBatchIterator, [[[5, 3], [4]]])):
        iterator = kind(Squares(), lambda items: sum(items), batches, num_workers=workers)
        print(sorted(iterator.next_epoch_itr(shuffle=False)))
print(torch.utils.data.DataLoader is torch.utils.data.dataloader.DataLoader, multiprocessing.get_start_method())
"""


def test_loaders_are_forked_where_python_would_use_a_fork_server():
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", LOADERS], capture_output=True, text=True, timeout=300)
    assert result.stdout.splitlines() == ["[16, 34]"] * 4 + ["True forkserver"], result.stderr


def test_versions():
    requirements = runpy.run_path(str(REPOSITORY / "scripts/versions.py"))["requirements"]
    asked = ["torch>=2.6", "numpy", "fairseq-fixed==0.12.3.1", 'liger-kernel>=0.8.5; extra == "gpu"']
    assert list(requirements(asked, "lowest")) == ["torch==2.6"]
    assert list(requirements(asked, "newest")) == ["torch", "numpy"]
