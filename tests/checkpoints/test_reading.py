# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reading checkpoints: what is taken, what is refused, and what the user is told."""

import argparse
import ast
import bz2
import datetime
import errno
import gzip
import logging
import lzma
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import REPOSITORY
from support.malicious import Malicious

from veco_fairseq.checkpoints.reading import DamagedCheckpoint, read_checkpoint, read_failure
from veco_fairseq.cli import run
from veco_fairseq.errors import UserError
from veco_fairseq.files import count_lines, lines_of, read_blocks, read_lines


def save(path: Path, **state) -> Path:
    torch.save({"model": {"weight": torch.arange(3.0)}, **state}, path)
    return path


def test_no_function_trusts_a_file_by_itself():
    """Whoever reads a checkpoint that may run code has to say so, in every function that takes the choice."""
    found = {}
    for path in sorted((REPOSITORY / "veco_fairseq").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                positional = [*arguments.posonlyargs, *arguments.args]
                defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults + arguments.kw_defaults
                for argument, default in zip([*positional, *arguments.kwonlyargs], defaults):
                    if argument.arg == "trust":
                        found[f"{path.stem}.{node.name}"] = default and ast.literal_eval(default)
    assert len(found) > 10 and not [name for name, default in found.items() if default]


def test_reads_tensors_and_the_allowed_types(tmp_path):
    kinds = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")
    path = save(
        tmp_path / "a.pt",
        args=argparse.Namespace(arch="veco_tiny"),
        arrays=[np.ones(2, kind) for kind in kinds],
        numbers=[np.dtype(kind).type(1) for kind in kinds],
    )
    state = read_checkpoint(path)
    assert state["model"]["weight"].tolist() == [0, 1, 2]
    assert state["args"].arch == "veco_tiny"
    assert [str(array.dtype) for array in state["arrays"]] == list(kinds)
    assert [str(number.dtype) for number in state["numbers"]] == list(kinds)


def test_reads_numpy_1_names_of_the_same_types(tmp_path):
    # the same length, so that the pickle inside stays whole: numpy 1 writes numpy.core, torch reads it from a zip
    path = save(tmp_path / "a.pt", array=np.ones(2))
    state = pickle.loads(pickle.dumps(np.ones(2), 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert state.tolist() == [1, 1]  # numpy itself still knows the old name
    legacy = tmp_path / "legacy.pt"
    torch.save({"model": {}, "array": np.ones(2)}, legacy, _use_new_zipfile_serialization=False)
    content = legacy.read_bytes()
    assert b"numpy._core.multiarray" in content
    legacy.write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert read_checkpoint(legacy)["array"].tolist() == read_checkpoint(path)["array"].tolist() == [1, 1]


@pytest.mark.parametrize("zipped", [True, False])
def test_malicious_pickle_is_refused_and_does_not_run(tmp_path, zipped):
    trace = tmp_path / "it ran"
    path = tmp_path / "evil.pt"
    torch.save({"model": {}, "extra": Malicious(trace)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"evil\.pt: refused: it holds posix\.mkdir.*--trust-checkpoint"):
        read_checkpoint(path)
    assert not trace.exists()
    read_checkpoint(path, trust=True)  # the user's own word: it would have run
    assert trace.exists()


def test_environment_cannot_weaken_it(tmp_path, monkeypatch):
    trace = tmp_path / "it ran"
    path = save(tmp_path / "evil.pt", extra=Malicious(trace))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(UserError, match="refused"):
        read_checkpoint(path)
    assert not trace.exists()
    torch.load(path)  # what the variable does to a load that leaves it to the default
    assert trace.exists()


def test_harmless_type_that_is_not_allowed_is_named(tmp_path):
    path = save(tmp_path / "a.pt", date=datetime.date(2021, 8, 1))
    with pytest.raises(UserError, match=r"refused: it holds datetime\.date,"):
        read_checkpoint(path)
    assert read_checkpoint(path, trust=True)["date"] == datetime.date(2021, 8, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-30],
        lambda whole: whole[:10],
        lambda whole: b"\0" * len(whole),
        lambda whole: b"Not Found\n",
        lambda whole: b"<html></html>",
        lambda whole: b"version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_damaged_file_is_told_with_its_size(tmp_path, damage):
    path = save(tmp_path / "a.pt", more=torch.zeros(1000))
    content = damage(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpoint) as caught:
        read_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: cannot be read ({len(content):,} bytes): it is cut off, damaged")
    assert "\n" not in str(caught.value)


def test_other_bad_files(tmp_path):
    with pytest.raises(UserError, match=r"none\.pt: no such checkpoint"):
        read_checkpoint(tmp_path / "none.pt")
    with pytest.raises(UserError, match="is a folder"):
        read_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08" + bytes(7) + b"{}      ")  # which is whole, and has no tensors
    with pytest.raises(UserError, match=r"model\.safetensors: is of Hugging Face: give a checkpoint of fairseq; pre-"):
        read_checkpoint(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"none\.safetensors: no such checkpoint"):
        read_checkpoint(tmp_path / "none.safetensors")
    (tmp_path / "empty.pt").touch()
    with pytest.raises(DamagedCheckpoint, match=r"is empty \(0 bytes\)"):
        read_checkpoint(tmp_path / "empty.pt")
    torch.save({"state_dict": {}, "epoch": 3}, tmp_path / "other.pt")
    with pytest.raises(UserError, match=r'not a fairseq checkpoint: it has no "model" \(its keys: state_dict, epoch\)'):
        read_checkpoint(tmp_path / "other.pt")
    torch.save({letter: 1 for letter in "abcdef"}, tmp_path / "more.pt")
    with pytest.raises(UserError, match=r"\(its keys: a, b, c, d, e\)"):
        read_checkpoint(tmp_path / "more.pt")
    torch.save({"model": [1]}, tmp_path / "list.pt")
    with pytest.raises(UserError, match=r'no "model" \(its keys: model\)'):
        read_checkpoint(tmp_path / "list.pt")
    torch.save([1], tmp_path / "list.pt")
    with pytest.raises(UserError, match=r'no "model" \(list\)'):
        read_checkpoint(tmp_path / "list.pt")


def test_why_a_file_cannot_be_read(tmp_path):
    """An error of the system about the file, with its advice or its words; or, of the content, how it begins."""
    path = tmp_path / "a.pt"
    path.write_bytes(b"x" * 1234)
    for error, kind, words in (
        (OSError(errno.ENOENT, "none", "a.pt"), UserError, "no such checkpoint: check the path"),
        (OSError(errno.EACCES, "denied", "a.pt"), UserError, "permission denied: change its rights or choose another path"),
        (OSError(errno.EIO, "of the disk", "a.pt"), UserError, "cannot be read (of the disk)"),
        (OSError(errno.EINVAL, "of a seek"), DamagedCheckpoint, "(OSError: [Errno 22] of a seek)"),
        (RuntimeError("It is cut off. Please do this"), DamagedCheckpoint, "(RuntimeError: It is cut off)"),
        (KeyError(), DamagedCheckpoint, "(KeyError)"),
        (ValueError("y" * 90), DamagedCheckpoint, f"(ValueError: {'y' * 80})"),
        (pickle.UnpicklingError("Weights only load failed. In 2.6"), DamagedCheckpoint, "(UnpicklingError)"),
        (pickle.UnpicklingError("GLOBAL a.b was not an allowed global"), UserError, "refused: it holds a.b, and loading"),
        (ValueError("GLOBAL a.b was not an allowed global"), DamagedCheckpoint, "cannot be read (1,234 bytes): it is cut off"),
    ):
        found = read_failure(path, error)
        assert type(found) is kind and str(found).startswith(f"{path}: ") and words in str(found), found


def test_read_lines_splits_at_newlines_alone(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("eins\r\nzw\u2028ei\u0085\x0b\n\ndrei".encode())
    assert list(read_lines(path)) == ["eins", "zw\u2028ei\u0085\x0b", "", "drei"]


@pytest.mark.parametrize("content, said", [
    (b"\x1f\x8b\x08\0\0", "is packed: unpack it with gzip -dc"),
    (lzma.compress(b"text"), "is packed: unpack it with xz -dc"),
    (bz2.compress(b"text"), "is packed: unpack it with bzip2 -dc"),
    (b"\x28\xb5\x2f\xfd\x04\x00", "is packed: unpack it with zstd -dc"),
    (b"PK\3\4\x14\0\0", "is a checkpoint or packed: give a text, or unpack it with unzip -p"),
    ("text".encode("utf-16"), "is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"),
    ("\ufefftext".encode("utf-16-be"), "is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"),
    (b"text\n\x1f\x8b\x08\0", "line 2: not UTF-8 (byte 0x8b at 2): convert the file from its own encoding"),
])  # fmt: skip
def test_what_is_no_plain_text_is_told(tmp_path, content, said):
    path = tmp_path / "text"
    path.write_bytes(content)
    for read in (read_lines, lambda path: [count_lines(path)]):
        with pytest.raises(UserError, match=re.escape(said)):
            list(read(path))
    path.write_bytes(b"BZh and PK are letters\n")
    assert list(read_lines(path)) == ["BZh and PK are letters"]


@pytest.mark.parametrize("lines, skip", [(1, 0), (2, 0), (2, 1), (2, 3), (3, 4), (100, 0), (4, 100)])
@pytest.mark.parametrize("end", ["", "\n", "\r\n\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_blocks_have_the_lines_of_read_lines(tmp_path, lines, skip, end, suffix):
    path = tmp_path / f"text{suffix}"
    text = f"\ufeffeins\r\nzw\u2028ei\u0085\x0b\n\n\ufeffdr\rei\r\r\n\nfünf{end}".encode()
    path.write_bytes(gzip.compress(text) if suffix else text)
    blocks = [lines_of(block) for block in read_blocks(path, lines, skip)]
    assert all(len(block) == lines for block in blocks[:-1]) and all(blocks)
    assert [line for block in blocks for line in block] == list(read_lines(path))[skip:]


def test_blocks_of_what_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="none: no such file or folder"):
        next(read_blocks(tmp_path / "none", 2))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"one\n" * 10000)[:-20])
    with pytest.raises(UserError, match="cut.gz: is damaged after line"):
        list(read_blocks(tmp_path / "cut.gz", 5000))
    with pytest.raises(UserError, match="was changed while it was read"):
        lines_of(b"f\xfcr\n")


def test_read_lines_names_file_and_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"good\n" + "für".encode("latin-1") + b"\n")
    lines = read_lines(path)
    assert next(lines) == "good"
    with pytest.raises(UserError, match=r"text, line 2: not UTF-8 \(byte 0xfc at 2\)"):
        next(lines)
    with pytest.raises(UserError, match="none: no such file or folder"):
        next(read_lines(tmp_path / "none"))
    with pytest.raises(UserError, match="is a folder"):
        next(read_lines(tmp_path))


@pytest.fixture
def log_level():
    """run() sets the root logger's level; the tests after this one are to have theirs."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def wrapped_user_error():
    try:
        raise UserError("a.txt, line 3: bad")
    except UserError:
        raise Exception("wrapped, as fairseq's trainer does")


def interrupted():
    raise KeyboardInterrupt  # not by a signal: where the tests run in the background, SIGINT is ignored


@pytest.mark.parametrize(
    "main, code, words",
    [
        (lambda: None, 0, ""),
        (lambda: 7, 7, ""),
        (wrapped_user_error, 1, "command: error: a.txt, line 3: bad\n"),
        (lambda: open("/nowhere/at/all"), 1, "command: error: /nowhere/at/all: no such file or folder: check the path\n"),
        (interrupted, 130, "command: interrupted\n"),
    ],
)
def test_run_ends_in_one_line(monkeypatch, capsys, log_level, main, code, words):
    monkeypatch.setattr(sys, "argv", ["some/command"])
    with pytest.raises(SystemExit) as caught:
        run(main)
    assert (caught.value.code, capsys.readouterr().err) == (code, words)


def test_run_keeps_the_traceback_of_a_bug(log_level):
    with pytest.raises(KeyError):
        run(lambda: {}["key"])


def test_run_is_quiet_when_its_reader_goes_away():
    code = "from veco_fairseq.cli import run; run(lambda: [print('a line') for _ in range(100000)] and None)"
    result = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$0" -c "$1" | head -1', sys.executable, code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (141, "a line\n", "")
