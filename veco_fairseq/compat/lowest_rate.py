# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets ``--stop-min-lr`` end a training at the end of an epoch, once the learning rate has fallen so far, and not before."""

from collections.abc import Callable
from functools import wraps

from fairseq.trainer import Trainer

OFF = -1.0  # fairseq's default


def may_end(trainer: Trainer, within_epoch: bool) -> None:
    """Put ``--stop-min-lr`` out of force for the epoch to come, if it is in the middle or the learning rate rises.

    fairseq compares before each epoch, and also where a training begins, with a rate of 0 before its warm-up, and where it
    goes on within an epoch, whose rest an uninterrupted training is trained for. It would end without an update, and succeed.
    """
    lowest, updates = trainer.cfg.optimization.stop_min_lr, trainer.get_num_updates()
    if lowest <= OFF or trainer.get_lr() > lowest or (updates and not within_epoch and not _rises(trainer)):
        return
    trainer.stop_min_lr, trainer.cfg.optimization.stop_min_lr = lowest, OFF


def _rises(trainer: Trainer) -> bool:
    """Return whether the learning rate is higher than one update ago."""
    schedule, rate = trainer.lr_scheduler, trainer.get_lr()
    state = dict(vars(schedule))
    before = schedule.step_update(trainer.get_num_updates() - 1)
    vars(schedule).update(state)
    trainer.optimizer.set_lr(rate)
    return before < rate


def in_force_again(begin_epoch: Callable) -> Callable:
    """Make a ``begin_epoch``, which follows the comparison, that puts the option in force again."""

    @wraps(begin_epoch)
    def begin(trainer: Trainer, epoch: int):
        trainer.cfg.optimization.stop_min_lr = vars(trainer).pop("stop_min_lr", trainer.cfg.optimization.stop_min_lr)
        return begin_epoch(trainer, epoch)

    return begin


def risen(lr_step: Callable) -> Callable:
    """Make a ``lr_step``, which ends an epoch before the comparison, that looks whether the rate rises."""

    @wraps(lr_step)
    def step(trainer: Trainer, *args, **options) -> float:
        rate = lr_step(trainer, *args, **options)
        may_end(trainer, within_epoch=False)
        return rate

    return step
