# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes sure that a training has the requested batches, and a resumed one the batches of an uninterrupted one."""

import logging
import math
import weakref
import zlib
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np
from fairseq.data import data_utils
from fairseq.data.iterators import CountingIterator, EpochBatchIterator, GroupedIterator, _chunk_iterator
from fairseq.trainer import Trainer

from veco_fairseq.compat.hooks import CountsBatches, FollowsEpochs, TellsMadeFrom
from veco_fairseq.errors import UserError
from veco_fairseq.optim.linear_by_epoch import updates_of

logger = logging.getLogger(__name__)

_fairseq_batch_by_size = data_utils.batch_by_size
_fairseq_get_train_iterator = Trainer.get_train_iterator
_fairseq_iterator_for_epoch = EpochBatchIterator._get_iterator_for_epoch
_fairseq_epoch_state = EpochBatchIterator.state_dict
_fairseq_load_epoch_state = EpochBatchIterator.load_state_dict


def batch_by_size(indices, *args, **kwargs) -> list[np.ndarray]:
    """Make batches by size, and one more from the sentences that fairseq leaves out at the end.

    fairseq leaves out up to 7 sentences if the size of a set is no multiple of --required-batch-size-multiple (8 by
    default). For fairseq, a set of 7 sentences "is empty".
    """
    indices = np.fromiter(indices, dtype=np.int64)
    batches = list(_fairseq_batch_by_size(indices, *args, **kwargs)) if len(indices) else []
    rest = indices[sum(map(len, batches)) :]
    return [*batches, rest] if len(rest) else batches


def get_train_iterator(trainer: Trainer, epoch: int, *args, **kwargs) -> EpochBatchIterator:
    """Return :func:`_of_whole_run`, and tell a scheduler that follows epochs the numbers of a worker's batches."""
    batches = _of_whole_run(trainer, epoch, *args, **kwargs)
    fill_groups(batches)
    if isinstance(trainer.lr_scheduler, FollowsEpochs):
        count = len(batches) - leaves_out_one(batches)
        batches_in = batches.batches_in if isinstance(batches, CountsBatches) else lambda number: count
        trainer.lr_scheduler.set_batches(batches_in, epoch, lambda: batches.iterations_in_epoch)
    return batches


def fill_groups(iterator: EpochBatchIterator) -> None:
    """Add empty batches to those of ``--grouped-shuffling``, so that each group has one for every worker.

    fairseq never trains on the batches that make no whole group, which are the longest.
    """
    if getattr(iterator, "grouped_shuffling", False) and (rest := len(iterator.frozen_batches) % iterator.num_shards):
        iterator._frozen_batches = (*iterator.frozen_batches, *[[]] * (iterator.num_shards - rest))


def leaves_out_one(iterator: EpochBatchIterator) -> bool:
    """Return whether ``--skip-remainder-batch`` leaves out an epoch's last batch: always in fairseq, here not the only one."""
    return getattr(iterator, "skip_remainder_batch", False) and len(iterator) > 1


def _of_whole_run(trainer: Trainer, epoch: int, *args, load_dataset: bool = True, **kwargs) -> EpochBatchIterator:
    """Return the iterator of an epoch; a run that is resumed in a later epoch makes the batches of epoch 1.

    fairseq seeds the grouping into batches with the epoch for which it builds the iterator. Then it keeps this iterator
    for all later epochs, which have the same batches in other orders. An iterator built in epoch 3 has other batches.
    """
    cfg, task = trainer.cfg.dataset, trainer.task

    def kept() -> bool:
        """Return whether fairseq keeps the iterator: not with a root for each epoch, nor if the data forbid it."""
        anew = kwargs.get("disable_iterator_cache") or cfg.update_epoch_batch_itr
        return not anew and (load_dataset or task.can_reuse_epoch_itr(task.dataset(cfg.train_subset)))

    first = 1 if kept() else epoch
    iterator = _fairseq_get_train_iterator(trainer, first, *args, load_dataset=load_dataset, **kwargs)
    load_dataset = False  # the data set is loaded now, for epoch 1, as the whole run has loaded it
    if first != epoch and not kept():
        return _fairseq_get_train_iterator(trainer, epoch, *args, load_dataset=load_dataset, **kwargs)
    if iterator._cur_epoch_itr is None and iterator._next_epoch_itr is None:  # a new iterator, not that of the epoch before
        iterator.epoch = epoch
        iterator.dataset.set_epoch(epoch)
    return iterator


def iterator_for_epoch(
    iterator: EpochBatchIterator, epoch: int, shuffle: bool, fix_batches_to_gpus: bool | None = None, offset: int = 0
):
    """Return the batches of an epoch in the requested order, also in the middle of a run.

    fairseq keeps one loader for all epochs, which stays unshuffled after ``--curriculum``. A resumed epoch also forgets
    ``--fix-batches-to-gpus`` (here it is None, as :func:`load_epoch_state` has left it). And with --skip-remainder-batch it leaves
    out the only batch of a small set, and has no update whose validation it could return.

    An iterator and its sampler refer to each other. So where each epoch or validation has a new iterator, the old ones'
    loader processes would stay, with their memory, until Python collects such circles.
    """
    if fix_batches_to_gpus is not None:
        iterator.fix_batches_to_gpus = fix_batches_to_gpus
    fixed = getattr(iterator, "fix_batches_to_gpus", False)
    if fixed and not iterator._supports_prefetch:
        _tell_of_no_effect()
    if iterator.reuse_dataloader and iterator.dataloader is not None:
        iterator.epoch_batch_sampler.shuffle, iterator.epoch_batch_sampler.fix_batches_to_gpus = shuffle, fixed
    iterator.skip_remainder_batch = leaves_out_one(iterator)
    batches = _fairseq_iterator_for_epoch(iterator, epoch, shuffle, fixed, offset)
    itself = weakref.proxy(iterator)
    iterator.epoch_batch_sampler.ordered_batches = lambda *args: itself.ordered_batches(*args)
    return batches


@cache  # once
def _tell_of_no_effect() -> None:
    logger.warning("--fix-batches-to-gpus: does nothing: only data that are read ahead, of --dataset-impl cached, follow it")


def group(groups: GroupedIterator, batches: CountingIterator, chunk_size: int, skip_remainder_batch: bool = False) -> None:
    """Make the groups of batches that are an update each: from where the epoch is, to its end.

    fairseq takes the groups before that place as whole ones of this size. After a resumption with another --update-freq the
    last batches of the epoch are then left over, for which fairseq trains the whole epoch again. With --skip-remainder-batch
    and less than a group, fairseq has no update whose validation it could return.
    """
    rest = len(batches) - batches.n
    left = updates_of(rest, chunk_size, skip_remainder_batch)
    if skip_remainder_batch:
        if 0 < rest < chunk_size:
            logger.warning(
                f"--skip-remainder-batch: the epoch has {rest} batches{' left' if batches.n else ''}, less than --update-freq "
                f"{chunk_size}: they make one update"
            )
        batches.take(batches.n + left * chunk_size)  # with which the epoch ends
    begun = math.ceil(batches.n / chunk_size)
    CountingIterator.__init__(groups, _chunk_iterator(batches, chunk_size), start=begun, total=begun + left)
    groups.chunk_size = chunk_size


def sharded(main: Callable) -> Callable:
    """Make a ``main`` of fairseq-generate that translates the part of ``--num-shards`` and ``--shard-id``, which fairseq ignores."""

    @wraps(main)
    def translate_shard(cfg, *args):
        if cfg.dataset.num_shards > 1:  # by whose names fairseq hands out batches
            cfg.distributed_training.distributed_world_size = cfg.dataset.num_shards
            cfg.distributed_training.distributed_rank = cfg.dataset.shard_id
        return main(cfg, *args)

    return translate_shard


def made_from(iterator: EpochBatchIterator) -> dict[str, Any]:
    """Return what an epoch's batches depend on, by option: the iterator's ``made_from``, or what the iterator shows."""
    if isinstance(iterator, TellsMadeFrom):
        return iterator.made_from
    return {
        "number of workers": iterator.num_shards,
        "number of batches": len(iterator.frozen_batches),
        "--seed": iterator.seed,
        "checksum of the sentences' lengths and places": _checksum(iterator),
    }


def _checksum(iterator: EpochBatchIterator) -> str:
    """Return a checksum of the batches of all epochs, computed once; it differs with another --max-tokens or other data."""
    batches = iterator.frozen_batches
    if getattr(iterator, "_checked", None) is not batches:
        value = _checksum_of_lengths(iterator.dataset)
        for batch in batches:
            value = zlib.crc32(np.asarray(batch, dtype=np.int64).data, value)
        iterator._checked, iterator._checksum = batches, f"{value:08x}"
    return iterator._checksum


def _checksum_of_lengths(dataset) -> int:
    return zlib.crc32(np.ascontiguousarray(getattr(dataset, "sizes", ())).data)


def number_and_lengths(dataset) -> str:
    """Return what tells one set of examples from another: their number, and a checksum of their lengths."""
    lengths = getattr(dataset, "checksums", None) or {"": f"{_checksum_of_lengths(dataset):08x}"}  # pre-training's are by kind
    return f"{len(dataset):,} examples (checksum of their lengths: {' and '.join(lengths.values())})"


def epoch_state(iterator: EpochBatchIterator) -> dict[str, Any]:
    """Return what a checkpoint keeps; in the middle of an epoch with :func:`made_from` and ``--fix-batches-to-gpus``."""
    state = _fairseq_epoch_state(iterator)
    if not state["iterations_in_epoch"]:
        return state
    fixed = getattr(iterator, "fix_batches_to_gpus", False)
    return {**state, "made_from": made_from(iterator), "fix_batches_to_gpus": fixed}


def load_epoch_state(iterator: EpochBatchIterator, state: dict[str, Any]) -> None:
    """Go on in the epoch of a checkpoint, if its batches are the same.

    Raises:
        UserError: the checkpoint is in the middle of an epoch, whose batches would now be others.
    """
    then, iterator.epoch = state.get("made_from"), state["epoch"]
    if then and state["iterations_in_epoch"]:
        now = made_from(iterator)
        changes = [f"{name} was {then[name]} and is {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
        if changes:
            raise UserError(
                f"the checkpoint is in the middle of epoch {state['epoch']}, whose other batches cannot be the same any "
                f"more: {'; '.join(changes)}: change it back, or begin with epoch 1 again (--reset-dataloader)"
            )
    iterator.fix_batches_to_gpus = state.get("fix_batches_to_gpus", False)
    _fairseq_load_epoch_state(iterator, state)
