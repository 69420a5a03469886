# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A resumed training has the batches of an uninterrupted one, in any epoch: what fairseq misses for that.

Written for fairseq-fixed 0.12.3.1; :mod:`veco_fairseq.compat` puts it in place.
"""

import zlib
from typing import Any

import numpy as np
from fairseq.data.iterators import EpochBatchIterator
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

from veco_fairseq.errors import UserError

_fairseq_get_train_iterator = Trainer.get_train_iterator
_fairseq_iterator_for_epoch = EpochBatchIterator._get_iterator_for_epoch
_fairseq_epoch_state = EpochBatchIterator.state_dict
_fairseq_load_epoch_state = EpochBatchIterator.load_state_dict
_fairseq_plateau_state = ReduceLROnPlateauLRSchedule.state_dict
_fairseq_load_plateau_state = ReduceLROnPlateauLRSchedule.load_state_dict
_fairseq_plateau_step = ReduceLROnPlateauLRSchedule.step
PLATEAU = ("num_bad_epochs", "cooldown_counter")  # what fairseq forgets


def get_train_iterator(trainer: Trainer, epoch: int, *args, load_dataset: bool = True, **kwargs) -> EpochBatchIterator:
    """fairseq's; but a run that is resumed in a later epoch makes its batches as those of epoch 1 were made.

    fairseq groups sentences into batches by a seed of the epoch for which the iterator is built, and keeps that
    iterator for all later epochs, which have the same batches in other orders. Built in epoch 3, it would have others.
    """
    cfg, task = trainer.cfg.dataset, trainer.task

    def kept() -> bool:
        """Whether fairseq keeps the iterator: not with a root for each epoch, or if the data forbid it."""
        anew = kwargs.get("disable_iterator_cache") or cfg.update_epoch_batch_itr
        return not anew and (load_dataset or task.can_reuse_epoch_itr(task.dataset(cfg.train_subset)))

    first = 1 if kept() else epoch
    iterator = _fairseq_get_train_iterator(trainer, first, *args, load_dataset=load_dataset, **kwargs)
    load_dataset = False  # it is loaded, and can be asked
    if first != epoch and not kept():
        return _fairseq_get_train_iterator(trainer, epoch, *args, load_dataset=True, **kwargs)
    if iterator._cur_epoch_itr is None and iterator._next_epoch_itr is None:  # a new one, not that of the epoch before
        iterator.epoch = epoch
        iterator.dataset.set_epoch(epoch)
    return iterator


def iterator_for_epoch(
    iterator: EpochBatchIterator, epoch: int, shuffle: bool, fix_batches_to_gpus: bool | None = None, offset: int = 0
):
    """fairseq's; the order is the one asked for in the middle of a run, too.

    fairseq's loader, kept for all epochs, goes on unshuffled after ``--curriculum``, and a resumed epoch forgets
    ``--fix-batches-to-gpus`` (here: None, as :func:`load_epoch_state` left it).
    """
    if fix_batches_to_gpus is not None:
        iterator.fix_batches_to_gpus = fix_batches_to_gpus
    fixed = getattr(iterator, "fix_batches_to_gpus", False)
    if iterator.reuse_dataloader and iterator.dataloader is not None:
        iterator.epoch_batch_sampler.shuffle, iterator.epoch_batch_sampler.fix_batches_to_gpus = shuffle, fixed
    return _fairseq_iterator_for_epoch(iterator, epoch, shuffle, fixed, offset)


def made_from(iterator: EpochBatchIterator) -> dict[str, Any]:
    """All that decides on an epoch's batches, by option: the iterator's own ``made_from``, or what can be told of it."""
    known = getattr(iterator, "made_from", None)
    if known:
        return known
    return {
        "number of workers": iterator.num_shards,
        "number of batches": len(iterator.frozen_batches),
        "--seed": iterator.seed,
        "checksum of the sentences' lengths and places": _checksum(iterator),
    }


def _checksum(iterator: EpochBatchIterator) -> str:
    """Of the batches of all epochs, computed once for all saves: another --max-tokens or other data show in it."""
    batches = iterator.frozen_batches
    if getattr(iterator, "_checked", None) is not batches:
        value = zlib.crc32(np.ascontiguousarray(getattr(iterator.dataset, "sizes", ())))
        for batch in batches:
            value = zlib.crc32(np.asarray(batch, dtype=np.int64), value)
        iterator._checked, iterator._checksum = batches, f"{value:08x}"
    return iterator._checksum


def epoch_state(iterator: EpochBatchIterator) -> dict[str, Any]:
    """fairseq's; in the middle of an epoch with :func:`made_from`, and with ``--fix-batches-to-gpus``."""
    state = _fairseq_epoch_state(iterator)
    if not state["iterations_in_epoch"]:
        return state
    fixed = getattr(iterator, "fix_batches_to_gpus", False)
    return {**state, "made_from": made_from(iterator), "fix_batches_to_gpus": fixed}


def load_epoch_state(iterator: EpochBatchIterator, state: dict[str, Any]) -> None:
    """fairseq's, if it can go on with the epoch of a checkpoint: at the same place of other batches it would not.

    Raises:
        UserError: in the middle of the epoch, whose other batches would not be those that it was begun with.
    """
    then = state.get("made_from")
    if then and state["iterations_in_epoch"]:
        now = made_from(iterator)
        changes = [f"{name} was {then[name]} and is {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
        if changes:
            raise UserError(
                f"the checkpoint is in the middle of epoch {state['epoch']}, whose other batches cannot be the same any "
                f"more: {'; '.join(changes)}: change it back, or begin anew with --reset-dataloader"
            )
    iterator.fix_batches_to_gpus = state.get("fix_batches_to_gpus", False)
    _fairseq_load_epoch_state(iterator, state)


# ``--lr-scheduler reduce_lr_on_plateau``


def plateau_state(scheduler: ReduceLROnPlateauLRSchedule) -> dict[str, Any]:
    """fairseq's, with the number of validations in vain."""
    return {**_fairseq_plateau_state(scheduler), **{name: getattr(scheduler.lr_scheduler, name) for name in PLATEAU}}


def load_plateau_state(scheduler: ReduceLROnPlateauLRSchedule, state: dict[str, Any]) -> None:
    _fairseq_load_plateau_state(scheduler, state)
    vars(scheduler.lr_scheduler).update({name: state[name] for name in PLATEAU if name in state})


def plateau_step(scheduler: ReduceLROnPlateauLRSchedule, epoch: int, val_loss: float | None = None) -> float:
    """fairseq's at the end of an epoch; nothing where a training is resumed inside of one, and fairseq calls it, too."""
    if val_loss is None and scheduler.lr_scheduler.last_epoch:
        return scheduler.optimizer.get_lr()
    return _fairseq_plateau_step(scheduler, epoch, val_loss)


def end_epoch_of(extra_state: dict[str, Any], trainer: Trainer) -> None:
    """Tell the scheduler the last epoch's validation, which fairseq does after it has saved."""
    place = extra_state["train_iterator"]
    if not place.get("iterations_in_epoch"):
        trainer.lr_step(place["epoch"] - 1, extra_state.get("val_loss"))
