# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets ``--lr-scheduler reduce_lr_on_plateau`` go on after a stop as if there had been none."""

import math
from typing import Any

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

_fairseq_plateau_state = ReduceLROnPlateauLRSchedule.state_dict
_fairseq_load_plateau_state = ReduceLROnPlateauLRSchedule.load_state_dict
_fairseq_plateau_step = ReduceLROnPlateauLRSchedule.step

PLATEAU = ("num_bad_epochs", "cooldown_counter")  # what fairseq forgets


def plateau_state(scheduler: ReduceLROnPlateauLRSchedule) -> dict[str, Any]:
    """Return what a checkpoint keeps of the scheduler, with the number of validations without progress."""
    return {**_fairseq_plateau_state(scheduler), **{name: getattr(scheduler.lr_scheduler, name) for name in PLATEAU}}


def load_plateau_state(scheduler: ReduceLROnPlateauLRSchedule, state: dict[str, Any]) -> None:
    _fairseq_load_plateau_state(scheduler, state)
    vars(scheduler.lr_scheduler).update({name: state[name] for name in PLATEAU if name in state})


def plateau_step(scheduler: ReduceLROnPlateauLRSchedule, epoch: int, val_loss: float | None = None) -> float:
    """End an epoch; do nothing when a training is resumed within an epoch, where fairseq also calls this."""
    if val_loss is None and scheduler.lr_scheduler.last_epoch:
        return scheduler.optimizer.get_lr()
    return _fairseq_plateau_step(scheduler, epoch, val_loss)


def end_epoch_of(extra_state: dict[str, Any], trainer: Trainer) -> None:
    """Pass the last epoch's validation to the scheduler; fairseq does this only after it has saved."""
    place = extra_state["train_iterator"]
    if not place.get("iterations_in_epoch"):
        trainer.lr_step(place["epoch"] - 1, extra_state.get("val_loss"))


def makes(scheduler: ReduceLROnPlateauLRSchedule, rate: float) -> bool:
    """Return whether a learning rate is ``--lr``, or ``--lr`` times ``--lr-shrink`` once or several times."""
    highest, shrink = scheduler.cfg.lr[0], scheduler.cfg.lr_shrink
    if rate <= 0 or rate >= highest or not 0 < shrink < 1:
        return math.isclose(rate, highest)
    times = round(math.log(rate / highest, shrink))
    return math.isclose(rate, highest * shrink**times)


def begin_anew(trainer: Trainer) -> None:
    """Forget the best validation, which was by another metric or of another set."""
    if isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule):
        trainer.lr_scheduler.lr_scheduler._reset()
