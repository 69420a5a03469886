# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Flipped bits and weights that are no numbers are noticed wherever a checkpoint is read."""

import argparse
import zipfile
from itertools import islice
from pathlib import Path

import pytest
import torch
from support.commands import COMMANDS, Command

from veco_fairseq.checkpoints import integrity
from veco_fairseq.checkpoints.reading import DamagedCheckpoint, read_checkpoint, read_tensors
from veco_fairseq.errors import UserError


def save(path: Path, **options) -> Path:
    """A checkpoint with a tied tensor, options, and an optimizer's state: data/0 to data/3."""
    table = torch.arange(5000.0)
    state = {
        "args": None,
        "cfg": {"model": argparse.Namespace(mixed=[(torch.arange(3),)])},
        "model": {"embed.weight": table, "out.weight": table.view(50, 100), "bias": torch.tensor([1.5, -2])},
        "last_optimizer_state": {
            "state": {0: {"exp_avg": torch.full((700,), 0.25)}},
            "none": torch.zeros(0),
        },  # whose CRC-32 is 0
    }
    torch.save(state, path, **options)
    return path


def places(path: Path) -> dict:
    """Where the bytes of each record begin and end."""
    found = {}
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for info in archive.infolist():
            file.seek(info.header_offset + 26)
            lengths = file.read(4)
            start = info.header_offset + 30 + sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))
            found[info.filename.partition("/")[2]] = (start, start + info.file_size)
    return found


def flip(path: Path, at: int, bit: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


NAMES = {"data/0": "cfg.model.mixed.0.0", "data/1": "model.embed.weight", "data/2": "model.bias",
         "data/3": "last_optimizer_state.state.0.exp_avg"}  # fmt: skip


@pytest.mark.parametrize("mapped", [False, True])
def test_tensors_that_share_nothing_and_no_bytes(tmp_path, mapped):
    """Views of an empty tensor have one record, of which torch makes a storage for each when it reads."""
    empty = torch.zeros(0, 3)
    model = {"a": empty, "b": empty.t(), "c": empty.detach(), "d": torch.zeros(0), "e": torch.tensor([1.5, 2.5])}
    torch.save({"model": model, "args": None}, tmp_path / "a.pt")
    read = read_checkpoint(tmp_path / "a.pt", mapped=mapped)["model"]
    assert {name: tensor.tolist() for name, tensor in read.items()} == {name: tensor.tolist() for name, tensor in model.items()}
    flip(tmp_path / "a.pt", places(tmp_path / "a.pt")["data/2"][0])
    with pytest.raises(DamagedCheckpoint, match=r"bytes of model\.e \(a/data/2\) are not"):
        read_checkpoint(tmp_path / "a.pt", mapped=mapped)


@pytest.mark.parametrize("record", NAMES)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_flipped_bit_in_a_tensor_is_noticed(tmp_path, record, mapped):
    path = save(tmp_path / "a.pt")
    read_checkpoint(path, mapped=mapped)
    first, end = places(path)[record]
    for at, bit in ((first, 0), ((first + end) // 2, 3), (end - 1, 7)):
        flip(path, at, bit)
        if mapped and record == "data/3":
            read_checkpoint(path, mapped=True)  # the optimizer's is not used then, and 2/3 of a file
        else:
            with pytest.raises(DamagedCheckpoint) as caught:
                read_checkpoint(path, mapped=mapped)
            assert str(caught.value).startswith(f"{path}: is damaged: bytes of {NAMES[record]} (a/{record}) are not")
        flip(path, at, bit)
    assert read_checkpoint(path, mapped=mapped)["model"]["bias"].tolist() == [1.5, -2]


def test_a_record_that_is_shorter_than_its_tensor_is_noticed(tmp_path):
    """In a file that somebody put together anew, whose checksums are right."""
    path = save(tmp_path / "a.pt")
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    name = max(records, key=lambda name: len(records[name]) if "/data/" in name else 0)
    records[name] = records[name][:-4]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for each, content in records.items():
            archive.writestr(each, content)
    with pytest.raises(DamagedCheckpoint, match=r"a\.pt: (is damaged|cannot be read)"):
        read_checkpoint(path)


def test_a_file_that_was_packed_again_is_not_mapped(tmp_path):
    """Its compressed bytes had been taken for the tensors', of which some were no numbers, or were beyond the file's end."""
    path = save(tmp_path / "a.pt")
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, content in records.items():
            archive.writestr(each, content)
    for mapped in (False, True):
        assert torch.equal(read_checkpoint(path, mapped=mapped)["model"]["embed.weight"], torch.arange(5000.0))


def test_any_flipped_bit_of_the_small_records_is_damage(tmp_path):
    """Of the pickle, for example: one flip in the name of a type must not be told as a type that is not allowed."""
    path = save(tmp_path / "a.pt")
    first, end = places(path)["data.pkl"]
    for at in range(first, end, 5):
        flip(path, at, at % 8)
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(path)
        flip(path, at, at % 8)
    read_checkpoint(path)


def test_a_flipped_directory_is_damage_or_harmless(tmp_path):
    path = save(tmp_path / "a.pt")
    whole = read_checkpoint(path)
    directory = max(end for _, end in places(path).values())
    refused = 0
    for at in range(directory, path.stat().st_size, 7):
        flip(path, at, at % 8)
        try:
            found = read_checkpoint(path)["model"]
            assert all(torch.equal(found[name], whole["model"][name]) for name in whole["model"])  # a date, for example
        except DamagedCheckpoint:
            refused += 1
        flip(path, at, at % 8)
    assert refused > 20


def test_a_file_saved_without_checksums_is_read(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        path = save(tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_checkpoint(path)["model"]["bias"].tolist() == [1.5, -2]
    old = save(tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert read_checkpoint(old, mapped=True)["model"]["bias"].tolist() == [1.5, -2]


def test_where_the_order_of_the_records_is_another_one_all_are_checked(tmp_path, monkeypatch):
    path = save(tmp_path / "a.pt")
    monkeypatch.setattr(integrity, "tensors_of", lambda state: iter(()))
    read_checkpoint(path, mapped=True)
    flip(path, places(path)["data/3"][0])
    with pytest.raises(DamagedCheckpoint, match=r"bytes of a/data/3 are not those"):
        read_checkpoint(path, mapped=True)


def test_a_state_in_another_order_has_no_names_of_records(tmp_path):
    path = save(tmp_path / "a.pt")
    records, state = integrity.Records(path), read_checkpoint(path)
    assert list(records.of_state(state))[:3] == list(NAMES.values())[:3]
    assert records.of_state({name: state[name] for name in reversed(state)}) == {}


def test_a_state_with_a_sparse_tensor_has_no_names_of_records(tmp_path):
    """It has several storages, and no one of them is its name's."""
    state = {"first": torch.arange(5.0), "sparse": torch.eye(3).to_sparse(), "last": torch.arange(7.0)}
    torch.save(state, tmp_path / "a.pt")
    assert integrity.Records(tmp_path / "a.pt").of_state(state) == {}


def test_a_state_that_holds_itself_has_each_tensor_once():
    state = {"a": torch.ones(1)}
    state["again"] = [state]
    assert [name for name, _ in islice(integrity.tensors_of(state), 3)] == ["a"]


@pytest.mark.parametrize("part", ["shorter", "nearer", "another type"])
def test_where_a_sound_part_begins_another_may_be_no_number(part):
    """Two tensors with one place in memory are not one, unless their shape, strides and type are the same."""
    table = torch.tensor([1, 2, float("nan")])
    number = torch.tensor([0x7F80, 0], dtype=torch.int32).view(torch.float32)  # tiny, and infinite in its lower half
    sound, bad = {
        "shorter": (table[:2], table),
        "nearer": (table[:2], table[::2]),
        "another type": (number, number.view(torch.bfloat16)[:2]),
    }[part]
    integrity.check_finite("a.pt", {"sound": sound})
    with pytest.raises(UserError, match="its tensor bad holds NaN or infinity"):
        integrity.check_finite("a.pt", {"sound": sound, "bad": bad})


def test_a_flip_in_hugging_faces_file(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.ones(9), "b": torch.zeros(9)}, path)
    flip(path, places(path)["data/1"][0])
    with pytest.raises(DamagedCheckpoint, match=r"bytes of b \(pytorch_model/data/1\)"):
        read_tensors(path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_tensor_that_is_no_number_is_named(tmp_path, bad, dtype):
    weight = torch.arange(70000.0).to(dtype).clamp(max=1000)
    weight[[4, 69999]] = bad
    model = {"count": torch.tensor(3), "none": torch.zeros(0), "good": torch.ones(3), "layers.1.fc1.weight": weight}
    torch.save({"model": model, "last_optimizer_state": {"a": torch.tensor(bad)}}, tmp_path / "a.pt")
    words = r"its tensor layers\.1\.fc1\.weight holds NaN or infinity \(2 of 70,000 values\)"
    with pytest.raises(UserError, match=words):
        read_checkpoint(tmp_path / "a.pt")
    with pytest.raises(UserError, match=words):
        read_checkpoint(tmp_path / "a.pt", mapped=True)
    torch.save(model, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=words):
        read_tensors(tmp_path / "pytorch_model.bin")
    weight[[4, 69999]] = 65000  # as large as fp16 goes
    torch.save({"model": model}, tmp_path / "a.pt")
    read_checkpoint(tmp_path / "a.pt")


def test_a_small_file_of_a_huge_tensor_is_refused(tmp_path):
    """One number that stands for 2 GiB of them; what is repeated within 1 GiB is read."""
    for name, tensor, told in (
        (
            "a.pt",
            torch.ones(1).expand(1 << 15, 1 << 14),
            "a.pt: its tensor w has 536,870,912 values, and the file 4 bytes of them",
        ),
        ("b.pt", torch.ones(8).expand(1 << 29, 8), "b.pt: its tensor w has 4,294,967,296 values, and the file 32 bytes of them"),
    ):
        torch.save({"model": {"w": tensor}}, tmp_path / name)
        with pytest.raises(UserError, match=told):
            read_checkpoint(tmp_path / name)
    torch.save({"model": {"w": torch.ones(5).expand(3, 5)}}, tmp_path / "c.pt")
    assert read_checkpoint(tmp_path / "c.pt")["model"]["w"].sum() == 15


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_takes_a_model_that_is_no_number(tmp_path, make_model, run, command):
    command = Command(command, tmp_path, make_model)
    state = torch.load(command.checkpoint)
    state["model"]["encoder.sentence_encoder.layers.1.fc1.bias"][3] = float("nan")
    torch.save(state, command.checkpoint)
    line = command.error_line(run)
    words = "its tensor encoder.sentence_encoder.layers.1.fc1.bias holds NaN or infinity (1 of 32 values)"
    assert f"{command.checkpoint}: {words}" in line


def test_reading_is_in_one_place():
    """What reads a checkpoint, or a file of Hugging Face's, otherwise than reading.py would check nothing."""
    package = Path(integrity.__file__).parent.parent
    found = {(path.name, call) for path in package.rglob("*.py") for call in ("torch.load(", "safe_open(", "load_file(")
             if call in path.read_text()}  # fmt: skip
    assert found == {("reading.py", "torch.load("), ("reading.py", "safe_open(")}
