# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Workers that would begin with other files or options than the first one, whose weights would become others without a word."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.configs import OptimizationConfig

from veco_fairseq.compat import stopping, together
from veco_fairseq.errors import UserError


class Batches(EpochBatchIterator):
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number


def worker(rank, seed=1, lr=1e-3, updates=3, batches=384, weight=0.5, weights=(2.0, -3.0), expert=1.0):
    """A trainer, and its iterator."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(weight)
        model.bias.copy_(torch.tensor(weights))
    model.expert = torch.nn.Parameter(torch.tensor(expert))
    model.expert.expert = True
    cfg = SimpleNamespace(
        common=SimpleNamespace(seed=seed),
        optimization=OptimizationConfig(lr=[lr], max_update=9),
        checkpoint=SimpleNamespace(save_dir="ck"),
        task=SimpleNamespace(data="root"),
        distributed_training=SimpleNamespace(distributed_rank=rank),
    )
    trainer = SimpleNamespace(
        cfg=cfg, model=model, device="cpu", data_parallel_world_size=2, data_parallel_process_group="group",
        get_num_updates=lambda: updates,
    )  # fmt: skip
    return trainer, Batches(batches)


@pytest.fixture
def ends(monkeypatch):
    """Return a function of two workers that returns how each ends, in what would be one all-reduce."""

    def run(*workers):
        sent, ended = [], []

        def send(tensor, group, op):
            assert (group, op) == ("group", "max")
            sent.append(tensor.clone())
            raise InterruptedError

        def receive(tensor, group, op):
            tensor.copy_(torch.stack(sent).amax(0))

        for own in workers:
            monkeypatch.setattr(together.distributed_utils, "all_reduce", send)
            with pytest.raises(InterruptedError):
                together.begin_alike(*own)
        monkeypatch.setattr(together.distributed_utils, "all_reduce", receive)
        for own in workers:
            try:
                ended.append(together.begin_alike(*own))
            except (UserError, SystemExit) as end:
                ended.append(end)
        return ended

    return run


def test_workers_that_begin_alike_go_on(ends):
    """... also with experts, of which each has its own, and with weights that are not numbers any more."""
    assert ends(worker(0), worker(1, expert=7.0)) == [None, None]
    assert ends(worker(0, weight=float("nan")), worker(1, weight=float("nan"))) == [None, None]


@pytest.mark.parametrize("other, message", [
    ({"seed": 2}, "--seed: is not the same for all workers: give the same command on each machine"),
    ({"lr": 1.1e-3}, "the options of optimization .--lr, --update-freq .... are not the same for all workers: give the same command"),
    ({"updates": 0}, "ck: the first worker goes on from update 3, and others do not: every machine reads its own files"),
    ({"updates": 4}, "ck: the first worker goes on from update 3, and others do not"),
    ({"batches": 383}, "root: the first worker has 384 batches in this epoch, and others have another number: give the same"),
    ({"weights": (2.0, -3.0001)}, "the workers begin with different weights: every machine reads its own files: share the folder"),
    ({"weights": (-2.0, -3.0)}, "the workers begin with different weights"),
])  # fmt: skip
def test_a_worker_that_begins_otherwise_ends_all(ends, other, message):
    """The first one tells what differs, and whichever has more."""
    first, second = ends(worker(0), worker(1, **other))
    assert isinstance(second, SystemExit) and second.code == 1
    with pytest.raises(UserError, match=message):
        raise first


def test_whole_numbers_are_compared_to_the_last_digit(ends):
    """Seeds made of a date differ in the tenth; sums of weights, added up in another order, may."""
    first, _ = ends(worker(0, seed=2026112201), worker(1, seed=2026112202))
    with pytest.raises(UserError, match="^--seed: is not the same for all workers"):
        raise first
    assert ends(worker(0, weights=(2.0, 1e-10)), worker(1, weights=(2.0, 2e-10))) == [None, None]


def test_one_worker_asks_nobody(monkeypatch):
    trainer, batches = worker(0)
    trainer.data_parallel_world_size = 1
    monkeypatch.setattr(together.distributed_utils, "all_reduce", None)
    together.begin_alike(trainer, batches)
    together.agree(trainer, {"some": 3.0})
    together.refuse(trainer, None)
    with pytest.raises(UserError, match="why"):
        together.refuse(trainer, UserError("why"))


def test_the_other_workers_of_a_refused_training_end_with_1(monkeypatch):
    cfg = SimpleNamespace(no_save=False)
    trainer = SimpleNamespace(cfg=SimpleNamespace(distributed_training=None))
    monkeypatch.setattr(stopping.distributed_utils, "is_master", lambda cfg: False)
    monkeypatch.setattr(together, "highest", lambda trainer, number: 1.0)
    with pytest.raises(SystemExit) as end:
        stopping.load_checkpoint(cfg, trainer)
    assert end.value.code == 1
