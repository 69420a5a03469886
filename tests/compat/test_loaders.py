# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Data loaders' processes and the signals that a whole job gets."""

import gc
import multiprocessing
import os
import signal
import time

import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator
from torch.utils.data import DataLoader, Dataset, default_collate

from veco_fairseq.compat import workers


class Slow(Dataset):
    """Ten numbers, each after a while."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.tensor(index)


@pytest.fixture
def noted():
    """SIGTERM's, as a training notes it."""
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


def send_from_elsewhere(pids):
    """As a job's manager does: the sender is not the parent of the loaders."""
    if (child := os.fork()) == 0:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        os._exit(0)
    os.waitpid(child, 0)


def test_loaders_outlive_a_sigterm_that_the_training_has_noted(noted):
    loader = iter(DataLoader(Slow(), num_workers=2, multiprocessing_context="fork"))
    first = next(loader)
    workers = loader._workers
    send_from_elsewhere([os.getpid(), *(worker.pid for worker in workers)])
    assert [int(batch) for batch in (first, *loader)] == list(range(10)) and noted == [signal.SIGTERM]
    for worker in workers:
        worker.join(10)
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_loaders_end_when_the_training_says_so(noted):
    """Python does so at the end of a training; before, everybody's signal has come."""
    loader = iter(DataLoader(Slow(), num_workers=1, multiprocessing_context="fork"))
    next(loader)
    (worker,) = loader._workers
    send_from_elsewhere([worker.pid])
    next(loader)
    assert worker.is_alive()
    worker.terminate()
    worker.join(10)
    assert worker.exitcode == 0


def test_a_loader_obeys_everybody_where_no_training_has_noted_sigterm(monkeypatch):
    """As in generation: there SIGTERM is to end the loaders, too."""
    set_up, blocked = [], []
    monkeypatch.setattr(workers, "_torch_set_worker_signal_handlers", lambda: set_up.append("PyTorch's"))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *arguments: blocked.append(arguments))
    monkeypatch.setattr(workers, "end_when_the_training_says_so", lambda: None)
    for handler in (signal.SIG_DFL, signal.SIG_IGN, lambda number, frame: None):
        monkeypatch.setattr(signal, "getsignal", lambda number, handler=handler: handler)
        workers.set_worker_signal_handlers()
    assert set_up == ["PyTorch's"] * 3 and blocked == [(signal.SIG_BLOCK, {signal.SIGTERM})]


@pytest.mark.filterwarnings("ignore:This process")
def test_the_loaders_of_an_epoch_end_with_it():
    """Where each epoch or validation has an iterator of its own, a process of each would stay, with all its memory."""
    gc.disable()
    try:
        for epoch in (1, 2):
            iterator = EpochBatchIterator(Slow(), default_collate, [[0, 1], [2, 3], [4]], num_workers=1, buffer_size=2,
                                          epoch=epoch, reuse_dataloader=True, persistent_workers=True)  # fmt: skip
            assert [len(batch) for batch in iterator.next_epoch_itr(shuffle=False)] == [2, 2, 1]
            assert len(list(iterator.next_epoch_itr(shuffle=False))) == 3  # the same processes
            assert len(multiprocessing.active_children()) == 1
        del iterator
        assert not multiprocessing.active_children()
    finally:
        gc.enable()


def test_a_command_of_a_test_does_not_wait_for_the_tests_own_loaders(run):
    """It runs in a fork, which has inherited them and cannot join them; its output was lost then."""
    loader = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    loader.start()
    try:
        result = run("scripts/score.py", "--help")
    finally:
        loader.terminate()
    assert result.returncode == 0 and result.stdout.startswith("usage"), result.stderr


def test_a_workers_loaders_have_ended_when_its_garbage_is_collected(noted, monkeypatch):
    """Otherwise their iterator, whose queues are closed by then, waits five seconds for each. Others go on to their end."""
    loaders, codes = iter(DataLoader(Slow(), num_workers=2, multiprocessing_context="fork")), []
    assert [int(next(loaders)) for _ in range(2)] == [0, 1]  # both have begun, and obey the training

    def collect():
        for loader in loaders._workers:
            loader.join(10)
            codes.append(loader.exitcode)

    monkeypatch.setattr(workers, "_fairseq_distributed_main", lambda *arguments: None)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setattr(gc, "collect", collect)
    of_the_user = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.3,))
    of_the_user.start()
    workers.distributed_main(0, None, None, {})
    monkeypatch.undo()
    of_the_user.join()
    assert codes == [0, 0] and of_the_user.exitcode == 0
