# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Training that is killed, at any moment, and started again ends where an undisturbed one ends."""

import os
import random
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY
from support.here import become
from support.resuming import in_fork
from support.training import OPTIONS, logged

from veco_fairseq.compat import plateau, stopping
from veco_fairseq.compat.stopping import finished

UPDATES = 14


def wait_for(text: str, log: Path, alive, seconds: float = 120) -> str:
    deadline = time.time() + seconds
    while not (log.exists() and re.search(text, log.read_text())):
        assert alive() and time.time() < deadline, log.read_text()[-2000:]
        time.sleep(0.01)
    return log.read_text()


def weights(folder: Path):
    return torch.load(folder / "checkpoint_last.pt")["model"]


@pytest.fixture
def options():
    return f"--updates-per-epoch 5 --save-interval-updates 2 --max-update {UPDATES} --disable-validation".split()


def go_on_as(command, log: Path) -> None:
    os.setsid()
    with open(log, "a") as file:
        become([*map(str, command)], REPOSITORY, timeout=120, out=file, err=file)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_killed_again_and_again(make_root, run, options, tmp_path, workers):
    """With -9, while it computes or saves, in the middle of an epoch or at its end."""
    root, options = make_root(), [*options, "--num-workers", workers]
    whole = logged(run("fairseq-train", root, *OPTIONS, *options, "--save-dir", tmp_path / "whole"), "train_inner")
    moments, log = random.Random(int(workers)), tmp_path / "killed.log"
    for text in ('num_updates": "3"', "Preparing to save checkpoint for epoch 2 @ 6", "begin training epoch 3"):
        command = ["fairseq-train", root, *OPTIONS, *options, "--save-dir", tmp_path / "killed"]
        process = in_fork(go_on_as, command, log)
        wait_for(text, log, process.is_alive)
        time.sleep(moments.uniform(0, 0.1))
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    rest = run("fairseq-train", root, *OPTIONS, *options, "--save-dir", tmp_path / "killed")
    assert rest.returncode == 0, rest.stderr
    keys = ("loss", "mono_s_loss", "bitext_tlm_loss", "gnorm", "num_updates")
    expected = {line["num_updates"]: [line[key] for key in keys] for line in whole}
    for line in logged(rest, "train_inner"):
        assert [line[key] for key in keys] == expected[line["num_updates"]]
    final, undisturbed = (weights(tmp_path / name) for name in ("killed", "whole"))
    assert all(torch.equal(final[name], undisturbed[name]) for name in undisturbed)
    left = {path.name for path in (tmp_path / "killed").iterdir()} - {path.name for path in (tmp_path / "whole").iterdir()}
    assert not left, "what is left of a killed save is cleared away by the next one"


@pytest.mark.parametrize("everybody", [False, True], ids=["the trainer", "its loaders too"])
def test_sigterm_saves_and_has_its_own_exit_code(make_root, run, options, tmp_path, everybody):
    """Sent to one process, as kill does, or to all of them, as SLURM does."""
    root = make_root()
    options = [option if option != "2" else "100" for option in options] + ["--num-workers", "1"]
    run("fairseq-train", root, *OPTIONS, *options, "--save-dir", tmp_path / "whole")
    command = ["fairseq-train", root, *OPTIONS, *options, "--save-dir", tmp_path / "told"]
    process = in_fork(go_on_as, command, tmp_path / "told.log")
    wait_for('num_updates": "3"', tmp_path / "told.log", process.is_alive)
    (os.killpg if everybody else os.kill)(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 128 + signal.SIGTERM
    log = (tmp_path / "told.log").read_text()
    update = int(re.search(r"SIGTERM: saved after update (\d+); the same command goes on from here", log)[1])
    assert 3 <= update < UPDATES and "Traceback" not in log
    assert torch.load(tmp_path / "told/checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == update
    rest = logged(run("fairseq-train", root, *OPTIONS, *options, "--save-dir", tmp_path / "told"), "train_inner")
    assert [int(line["num_updates"]) for line in rest] == list(range(update + 1, UPDATES + 1))
    final, undisturbed = (weights(tmp_path / name) for name in ("told", "whole"))
    assert all(torch.equal(final[name], undisturbed[name]) for name in undisturbed)


@pytest.mark.parametrize("before, noted", [(signal.SIG_DFL, 1), (signal.SIG_IGN, 0)], ids=["terminal", "nohup"])
def test_a_closed_terminal_is_noted_but_not_under_nohup(before, noted):
    def hang_up():
        signal.signal(signal.SIGHUP, before)
        stopping.note_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        raise SystemExit(10 + stopping._told["number"])

    process = in_fork(hang_up)
    process.join(60)
    assert process.exitcode == 10 + noted


@pytest.mark.parametrize("updates, limits, reason", [
    (1, {"max_update": 1}, "--max-update 1"), (5, {"max_update": 5}, "--max-update 5"), (5, {"max_update": 6}, None),
    (5, {"max_epoch": 1}, "--max-epoch 1"), (5, {"max_epoch": 2}, None), (5, {"stop_time_hours": 2}, "--stop-time-hours 2"),
    (5, {"stop_time_hours": 3}, None), (0, {"max_epoch": 1}, None), (5, {}, None),
])  # fmt: skip
def test_what_has_ended_a_training(updates, limits, reason):
    """Before its second epoch, after two and a half hours."""
    optimization = SimpleNamespace(**{"max_update": 0, "max_epoch": 0, "stop_time_hours": 0, **limits})
    cfg = SimpleNamespace(optimization=optimization, checkpoint=SimpleNamespace(patience=-1))
    trainer = SimpleNamespace(cfg=cfg, get_num_updates=lambda: updates, cumulative_training_time=lambda: 2.5 * 3600)
    assert finished(trainer, 2) == reason


@pytest.mark.parametrize("reset, updates, goes_on, ends", [
    ((), 5, True, True), (("optimizer",), 5, False, False), (("meters",), 5, False, False), (("lr_scheduler",), 5, True, False),
    (("dataloader",), 5, True, False), ((), 0, True, False),
], ids=str)  # fmt: skip
def test_patience_counts_anew_where_the_optimizer_or_the_meters_do(monkeypatch, reset, updates, goes_on, ends):
    """... and goes on counting in a training that goes on, whose last epoch a schedule is told if it is the same one."""
    names = ("optimizer", "meters", "lr_scheduler", "dataloader")
    cfg = SimpleNamespace(no_save=True, finetune_from_model=None, **{f"reset_{name}": name in reset for name in names})
    optimization = SimpleNamespace(max_update=0, max_epoch=0, stop_time_hours=0)
    whole = SimpleNamespace(optimization=optimization, distributed_training=None, checkpoint=SimpleNamespace(patience=-1))
    trainer = SimpleNamespace(cfg=whole, get_num_updates=lambda: updates, data_parallel_world_size=1)
    counts, ended = SimpleNamespace(best=None), []
    monkeypatch.setattr(
        stopping,
        "_fairseq_load_checkpoint",
        lambda *_: ({"early_stopping": {"best": 7.5}}, SimpleNamespace(next_epoch_idx=2, iterations_in_epoch=0)),
    )
    monkeypatch.setattr(stopping.distributed_utils, "is_master", lambda cfg: True)
    monkeypatch.setattr(stopping, "highest", lambda trainer, flag: flag)
    monkeypatch.setattr(stopping, "note_signals", lambda: None)
    monkeypatch.setattr(stopping, "early_stopping", lambda: counts)
    monkeypatch.setattr(plateau, "end_epoch_of", lambda state, trainer: ended.append(state))
    stopping.load_checkpoint(cfg, trainer)
    assert counts.best == (7.5 if goes_on else None) and len(ended) == ends
