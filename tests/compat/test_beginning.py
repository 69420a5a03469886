# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What a training goes on from, and what it is told by signals and keeps of its count, function by function."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from veco_fairseq.checkpoints.reading import DamagedCheckpoint
from veco_fairseq.compat import checkpoints, plateau, stopping
from veco_fairseq.errors import UserError


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A trainer with checkpoints beside each other, the newest first, and what its loading does by the file's name."""
    for age, name in enumerate(("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint1.pt")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    whole = SimpleNamespace(
        checkpoint=SimpleNamespace(save_dir=str(tmp_path), no_save=False, continue_once=None, finetune_from_model=None),
        model=SimpleNamespace(_name="veco_tiny"),
        distributed_training=SimpleNamespace(distributed_rank=0),
    )
    trainer = SimpleNamespace(cfg=whole, checkpoint_suffix="", task=None, optimizer=SimpleNamespace(optimizer=None), fails={})
    trainer.data_parallel_world_size, trainer.tried = 1, []

    def load(trainer, path, reset=False, **options):
        name = os.path.basename(path)
        trainer.tried.append((name, reset))
        if name in trainer.fails:
            raise trainer.fails[name]
        checkpoints._task_state_of[path] = {"of": name}
        return {"from": name, **options}

    monkeypatch.setattr(checkpoints, "_fairseq_trainer_load_checkpoint", load)
    monkeypatch.setattr(checkpoints, "check_moments", lambda path, optimizer: None)
    monkeypatch.setattr(checkpoints, "tell_what_is_kept", lambda trainer, path: None)
    return trainer


def damaged(name):
    return DamagedCheckpoint(f"{name}: cannot be read")


def test_the_newest_checkpoint_that_can_be_read_replaces_the_last_one(trainer, tmp_path, caplog):
    trainer.fails = {name: damaged(name) for name in ("checkpoint_last.pt", "checkpoint_best.pt")}
    last = str(tmp_path / "checkpoint_last.pt")
    loaded = {"from": "checkpoint1.pt", "more": 3, "reset_meters": False}
    assert checkpoints.trainer_load_checkpoint(trainer, last, True, more=3) == loaded
    assert trainer.tried == [(f"checkpoint{name}.pt", True) for name in ("_last", "_best", "1")]
    told = [record.getMessage().removeprefix("DAMAGED CHECKPOINT: ") for record in caplog.records]
    assert told == [f"checkpoint_last.pt: cannot be read; resuming from {tmp_path}/checkpoint_best.pt instead",
                    f"checkpoint_best.pt: cannot be read; resuming from {tmp_path}/checkpoint1.pt instead"]  # fmt: skip
    trainer.fails["checkpoint1.pt"] = damaged("checkpoint1.pt")
    with pytest.raises(DamagedCheckpoint, match=r"checkpoint1\.pt"):
        checkpoints.trainer_load_checkpoint(trainer, last)


def test_nothing_replaces_a_checkpoint_that_was_asked_for(trainer, tmp_path):
    trainer.fails = {"checkpoint_best.pt": damaged("checkpoint_best.pt")}
    with pytest.raises(DamagedCheckpoint):
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "checkpoint_best.pt"))
    with pytest.raises(UserError, match=r"none\.pt: no such checkpoint to start from: check --restore-file"):
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "none.pt"))
    trainer.cfg.checkpoint.continue_once = str(tmp_path / "none.pt")
    with pytest.raises(UserError, match=r"none\.pt: no such checkpoint to start from: check --continue-once"):
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "none.pt"))
    assert trainer.tried == [("checkpoint_best.pt", False)]
    assert checkpoints.older_checkpoints(str(tmp_path / "none"), "none/checkpoint_last.pt") == []


def test_the_last_checkpoint_of_another_folder_was_asked_for(trainer, tmp_path):
    """If it is missing, the training must not begin from random weights; if damaged, not go on from another training's."""
    elsewhere = str(tmp_path / "pretrained" / "checkpoint_last.pt")
    with pytest.raises(UserError, match=r"pretrained/checkpoint_last\.pt: no such checkpoint to start from"):
        checkpoints.trainer_load_checkpoint(trainer, elsewhere)
    os.makedirs(tmp_path / "pretrained")
    Path(elsewhere).touch()
    trainer.fails = {"checkpoint_last.pt": damaged("checkpoint_last.pt")}
    with pytest.raises(DamagedCheckpoint):
        checkpoints.trainer_load_checkpoint(trainer, elsewhere)
    assert trainer.tried == [("checkpoint_last.pt", False)]


@pytest.mark.parametrize("name, elsewhere", [("checkpoint_last.pt", 0.0), ("none.pt", 1.0)])
def test_a_checkpoint_that_some_machines_have_is_not_gone_on_from(trainer, tmp_path, monkeypatch, name, elsewhere):
    """Those without it would begin with random weights, and wait for the others forever."""
    trainer.data_parallel_world_size, trainer.device, trainer.data_parallel_process_group = 2, "cpu", None
    others = torch.tensor([elsewhere, -elsewhere])
    monkeypatch.setattr(distributed_utils, "all_reduce", lambda own, group, op: own.copy_(torch.maximum(own, others)))
    with pytest.raises(UserError, match=f"{name}: some workers find it, and some do not: every machine reads its own files"):
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / name))
    assert trainer.tried == []


@pytest.mark.parametrize("chosen, has_last, told", [
    ("start/checkpoint_last.pt", True, True), ("checkpoint1.pt", True, True), ("checkpoint1.pt", False, False),
    ("checkpoint_last.pt", True, False), ("link.pt", True, False),
])  # fmt: skip
def test_a_last_checkpoint_that_is_passed_over_is_told_of(trainer, tmp_path, caplog, chosen, has_last, told):
    """As where a command with --restore-file is given again after a kill."""
    (tmp_path / "start").mkdir()
    (tmp_path / "start/checkpoint_last.pt").touch()
    (tmp_path / "link.pt").symlink_to("checkpoint_last.pt")
    if not has_last:
        (tmp_path / "checkpoint_last.pt").unlink()
    assert checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / chosen))["from"] == os.path.basename(chosen)
    expected = (
        f"{tmp_path}/checkpoint_last.pt: is passed over, and the next save replaces it, since --restore-file names "
        f"{tmp_path / chosen}: to go on from it, leave --restore-file out"
    )
    assert [record.getMessage() for record in caplog.records] == [expected] * told


def test_checkpoints_without_a_last_one_are_told_of_unless_nothing_is_saved(trainer, tmp_path, caplog):
    (tmp_path / "checkpoint_last.pt").unlink()
    for trainer.cfg.checkpoint.no_save in (True, False):
        assert not caplog.messages
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "checkpoint_last.pt"))
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/checkpoint_last.pt: is not there, but checkpoint_best.pt is: the training begins anew")


def test_a_worker_with_a_file_of_its_own_begins_anew_where_there_is_none(trainer, tmp_path):
    trainer.checkpoint_suffix = "-shard1"
    checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "checkpoint_last-shard1.pt"))
    with pytest.raises(UserError, match="no such checkpoint to start from"):
        trainer.checkpoint_suffix = ""
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "checkpoint_last-shard1.pt"))


def test_a_task_takes_over_what_the_file_that_was_read_has(trainer, tmp_path):
    taken = []
    trainer.task = SimpleNamespace(resume_task_state=lambda *arguments: taken.append(arguments))
    trainer.fails = {"checkpoint_last.pt": damaged("checkpoint_last.pt")}
    checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "checkpoint_last.pt"))
    assert taken == [({"of": "checkpoint_best.pt"}, str(tmp_path / "checkpoint_best.pt"))]
    assert trainer.cfg.checkpoint.load_checkpoint_on_all_dp_ranks is True


def test_an_error_of_another_kind_is_told_as_what_it_is(trainer, tmp_path):
    """What fairseq and PyTorch say of the state, and our own refusals, of which no other checkpoint is taken."""
    last = str(tmp_path / "checkpoint_last.pt")
    state = {"weight": torch.ones(2, 3), "weights": torch.ones(1)}
    try:
        torch.nn.Linear(3, 4).load_state_dict(state)
    except RuntimeError as error:
        trainer.fails = {"checkpoint_last.pt": error}
    with pytest.raises(UserError) as caught:
        checkpoints.trainer_load_checkpoint(trainer, last)
    assert str(caught.value).endswith(
        "missing bias; unexpected weights; other shapes: weight [2, 3] in the file, [4, 3] here; give the options that it was "
        "trained with, or another --save-dir"
    )
    for error in (UserError("refused"), AssertionError("--sampling-topk requires --sampling")):
        trainer.fails = {"checkpoint_last.pt": error}
        with pytest.raises(type(error)) as caught:
            checkpoints.trainer_load_checkpoint(trainer, last)
        assert caught.value is error
    trainer.fails = {"checkpoint_last.pt": KeyError("last_optimizer_state")}
    with pytest.raises(UserError, match=r"checkpoint_last\.pt: .*last_optimizer_state.*begin again in another --save-dir"):
        checkpoints.trainer_load_checkpoint(trainer, last)
    assert len(trainer.tried) == 4


def test_an_ensemble_that_does_not_fit_is_named(monkeypatch):
    def load(filenames, *args, **kwargs):
        raise RuntimeError("Error(s) in loading state_dict for A: it is bad")

    monkeypatch.setattr(checkpoints, "_fairseq_load_model_ensemble_and_task", load)
    with pytest.raises(UserError, match=r"^a\.pt, b\.pt: Error\(s\)"):
        checkpoint_utils.load_model_ensemble_and_task(["a.pt", "b.pt"])


def test_an_ensemble_that_cannot_be_used_is_named(monkeypatch):
    """A mistake that has a line of its own keeps it."""
    for error, kind, message in (
        (KeyError("x"), UserError, r"^a\.pt, b\.pt: cannot be used \(KeyError: 'x'\): give one"),
        (AssertionError("--path required for generation!"), AssertionError, "^--path required"),
    ):
        monkeypatch.setattr(checkpoints, "_fairseq_load_model_ensemble_and_task", mock.Mock(side_effect=error))
        with pytest.raises(kind, match=message):
            checkpoint_utils.load_model_ensemble_and_task(["a.pt", "b.pt"])


def test_a_criterion_that_is_not_the_models_does_not_validate_it(monkeypatch):
    """fairseq-validate hands on the options that are given, and takes the criterion of the checkpoint."""
    loaded = ["model"], SimpleNamespace(criterion=SimpleNamespace(_name="veco_nlu")), "task"
    monkeypatch.setattr(checkpoints, "_fairseq_load_model_ensemble_and_task", lambda paths, **options: loaded)
    for given in (None, {"batch_size": 4}, {"criterion": "veco_nlu"}):
        assert checkpoint_utils.load_model_ensemble_and_task(["a.pt"], arg_overrides=given) == loaded
    line = "--criterion cross_entropy: a.pt was trained with veco_nlu, by which it is validated: leave it out"
    with pytest.raises(UserError, match=f"^{line}$"):
        checkpoint_utils.load_model_ensemble_and_task(["a.pt"], arg_overrides={"criterion": "cross_entropy"})


# The count of --patience, and the signals


@pytest.mark.parametrize("patience, runs, ended", [
    (2, 1, False), (2, 2, True), (3, 4, True), (1, None, False), (0, 0, False), (-1, 5, False),
])  # fmt: skip
def test_patience_that_has_ended_a_training(monkeypatch, patience, runs, ended):
    monkeypatch.setattr(stopping, "early_stopping", lambda: SimpleNamespace(**({} if runs is None else {"num_runs": runs})))
    limits = SimpleNamespace(max_update=0, max_epoch=0, stop_time_hours=0)
    cfg = SimpleNamespace(optimization=limits, checkpoint=SimpleNamespace(patience=patience))
    found = stopping.finished(SimpleNamespace(cfg=cfg, get_num_updates=lambda: 9), 2)
    assert found == (f"--patience {patience}" if ended else None)


@pytest.mark.parametrize("first, second, seconds, killed", [
    ("SIGINT", "SIGINT", 1.5, True), ("SIGINT", "SIGINT", 0.5, False), ("SIGTERM", "SIGINT", 1.5, True),
    ("SIGTERM", "SIGTERM", 1.5, False), ("SIGINT", "SIGTERM", 1.5, False),
])  # fmt: skip
def test_only_a_later_ctrl_c_ends_at_once(monkeypatch, first, second, seconds, killed):
    """SLURM repeats SIGTERM; and the exit code is that of the first signal."""
    clock, sent, handlers = [50.0], [], []
    monkeypatch.setattr(stopping, "_told", {"number": 0, "since": 0.0})
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    monkeypatch.setattr(signal, "signal", lambda *arguments: handlers.append(arguments))
    first, second = signal.Signals[first], signal.Signals[second]
    stopping.note(first, None)
    clock[0] += seconds
    stopping.note(second, None)
    assert stopping._told["number"] == first
    assert sent == ([(os.getpid(), second)] if killed else [])
    assert handlers == ([(second, signal.SIG_DFL)] if killed else [])


# The options of a training that begins with its own last checkpoint, and with all of it.
FROM_LAST = {"restore_file": "checkpoint_last.pt", **dict.fromkeys(
    ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader"), False)}  # fmt: skip


@pytest.mark.parametrize("no_save", [False, True])
def test_a_signal_saves_before_what_is_due(monkeypatch, caplog, no_save):
    done = []
    monkeypatch.setattr(stopping, "_told", {"number": signal.SIGTERM, "since": 0.0})
    monkeypatch.setattr(stopping, "_fairseq_validate_and_save", lambda *arguments: done.append("validate") or ([None], False))
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda *arguments: done.append("save"))
    cfg = SimpleNamespace(checkpoint=SimpleNamespace(no_save=no_save, **FROM_LAST), optimization=SimpleNamespace(max_epoch=0))
    trainer = SimpleNamespace(data_parallel_world_size=1, get_num_updates=lambda: 7)
    with pytest.raises(SystemExit) as end:
        stopping.validate_and_save(cfg, trainer, None, None, ["valid"], True)
    assert end.value.code == 143 and done == ["save", "validate"]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == ("SIGTERM: ended, and nothing saved (--no-save)" if no_save
                       else "SIGTERM: saved after update 7; the same command goes on from here")  # fmt: skip


@pytest.mark.parametrize("options, without", [
    ({}, ""),
    ({"restore_file": "pretrained.pt"}, " without --restore-file"),
    ({"restore_file": "a.pt", "reset_optimizer": True, "reset_lr_scheduler": True, "reset_meters": True, "reset_dataloader": True},
     " without --restore-file, --reset-optimizer, --reset-lr-scheduler, --reset-meters, --reset-dataloader"),
])  # fmt: skip
def test_a_signal_saves_the_last_checkpoint_in_any_case_and_tells_how_to_go_on(monkeypatch, caplog, options, without):
    saved = []
    monkeypatch.setattr(stopping, "_told", {"number": signal.SIGTERM, "since": 0.0})
    monkeypatch.setattr(
        stopping,
        "_fairseq_validate_and_save",
        lambda cfg, *_: saved.append(cfg.checkpoint.no_last_checkpoints) or ([None], False),
    )
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda cfg, *more: saved.append(cfg.no_last_checkpoints))
    checkpoint = SimpleNamespace(no_save=False, no_last_checkpoints=True, **{**FROM_LAST, **options})
    cfg = SimpleNamespace(checkpoint=checkpoint, optimization=SimpleNamespace(max_epoch=0))
    trainer = SimpleNamespace(data_parallel_world_size=1, get_num_updates=lambda: 7)
    with pytest.raises(SystemExit):
        stopping.validate_and_save(cfg, trainer, None, None, ["valid"], True)
    assert saved == [False, False]
    assert caplog.records[0].getMessage() == f"SIGTERM: saved after update 7; the same command{without} goes on from here"


@pytest.mark.parametrize("place, steps", [
    ({"epoch": 3, "iterations_in_epoch": 0}, [(2, 7.5)]), ({"epoch": 3}, [(2, 7.5)]), ({"epoch": 3, "iterations_in_epoch": 4}, []),
])  # fmt: skip
def test_only_an_epoch_that_has_ended_tells_a_plateau_its_loss(place, steps):
    found = []
    trainer = SimpleNamespace(lr_step=lambda *arguments: found.append(arguments))
    plateau.end_epoch_of({"train_iterator": place, "val_loss": 7.5}, trainer)
    assert found == steps
