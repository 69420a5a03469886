# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Errors of loader processes and of several workers end all of them, in one line."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks.translation import TranslationTask
from support.stock import (
    trained,  # noqa: F401  fixtures
)

from veco_fairseq.cli import user_message
from veco_fairseq.compat import mistakes, workers
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.camlm import CamlmTask


class BadDataset(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise UserError("data/x, item 0: bad")


def test_error_in_a_loader_process():
    with pytest.raises(UserError) as caught:
        list(torch.utils.data.DataLoader(BadDataset(), num_workers=1))
    assert "Traceback" in str(caught.value)  # as torch hands it over
    assert user_message(caught.value) == "data/x, item 0: bad"


def fail_with_user_error(rank):
    raise UserError("data/x: bad")


def fail_with_fairseq_error(rank):
    raise FileNotFoundError("Dataset not found: train (data)")


@pytest.mark.parametrize(
    "worker, words",
    [
        (fail_with_user_error, "data/x: bad"),
        (fail_with_fairseq_error, "data: has no train data of these languages"),
    ],
)
def test_error_in_a_spawned_worker(worker, words):
    # fairseq trains on several GPUs in spawned processes; forked here, to be quick: the error comes back alike
    with pytest.raises(torch.multiprocessing.ProcessRaisedException) as caught:
        torch.multiprocessing.start_processes(worker, nprocs=1, start_method="fork")
    assert mistakes.mistake(caught.value).startswith(words)


@pytest.mark.parametrize(("message", "words"), [
    ("out of memory in a mono batch of 2 x 8 x 512 tokens",
     "out of memory in a mono batch of 2 x 8 x 512 tokens: lower --max-tokens (with --reset-dataloader, if the last "
     "checkpoint is in the middle of an epoch), or add --checkpoint-activations"),
    ("CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory: lower --max-tokens or --batch-size, and in "
     "training raise --update-freq as much (with --reset-dataloader, if the last checkpoint is in the middle of an epoch)"),
])  # fmt: skip
def test_out_of_memory(message, words):
    assert mistakes.mistake(torch.OutOfMemoryError(message)) == words


FULL = (
    "CUDA out of memory. Tried to allocate 376.00 MiB. GPU 1 has a total capacity of 79.15 GiB of which 21.25 MiB is free. Process 7 "
    "has 70.11 GiB memory in use. Including non-PyTorch memory, this process has {} memory in use. Of the allocated memory 1.00 GiB is "
    "allocated by PyTorch, and 55.12 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(("own", "told"), [("9.01 GiB", True), ("812.00 MiB", True), ("39.57 GiB", True), ("39.58 GiB", False)])
@pytest.mark.parametrize("of_a_batch", [False, True])
def test_a_gpu_that_others_fill(own, told, of_a_batch):
    """... has no memory, however small the batches are; a batch of pre-training is named where they are too large."""
    error = torch.OutOfMemoryError(FULL.format(own))
    if of_a_batch:
        error, error.__cause__ = torch.OutOfMemoryError("out of memory in a mono batch of 2 x 8 x 512 tokens"), error
    others = (
        f"GPU 1 is out of memory, of which other programs have most: this one has {own} of 79.15 GiB: end them, choose another "
    )
    line = mistakes.mistake(error)
    assert line.startswith(others) == told
    assert ("mono batch" in line) == (of_a_batch and not told)


@pytest.mark.parametrize("number", [1, 2])
def test_a_worker_out_of_memory_ends_all(monkeypatch, number):
    """One worker alone leaves the batch out, as fairseq does."""
    monkeypatch.setattr(workers, "_fairseq_trainer_train_step", lambda trainer, samples, raise_oom: raise_oom)
    trainer = SimpleNamespace(data_parallel_world_size=number)
    assert workers.trainer_train_step(trainer, []) == (number > 1)
    assert workers.trainer_train_step(trainer, [], raise_oom=True) is True


@pytest.mark.parametrize(("task", "asked", "given"), [
    (CamlmTask, "pytorch_ddp", "legacy_ddp"),
    (CamlmTask, "c10d", "legacy_ddp"),
    (CamlmTask, "no_c10d", "no_c10d"),
    (CamlmTask, "legacy_ddp", "legacy_ddp"),
    (TranslationTask, "pytorch_ddp", "pytorch_ddp"),
    (TranslationTask, "cpu: pytorch_ddp", "legacy_ddp"),
    (TranslationTask, "cpu: no_c10d", "no_c10d"),
], ids=["ours", "ours, old name", "ours, chosen", "ours, legacy", "fairseq's", "fairseq's on a CPU", "chosen on a CPU"])  # fmt: skip
def test_ddp_backend(monkeypatch, task, asked, given):
    monkeypatch.setattr(workers, "_fairseq_trainer_init", lambda *arguments: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cpu, asked = asked.startswith("cpu: "), asked.removeprefix("cpu: ")
    cfg = SimpleNamespace(common=SimpleNamespace(cpu=cpu), distributed_training=SimpleNamespace(ddp_backend=asked))
    workers.trainer_init(None, cfg, task.__new__(task))
    assert cfg.distributed_training.ddp_backend == given


def test_another_number_of_workers_is_refused_in_the_middle_of_an_epoch():
    """fairseq would leave out, or repeat, what lies between the two."""

    def iterator(workers: int, size: int = 1) -> EpochBatchIterator:
        numbers = torch.utils.data.TensorDataset(torch.arange(8))
        batches = torch.arange(8).split(size)
        return EpochBatchIterator(numbers, lambda items: int(items[0][0]), batches, num_shards=workers)

    begun = iterator(2)
    batches = begun.next_epoch_itr(shuffle=False)
    next(batches)
    same = iterator(2)
    same.load_state_dict(begun.state_dict())
    assert list(same.next_epoch_itr(shuffle=False)) == [2, 4, 6]
    with pytest.raises(UserError, match="the middle of epoch 1, .* number of workers was 2 and is 1: change it back"):
        iterator(1).load_state_dict(begun.state_dict())
    with pytest.raises(UserError, match="epoch 1, .* number of batches was 8 and is 4"):
        iterator(2, size=2).load_state_dict(begun.state_dict())
    assert len(list(batches)) == 3
    other = iterator(1)
    other.load_state_dict(begun.state_dict())
    assert other.next_epoch_idx == 2
