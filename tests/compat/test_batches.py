# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The batches of a training that goes on: of which epoch they are made, and in which order they come."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator, GroupedIterator

from veco_fairseq.compat import batches


@pytest.mark.parametrize("options, made", [
    ({}, [(1, True)]),  # as a whole run has made it
    ({"update_epoch_batch_itr": True}, [(4, True)]),
    ({"disable_iterator_cache": True}, [(4, True)]),
    ({"can_reuse": False}, [(1, True), (4, False)]),  # which is known once the data are loaded
    ({"load_dataset": False}, [(1, False)]),
    ({"load_dataset": False, "can_reuse": False}, [(4, False)]),
])  # fmt: skip
def test_the_epoch_whose_batches_a_resumed_training_makes(monkeypatch, options, made):
    found, epochs = [], []
    chosen = {
        "update_epoch_batch_itr": False,
        "disable_iterator_cache": False,
        "can_reuse": True,
        "load_dataset": True,
        **options,
    }

    def make(trainer, epoch, *args, load_dataset, **more):
        found.append((epoch, load_dataset))
        assert args == ("x",) and set(more) == {"disable_iterator_cache"}
        data = SimpleNamespace(set_epoch=epochs.append)
        return SimpleNamespace(epoch=epoch, dataset=data, _cur_epoch_itr=None, _next_epoch_itr=None)

    monkeypatch.setattr(batches, "_fairseq_get_train_iterator", make)
    task = SimpleNamespace(
        dataset={"train7": "data"}.get, can_reuse_epoch_itr=lambda data: chosen["can_reuse"] and data == "data"
    )
    cfg = SimpleNamespace(update_epoch_batch_itr=chosen["update_epoch_batch_itr"], train_subset="train7")
    trainer = SimpleNamespace(cfg=SimpleNamespace(dataset=cfg), task=task, lr_scheduler=None)
    kept = {name: chosen[name] for name in ("load_dataset", "disable_iterator_cache")}
    assert batches.get_train_iterator(trainer, 4, "x", **kept).epoch == 4
    assert found == made and epochs == ([] if len(made) == 2 else [4])


def test_the_iterator_of_the_epoch_before_stays_as_it_is(monkeypatch):
    for going in ("_cur_epoch_itr", "_next_epoch_itr"):
        old = SimpleNamespace(**{"epoch": 3, "_cur_epoch_itr": None, "_next_epoch_itr": None, going: "its batches"})
        monkeypatch.setattr(batches, "_fairseq_get_train_iterator", lambda *args, old=old, **more: old)
        cfg = SimpleNamespace(update_epoch_batch_itr=False, train_subset="train")
        task = SimpleNamespace(dataset=lambda name: None, can_reuse_epoch_itr=lambda data: True)
        trainer = SimpleNamespace(cfg=SimpleNamespace(dataset=cfg), task=task, lr_scheduler=None)
        assert batches.get_train_iterator(trainer, 4) is old and old.epoch == 3


class Numbers(torch.utils.data.TensorDataset):
    """A data set that fairseq asks to read ahead, as only such a one can have --fix-batches-to-gpus."""

    supports_prefetch = True

    def prefetch(self, indices):
        pass


def epochs(size=12, **options):
    numbers = Numbers(torch.arange(size))
    return EpochBatchIterator(
        numbers, lambda items: int(items[0][0]) if items else None, [[number] for number in range(size)],
        **{"seed": 3, "num_shards": 2, **options},
    )  # fmt: skip


class Rates:
    """A schedule that notes the number of an epoch's batches."""

    def set_batches(self, batches_in, epoch, done):
        self.count = batches_in(epoch)


def of_training(monkeypatch, iterator):
    """Return the iterator as a trainer gets it, and how many batches an epoch of its schedule has."""
    monkeypatch.setattr(batches, "_fairseq_get_train_iterator", lambda *args, **more: iterator)
    cfg = SimpleNamespace(update_epoch_batch_itr=False, train_subset="train")
    task = SimpleNamespace(dataset=lambda name: None, can_reuse_epoch_itr=lambda data: True)
    trainer = SimpleNamespace(cfg=SimpleNamespace(dataset=cfg), task=task, lr_scheduler=Rates())
    iterator.dataset.set_epoch = lambda epoch: None
    return batches.get_train_iterator(trainer, 1), trainer.lr_scheduler.count


@pytest.mark.parametrize("size, count", [(7, 4), (8, 4), (1, 1)])
def test_grouped_shuffling_trains_on_all_batches(monkeypatch, size, count):
    """Also in an epoch that is resumed."""
    found = []
    for shard in (0, 1):
        iterator, counted = of_training(monkeypatch, epochs(size, shard_id=shard, grouped_shuffling=True))
        epoch = iterator.next_epoch_itr()
        first, state = next(epoch), iterator.state_dict()
        whole = [first, *epoch]
        assert len(whole) == counted == count
        if count > 1:
            resumed, _ = of_training(monkeypatch, epochs(size, shard_id=shard, grouped_shuffling=True))
            resumed.load_state_dict(state)
            assert list(resumed.next_epoch_itr()) == whole[1:]
        found.append(whole)
    assert {number for numbers in found for number in numbers if number is not None} == set(range(size))
    assert all(None in pair or abs(pair[0] - pair[1]) == 1 for pair in zip(*found))  # of neighbours in length


@pytest.mark.parametrize("size, shards, left", [(12, 2, 5), (7, 1, 6), (2, 2, 1), (1, 1, 1)])
def test_the_batch_that_is_skipped_is_not_counted_and_not_the_only_one(monkeypatch, size, shards, left):
    iterator, counted = of_training(monkeypatch, epochs(size, num_shards=shards, shard_id=0, skip_remainder_batch=True))
    for _ in range(2):
        groups = GroupedIterator(iterator.next_epoch_itr(), 1, True)
        assert len(list(groups)) == counted == left and iterator.end_of_epoch()


@pytest.mark.parametrize("fixed", [False, True])
def test_a_resumed_epoch_goes_on_with_the_workers_own_batches(fixed):
    """With --fix-batches-to-gpus these are the same in every epoch; else each epoch deals them anew."""
    whole = epochs(shard_id=1)
    list(whole.next_epoch_itr(shuffle=True, fix_batches_to_gpus=fixed))
    second = whole.next_epoch_itr(shuffle=True, fix_batches_to_gpus=fixed)
    first = [next(second), next(second)]
    state = whole.state_dict()
    assert state["fix_batches_to_gpus"] is fixed and state["iterations_in_epoch"] == 2
    rest = list(second)
    assert (set(first + rest) == set(range(1, 12, 2))) == fixed
    resumed = epochs(shard_id=1)
    resumed.load_state_dict(state)
    assert list(resumed.next_epoch_itr(shuffle=True, fix_batches_to_gpus=fixed)) == rest
    assert "made_from" not in whole.state_dict()


@pytest.mark.parametrize("ahead", [True, False])
def test_fixed_batches_of_data_that_are_not_read_ahead_are_told_of(monkeypatch, caplog, ahead):
    """... once; they are shuffled as without the option."""
    monkeypatch.setattr(Numbers, "supports_prefetch", ahead)
    batches._tell_of_no_effect.cache_clear()
    free, fixed, again = (list(epochs(shard_id=1).next_epoch_itr(fix_batches_to_gpus=word)) for word in (False, True, True))
    assert (free == fixed) == (not ahead) and fixed == again
    told = ["--fix-batches-to-gpus: does nothing: only data that are read ahead, of --dataset-impl cached, follow it"]
    assert caplog.messages == told * (not ahead)


def test_the_order_of_an_epoch_is_the_one_that_was_asked_for():
    """--curriculum's first epochs are in order, and one loader is kept for all."""
    iterator = epochs(shard_id=0, reuse_dataloader=True, num_workers=0)
    assert list(iterator.next_epoch_itr(shuffle=False)) == [0, 2, 4, 6, 8, 10]
    assert list(iterator.next_epoch_itr(shuffle=True)) != [0, 2, 4, 6, 8, 10]
    assert list(iterator.next_epoch_itr(shuffle=False)) == [0, 2, 4, 6, 8, 10]


def test_what_an_older_checkpoint_does_not_tell_is_not_compared():
    begun = epochs(shard_id=0)
    next(begun.next_epoch_itr(shuffle=False))
    state = begun.state_dict()
    del state["made_from"]["--seed"], state["fix_batches_to_gpus"]
    other = epochs(shard_id=0)
    other.seed = 4
    other.load_state_dict(state)
    assert other.fix_batches_to_gpus is False
    del state["made_from"]
    epochs(shard_id=0).load_state_dict(state)


@pytest.mark.parametrize("skip, begun, size, rest", [
    (False, 0, 4, [[0, 1, 2, 3], [4, 5]]),
    (False, 1, 4, [[1, 2, 3, 4], [5]]),  # of four and two batches, fairseq expects one more group
    (False, 2, 2, [[2, 3], [4, 5]]),
    (False, 5, 4, [[5]]),
    (True, 0, 4, [[0, 1, 2, 3]]),
    (True, 1, 2, [[1, 2], [3, 4]]),
    (True, 3, 3, [[3, 4, 5]]),
    (True, 4, 3, [[4, 5]]), (True, 0, 7, [[0, 1, 2, 3, 4, 5]]),  # less than a group, and yet an update
])  # fmt: skip
def test_an_epoch_is_trained_to_its_end_with_another_update_freq(skip, begun, size, rest):
    """Each of the two workers has six batches, and has trained on the first ``begun`` of them."""
    before, iterator = epochs(shard_id=0), epochs(shard_id=0)
    batches_before = before.next_epoch_itr(shuffle=False)
    for _ in range(begun):
        next(batches_before)
    iterator.load_state_dict(before.state_dict() if begun else {"epoch": 1})
    groups = GroupedIterator(iterator.next_epoch_itr(shuffle=False), size, skip)
    place = groups.n
    assert [[number // 2 for number in group] for group in groups] == rest
    assert iterator.end_of_epoch() and iterator.next_epoch_idx == 2
    assert len(groups) == place + len(rest) and place == -(-begun // size)  # as progress is shown


@pytest.mark.parametrize("begun, size, told", [
    (0, 7, "6 batches, less than --update-freq 7"), (4, 3, "2 batches left, less than --update-freq 3"), (0, 6, None), (4, 2, None),
])  # fmt: skip
def test_a_remainder_that_is_not_skipped_is_told(caplog, begun, size, told):
    before, iterator = epochs(shard_id=0), epochs(shard_id=0)
    epoch = before.next_epoch_itr(shuffle=False)
    for _ in range(begun):
        next(epoch)
    iterator.load_state_dict(before.state_dict() if begun else {"epoch": 1})
    GroupedIterator(iterator.next_epoch_itr(shuffle=False), size, True)
    lines = [f"--skip-remainder-batch: the epoch has {told}: they make one update"] if told else []
    assert [record.getMessage() for record in caplog.records if record.name == batches.__name__] == lines


def test_one_batch_is_made_of_what_is_left_and_none_of_nothing():
    assert [list(batch) for batch in batches.batch_by_size(iter([]), lambda number: 3, max_tokens=9)] == []
    found = batches.batch_by_size(iter([4, 2, 0]), lambda number: 3, max_tokens=6, required_batch_size_multiple=1)
    assert [list(batch) for batch in found] == [[4, 2], [0]]


@pytest.mark.parametrize("shards, shard, asked", [(1, 0, (4, 3)), (3, 2, (3, 2))])
def test_generate_translates_a_shard(shards, shard, asked):
    """Without --num-shards, the one of --distributed-world-size, as fairseq does."""
    workers = SimpleNamespace(distributed_world_size=4, distributed_rank=3)
    cfg = SimpleNamespace(dataset=SimpleNamespace(num_shards=shards, shard_id=shard), distributed_training=workers)
    assert batches.sharded(lambda cfg, file: file)(cfg, "output") == "output"
    assert (workers.distributed_world_size, workers.distributed_rank) == asked
