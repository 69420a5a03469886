# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the plug-in changes in how fairseq reads and writes checkpoints: damage, other models, full disks, harmful files."""

import io
import os
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.file_io import PathManager
from omegaconf import OmegaConf
from support.malicious import Malicious
from support.stock import EVAL_BLEU, copy_of, error_line, run, train, trained  # noqa: F401  fixtures

from veco_fairseq.compat import checkpoints
from veco_fairseq.errors import UserError


def test_resuming_reads_the_numpy_arrays_of_eval_bleu(copy_of):
    needed = torch.serialization.get_unsafe_globals_in_checkpoint(copy_of / "ckpt" / "checkpoint_last.pt")
    assert needed == []  # all allowed by now
    state = torch.load(copy_of / "ckpt" / "checkpoint_last.pt", weights_only=False)
    assert any(isinstance(value, (np.ndarray, np.generic)) for value in leaves(state["extra_state"]))
    result = train(copy_of, "--max-update", "4", *EVAL_BLEU)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Loaded checkpoint ckpt/checkpoint_last.pt (epoch 2 @ 3 updates)" in result.stdout


def test_fine_tuning_does_not_count_the_time_of_pretraining(copy_of):
    """... which --stop-time-hours would be compared with."""
    start = torch.load(copy_of / "ckpt/checkpoint_best.pt", weights_only=False)
    start["extra_state"]["previous_training_time"] = 7200.0
    torch.save(start, copy_of / "start.pt")
    new = ("--save-dir", "tuned", "--stop-time-hours", "1", *EVAL_BLEU)
    result = train(copy_of, "--max-update", "2", "--finetune-from-model", "start.pt", *new)
    assert (result.returncode, result.stderr) == (0, "")
    tuned = torch.load(copy_of / "tuned/checkpoint_last.pt", weights_only=False)
    assert tuned["optimizer_history"][-1]["num_updates"] == 2 and tuned["extra_state"]["previous_training_time"] < 600


def leaves(value):
    """All that a nest of dicts, lists and tuples holds."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def flipped(content: bytes) -> bytes:
    """With one bit turned in the first tensor of a checkpoint."""
    state = torch.load(io.BytesIO(content))
    name, tensor = next((name, tensor) for name, tensor in state["model"].items() if tensor.numel() > 1000)
    whole = tensor.numpy().tobytes()
    assert content.count(whole) == 1 and name.startswith("encoder.")
    return content.replace(whole, bytes([whole[0] ^ 4]) + whole[1:])


@pytest.mark.parametrize("damage, words", [
    (lambda content: content[:100_000], "cannot be read (100,000 bytes)"),
    (flipped, "is damaged: bytes of model.encoder."),
])  # fmt: skip
def test_damaged_last_checkpoint_falls_back_loudly(copy_of, damage, words):
    last = copy_of / "ckpt" / "checkpoint_last.pt"
    last.write_bytes(damage(last.read_bytes()))
    result = train(copy_of, "--max-update", "4")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"WARNING | fairseq.trainer | DAMAGED CHECKPOINT: ckpt/checkpoint_last.pt: {words}" in result.stdout
    assert "Loaded checkpoint ckpt/checkpoint_best.pt (epoch 2 @ 3 updates)" in result.stdout


def test_older_checkpoints_are_of_the_same_worker_and_newest_first(tmp_path):
    names = ["checkpoint_best.pt", "checkpoint1.pt", "checkpoint_1_20.pt", "checkpoint12.pt"]
    for age, name in enumerate(names):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    for other in ("checkpoint_last.pt", "checkpoint1-shard0.pt", "checkpoint_best.pt.tmp", "checkpoint_last-shard0.pt"):
        (tmp_path / other).touch()
    found = checkpoints.older_checkpoints(str(tmp_path), str(tmp_path / "checkpoint_last.pt"))
    assert found == [str(tmp_path / name) for name in names]
    found = checkpoints.older_checkpoints(str(tmp_path), str(tmp_path / "checkpoint_last-shard0.pt"))
    assert found == [str(tmp_path / "checkpoint1-shard0.pt")]


def test_checkpoint_of_another_model(copy_of):
    line = error_line(train(copy_of, arch="transformer_iwslt_de_en"))
    assert "ckpt/checkpoint_last.pt: does not fit" in line
    assert "(--arch transformer_tiny in the file, transformer_iwslt_de_en here; --encoder-layers 2 in the file, 6 here; " in line
    # 4 of the 6 encoder layers with 16 tensors each, and 4 of 6 decoder layers with 26
    first = "encoder.layers.2.self_attn.k_proj"
    assert f"missing {first}.weight, {first}.bias and 166 more" in line
    assert "encoder.embed_tokens.weight [40, 64] in the file, [40, 512] here" in line
    assert "or another --save-dir" in line and "dict.txt" not in line


def test_checkpoint_of_another_dictionary(copy_of):
    for lang in ("de", "en"):
        path = copy_of / "data" / f"dict.{lang}.txt"
        path.write_text("".join(path.read_text().splitlines(True)[:-8]))
    generate = ("fairseq-generate", "data", "--path", "ckpt/checkpoint_best.pt")
    line = error_line(run(*generate, cwd=copy_of), "fairseq-generate")
    assert "was trained with another dictionary, of 40 tokens where data/dict.de.txt has 32; " in line
    assert line.endswith("token 32 is 'w22' there and missing here; give data that was made with the checkpoint's dict.txt")
    checkpoint = copy_of / "ckpt/checkpoint_best.pt"
    state = torch.load(checkpoint, weights_only=False)
    del state["task_state"]  # as stock fairseq leaves it
    torch.save(state, checkpoint)
    line = error_line(run(*generate, cwd=copy_of), "fairseq-generate")
    assert line.startswith("ckpt/checkpoint_best.pt: other shapes: ")
    assert "encoder.embed_tokens.weight [40, 64] in the file, [32, 64] here" in line
    assert line.endswith("rows of embed_tokens are tokens: give data that was made with the dict.txt that it was trained with")


def test_malicious_checkpoint_does_not_run(copy_of, monkeypatch):
    trace = copy_of / "it ran"
    path = copy_of / "ckpt" / "checkpoint_last.pt"
    torch.save({"model": {}, "extra_state": Malicious(trace)}, path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # which weakens PyTorch
    result = run("fairseq-generate", "data", "--path", path, cwd=copy_of)
    assert "refused: it holds posix.mkdir" in error_line(result, "fairseq-generate")
    # refused, not damaged: training does not pass it over
    assert "refused: it holds posix.mkdir" in error_line(train(copy_of))
    assert not trace.exists()


def test_missing_restore_file_is_an_error(trained):
    line = error_line(train(trained, "--restore-file", "none.pt", save_dir="unused"))
    assert line == "none.pt: no such checkpoint to start from: check --restore-file"


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
def test_a_folder_in_place_of_a_checkpoint_is_told_as_such(trained, option):
    line = error_line(train(trained, option, "ckpt", save_dir="unused"))
    assert line == f"ckpt: is a folder ({option}): give a checkpoint in it"


def test_full_disk_keeps_the_checkpoints_before(copy_of):
    last = copy_of / "ckpt" / "checkpoint_last.pt"
    before = last.read_bytes()
    limit = len(before) // 2
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, usual[1]))  # stands in for a disk with so much room
    try:
        result = train(copy_of, "--max-update", "4")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    line = error_line(result)
    assert "cannot be written (File too large; " in line
    assert "MiB free there): raise ulimit -f and start the same command again; the earlier checkpoints are whole" in line
    assert "Traceback" not in result.stdout
    assert last.read_bytes() == before
    assert sorted(os.listdir(copy_of / "ckpt")) == ["checkpoint_best.pt", "checkpoint_last.pt"]


def test_copy_of_last_checkpoint_is_whole_or_the_old_one(tmp_path, monkeypatch):
    source, last = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new")
    last.write_bytes(b"old")

    def cut_off(source, target):
        assert Path(target) != last  # a kill, unlike an exception, leaves what is there at this moment
        Path(target).write_bytes(b"n")
        raise OSError(28, "No space left on device")

    def refuse(source, target):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", cut_off)
        with pytest.raises(UserError, match=r"checkpoint_last\.pt: cannot be written \(No space left on device"):
            PathManager.copy(str(source), str(last), overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(UserError, match=r"MiB free there\): change its rights and start the same command again; the earlier"):
            PathManager.copy(str(source), str(last), overwrite=True)
    assert last.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    identity = last.stat().st_ino
    assert PathManager.copy(str(source), str(last), overwrite=True) == str(last)
    assert last.read_bytes() == b"new"
    assert last.stat().st_ino != identity  # another file took its name; the old one was never written into
    assert len(os.listdir(tmp_path)) == 2


def test_save_that_fails_for_another_reason_is_not_called_a_full_disk(tmp_path):
    with pytest.raises(Exception) as caught:
        checkpoint_utils.torch_persistent_save({"model": lambda: None}, str(tmp_path / "a.pt"))
    assert not isinstance(caught.value, UserError)
    assert os.listdir(tmp_path) == []


def test_save_takes_one_try(tmp_path, monkeypatch):
    tries = []

    class Full:
        def __reduce__(self):
            tries.append(self)
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 768 vs 662")

    free = {str(tmp_path): 3 * 2**20, ".": 5_000 * 2**20}  # bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free[folder]))
    monkeypatch.chdir(tmp_path)
    for path, told in ((str(tmp_path / "a.pt"), "3"), ("a.pt", "5,000")):
        with pytest.raises(UserError, match=rf"a\.pt: cannot be written \(the write failed; {told} MiB free there\)"):
            checkpoint_utils.torch_persistent_save(Full(), path)
    assert len(tries) == 2


def test_the_folder_of_a_checkpoint_is_where_its_vocabulary_is(tmp_path, monkeypatch):
    """Wherever it was trained: beside the file, or, if that is a link, beside what it leads to."""
    for name in ("trained", "linked"):
        (tmp_path / name).mkdir()
    (tmp_path / "linked/a.pt").symlink_to(tmp_path / "trained/a.pt")
    read = {"model": {}, "task_state": {}}
    monkeypatch.setattr(checkpoints, "read_checkpoint", lambda path: read)
    monkeypatch.setattr(
        checkpoints, "_fairseq_load_checkpoint_to_cpu", lambda path, *more: {**read, "cfg": OmegaConf.create(cfg)}
    )
    for vocabulary, link, folder in ((False, "trained", "trained"), (False, "linked", "linked"), (True, "linked", "trained")):
        if vocabulary:
            (tmp_path / "trained/sentencepiece.bpe.model").touch()
        cfg = {"task": {"save_dir": "gone"}, "model": None}
        state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / link / "a.pt"))
        assert state["cfg"].task.save_dir == str(tmp_path / folder)


def test_not_whole_fairseq_checkpoint(tmp_path):
    torch.save({"model": {}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"a\.pt: is not a whole fairseq checkpoint: it has no 'best_loss'"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "a.pt"))
    assert torch.load.__module__ == "torch.serialization"  # the stand-in for the time of the call is gone


@pytest.mark.parametrize("others", [[], ["train.en-fr.en.idx", "train.en-fr.fr.idx"]])
def test_a_checkpoint_says_its_languages_where_its_data_does_not(copy_of, others):
    folder = copy_of / "moved"
    folder.mkdir()
    for lang in ("de", "en", "fr"):
        shutil.copyfile(copy_of / "data" / "dict.de.txt", folder / f"dict.{lang}.txt")
    for name in others:
        (folder / name).touch()
    overrides = {"data": str(folder), "eval_bleu": False}
    path = str(copy_of / "ckpt" / "checkpoint_last.pt")
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides=overrides)
    assert (task.cfg.source_lang, task.cfg.target_lang) == ("de", "en")


def test_an_ensemble_of_two_pairs_is_refused(copy_of):
    """... and not one of two checkpoints of a training."""
    paths = [copy_of / "ckpt" / name for name in ("checkpoint_last.pt", "checkpoint_best.pt", "other.pt")]
    state = torch.load(paths[0], weights_only=False)
    torch.save({**state, "task_state": {**state["task_state"], "languages": ["de", "fr"]}}, paths[2])
    options = {"arg_overrides": {"data": str(copy_of / "data"), "eval_bleu": False}}
    checkpoint_utils.load_model_ensemble_and_task([str(path) for path in paths[:2]], **options)
    with pytest.raises(UserError, match="one direction, and these are from de to en and from de to fr"):
        checkpoint_utils.load_model_ensemble_and_task([str(path) for path in paths[1:]], **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tied_tensors_are_saved_as_one(dtype):
    table = torch.ones(4, 3, dtype=dtype)
    moved = utils.move_to_cpu({"a": table, "b": table.detach(), "part": table[1:], "count": torch.tensor(3)})
    assert moved["a"].data_ptr() == moved["b"].data_ptr() and moved["a"].dtype == torch.float32
    assert moved["part"].shape == (3, 3) and moved["count"] == 3
    square = torch.arange(4, dtype=dtype).view(2, 2)
    moved = utils.move_to_cpu([square, square.t(), square[0], square[1]])  # of one memory, and not the same
    assert [tensor.tolist() for tensor in moved] == [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [0, 1], [2, 3]]
