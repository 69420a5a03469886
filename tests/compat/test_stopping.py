# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Finished runs, two runs in one folder, Ctrl-C, killed loaders, a slow save with two workers, and --amp's backward."""

import logging
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import fairseq_cli.train
import pytest
import torch
from conftest import save_with_vocabulary
from fairseq import checkpoint_utils
from fairseq.optim import AMPOptimizer
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from support.nlu import SENTENCES, write_pairs
from support.resuming import in_fork, slow

from veco_fairseq import lock
from veco_fairseq.compat import mistakes
from veco_fairseq.errors import UserError


@pytest.fixture
def commands(translation, make_root, make_model, tmp_path):  # noqa: F811
    """The arguments of a small training of each kind."""

    def command(kind):
        if kind == "translation":
            return [translation / "one", "--arch", "transformer_tiny", "--max-tokens", "200", "--lr", "1e-3"]
        if kind == "nlu":
            pretrained = save_with_vocabulary(tmp_path / "pretrained", make_model, SENTENCES * 3, 22, max_positions=128)
            return [write_pairs(tmp_path / "pairs"), "--task", "veco_nlu", "--criterion", "veco_nlu", "--arch",
                    "veco_nlu_tiny", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32", "--max-positions",
                    "128", "--finetune-from-model", pretrained, "--lr", "0.003", "--batch-size", "8"]  # fmt: skip
        return [make_root(), "--task", "camlm", "--criterion", "camlm", "--arch", "veco_tiny", "--encoder-layers", "2",
                "--encoder-embed-dim", "16", "--encoder-attention-heads", "2", "--max-tokens", "400",
                "--mono-max-length", "16", "--lr", "1e-3", "--updates-per-epoch", "4"]  # fmt: skip

    return lambda kind, *more: [*command(kind), "--optimizer", "adam", "--cpu", "--disable-validation", "--num-workers",
                                "0", "--log-interval", "1", "--log-format", "simple", *more]  # fmt: skip


def slow_update(seconds: float):
    """From now on, in this process, an update takes so long."""
    train_step = Trainer.train_step

    def slow(*arguments, **options):
        time.sleep(seconds)
        return train_step(*arguments, **options)

    Trainer.train_step = slow


def train_here(command, output: Path, before=lambda: None) -> None:
    """fairseq-train in this process, a fork; its log goes to ``output``, as its standard error does."""
    file = open(output, "a", buffering=1)
    os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = file
    root = logging.getLogger()
    root.handlers[:] = [logging.StreamHandler(file)]
    root.setLevel(logging.INFO)
    sys.argv = ["fairseq-train", *map(str, command)]
    before()
    try:
        fairseq_cli.train.cli_main()
    except Exception as error:
        mistakes.one_line_errors(lambda kind, error, traceback: print("Traceback", error))(type(error), error, None)
        raise SystemExit(1) from None


def run_here(command, output: Path, before=lambda: None, seconds: float = 120) -> str:
    process = in_fork(train_here, command, output, before)
    process.join(seconds)
    return f"{process.exitcode}\n{output.read_text()}"


def wait_for(text: str, log: Path, seconds: float = 60) -> None:
    deadline = time.time() + seconds
    while not log.exists() or not re.search(text, log.read_text()):
        assert time.time() < deadline, log.read_text()[-2000:]
        time.sleep(0.02)


def contents(folder: Path) -> dict:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize("kind, limit, more", [
    ("translation", "--max-update 3", "--max-update 5"),
    slow("translation", "--max-epoch 1", "--max-epoch 2"),
    slow("nlu", "--max-update 3", "--max-update 5"),
    ("camlm", "--max-update 4", "--max-update 5"),  # at the end of an epoch
    slow("camlm", "--stop-time-hours 1e-7", "--stop-time-hours 1 --max-update 3"),
])  # fmt: skip
def test_a_finished_run_is_not_trained_again(commands, tmp_path, kind, limit, more):
    command = commands(kind, "--save-dir", tmp_path / "save")
    first = run_here([*command, *limit.split()], tmp_path / "first")
    assert first.startswith("0\n"), first[-3000:]
    before = contents(tmp_path / "save")
    again = run_here([*command, *limit.split()], tmp_path / "again")
    updates = torch.load(tmp_path / "save/checkpoint_last.pt")["optimizer_history"][-1]["num_updates"]
    assert again.startswith("0\n") and f"finished already, after {updates} updates, by {limit.split()[0]}" in again
    assert contents(tmp_path / "save") == before and lock.LOCK_NAME not in before
    on = run_here([*command, *more.split()], tmp_path / "on")
    assert on.startswith("0\n") and "finished already" not in on
    assert torch.load(tmp_path / "save/checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] > updates


def test_patience_goes_on_counting_and_is_finished(commands, tmp_path):
    """Nothing is learnt at a rate of zero: after the first validation, two in vain are the end."""
    command = [option for option in commands("camlm") if option != "--disable-validation"]
    command += ["--save-dir", tmp_path / "save", "--patience", "2", "--lr", "0", "--no-epoch-checkpoints"]
    assert run_here([*command, "--max-epoch", "2"], tmp_path / "first").startswith("0\n")
    rest = run_here([*command, "--max-epoch", "9"], tmp_path / "rest")
    assert "early stop since valid performance" in rest
    assert torch.load(tmp_path / "save/checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 12
    again = run_here([*command, "--max-epoch", "9"], tmp_path / "again")
    assert again.startswith("0\n") and "finished already, after 12 updates, by --patience 2" in again


@pytest.mark.parametrize("kind", ["translation", slow("nlu"), slow("camlm")])
def test_a_second_run_into_the_folder_is_refused(commands, tmp_path, kind):
    command = commands(kind, "--save-dir", tmp_path / "save")
    first = in_fork(train_here, command, tmp_path / "first", lambda: slow_update(0.5))
    try:
        wait_for("begin training epoch 1|Start iterating", tmp_path / "first")
        second = run_here([*command, "--max-update", "1"], tmp_path / "second")
        line = second.splitlines()[-1]
        assert line.startswith(f"fairseq-train: error: {tmp_path}/save: process {first.pid} already trains into this folder")
        assert second.startswith("1\n") and "Traceback" not in second
        assert run_here([*command, "--max-update", "1", "--no-save"], tmp_path / "third").startswith("0\n")
    finally:
        first.kill()
        first.join()
    assert run_here([*command, "--max-update", "1"], tmp_path / "fourth").startswith("0\n"), "a killed run locks nothing"


def test_the_holder_on_another_host_is_named(tmp_path):
    def hold():
        socket.gethostname = lambda: "node7"
        lock.lock_folder(tmp_path)
        (tmp_path / "held").touch()
        time.sleep(60)

    holder = in_fork(hold)
    wait_for("", tmp_path / "held")
    with pytest.raises(UserError, match=f"process {holder.pid} on node7 already trains into this folder"):
        lock.lock_folder(tmp_path)
    holder.kill()
    holder.join()
    lock.lock_folder(tmp_path)
    lock._release(tmp_path.resolve() / lock.LOCK_NAME)
    assert not (tmp_path / lock.LOCK_NAME).exists()


def test_ctrl_c_saves_and_a_second_one_ends_at_once(commands, tmp_path):
    command = commands("camlm", "--save-dir", tmp_path / "save", "--max-epoch", "99", "--num-workers", "1")
    process = in_fork(train_here, command, tmp_path / "log", lambda: slow_update(0.3))
    wait_for("num_updates=2|'num_updates': '2'|num_updates=3", tmp_path / "log")
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    log = (tmp_path / "log").read_text()
    assert process.exitcode == 130 and "Traceback" not in log
    update = int(re.search(r"SIGINT: saved after update (\d+); the same command goes on from here", log)[1])
    assert torch.load(tmp_path / "save/checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == update

    process = in_fork(train_here, command, tmp_path / "twice", lambda: slow_update(20))
    wait_for("Start iterating", tmp_path / "twice")
    time.sleep(1)
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGINT)  # the launcher's copy of the first
    time.sleep(1.5)
    assert process.is_alive()
    os.kill(process.pid, signal.SIGINT)
    process.join(5)
    assert process.exitcode == -signal.SIGINT


def test_a_signal_at_the_end_of_an_epoch_leaves_no_validation_out(commands, tmp_path):
    command = [option for option in commands("camlm") if option != "--disable-validation"]
    command += ["--save-dir", tmp_path / "save", "--max-epoch", "9", "--no-epoch-checkpoints"]

    def told_after_four():
        set_num_updates = Trainer.set_num_updates

        def set_and_tell(trainer, number):
            set_num_updates(trainer, number)
            if number == 4:
                os.kill(os.getpid(), signal.SIGTERM)

        Trainer.set_num_updates = set_and_tell

    log = run_here(command, tmp_path / "log", told_after_four)
    assert log.startswith("143\n") and "SIGTERM: saved after update 4" in log
    state = torch.load(tmp_path / "save/checkpoint_last.pt")["extra_state"]
    assert state["val_loss"] > 0 and state["train_iterator"]["epoch"] == 2
    assert (tmp_path / "save/checkpoint_best.pt").exists()


def test_a_killed_loader_ends_in_one_line(commands, tmp_path):
    command = commands("translation", "--save-dir", tmp_path / "save", "--num-workers", "1")
    process = in_fork(train_here, command, tmp_path / "log", lambda: slow_update(0.2))
    wait_for("Start iterating", tmp_path / "log")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.time() + 60
    while not children.read_text().split() and time.time() < deadline:
        time.sleep(0.05)
    (loader, *_) = children.read_text().split()
    os.kill(int(loader), signal.SIGKILL)
    process.join(60)
    log = (tmp_path / "log").read_text()
    assert process.exitcode == 1 and "Traceback" not in log
    assert f"fairseq-train: error: the data loader's process {loader} was killed" in log.splitlines()[-1]


def test_all_workers_wait_for_the_save(commands, tmp_path):
    """Told by a signal to the second alone; the first's save takes three seconds."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"tcp://localhost:{free.getsockname()[1]}"
    command = commands("camlm", "--save-dir", tmp_path / "save", "--distributed-world-size", "2", "--distributed-no-spawn",
                       "--distributed-init-method", address, "--distributed-backend", "gloo", "--max-epoch", "99")  # fmt: skip

    def slow_save():
        slow_update(0.2)
        save = checkpoint_utils.torch_persistent_save

        def slowly(*arguments, **options):
            time.sleep(3)
            save(*arguments, **options)

        checkpoint_utils.torch_persistent_save = slowly

    workers = [in_fork(train_here, [*command, "--distributed-rank", rank], tmp_path / f"log{rank}", slow_save)
               for rank in range(2)]  # fmt: skip
    wait_for("Start iterating", tmp_path / "log0")
    os.kill(workers[1].pid, signal.SIGTERM)
    workers[1].join(60)
    assert (tmp_path / "save/checkpoint_last.pt").exists(), "the second worker ends after the first's save"
    workers[0].join(60)
    assert [worker.exitcode for worker in workers] == [143, 143]
    saved = torch.load(tmp_path / "save/checkpoint_last.pt")
    told = re.search(r"SIGTERM: saved after update (\d+)", (tmp_path / "log0").read_text())
    assert saved["optimizer_history"][-1]["num_updates"] == int(told[1])
    assert [path.name for path in (tmp_path / "save").glob("*.pt*")] == ["checkpoint_last.pt"]


def test_fully_sharded_is_refused_where_training_begins(commands, tmp_path):
    for kind in ("camlm", "translation"):
        command = commands(kind, "--save-dir", tmp_path / "save", "--ddp-backend", "fully_sharded")
        log = run_here(command, tmp_path / kind)
        assert log.startswith("1\n") and log.splitlines()[-1].startswith("fairseq-train: error: --ddp-backend fully_sharded: ")
    log = run_here(commands("camlm", "--save-dir", tmp_path / "save", "--ddp-backend", "slowmo"), tmp_path / "slowmo")
    assert log.splitlines()[-1].startswith("fairseq-train: error: --ddp-backend slowmo: only fairseq's legacy_ddp")


def test_amp_is_off_in_backward():
    """Autocast as PyTorch advises: forward and loss under it, backward not."""
    seen = []

    class Recorder(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(torch.is_autocast_enabled("cpu"))
            return x

        @staticmethod
        def backward(ctx, gradient):
            seen.append(torch.is_autocast_enabled("cpu"))
            return gradient

    model = torch.nn.Linear(2, 1)
    model.set_num_updates = lambda number: None
    optimizer = AMPOptimizer.__new__(AMPOptimizer)
    optimizer.backward = lambda loss: loss.backward()

    def criterion(model, sample):
        return Recorder.apply(model(sample)).sum(), 1, {}

    task = FairseqTask(SimpleNamespace())
    task.train_step(torch.ones(3, 2), model, criterion, optimizer, 0)
    assert seen == [True, False] and model.weight.grad.dtype == torch.float32
