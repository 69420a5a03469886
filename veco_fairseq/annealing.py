# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Learning rates that follow the validation loss are those of an undisturbed training after a resume, too."""

from typing import Any

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

_fairseq_plateau_state = ReduceLROnPlateauLRSchedule.state_dict
_fairseq_load_plateau_state = ReduceLROnPlateauLRSchedule.load_state_dict
_fairseq_plateau_step = ReduceLROnPlateauLRSchedule.step
COUNTERS = ("num_bad_epochs", "cooldown_counter")  # of torch's scheduler, which fairseq forgets


def end_epoch(trainer: Trainer, extra_state: dict[str, Any] | None) -> None:
    """Tell the scheduler of the validation of an epoch that a training is resumed after.

    fairseq saves before it tells it, and resumes without telling it.

    Args:
        trainer: as it was resumed.
        extra_state: of its checkpoint.
    """
    if not extra_state or not trainer.get_num_updates() or trainer.cfg.checkpoint.reset_lr_scheduler:
        return
    place, loss = extra_state["train_iterator"], extra_state.get("val_loss")
    if place["iterations_in_epoch"] == 0 and loss is not None:
        trainer.lr_step(place["epoch"] - 1, loss)


def plateau_state(scheduler: ReduceLROnPlateauLRSchedule) -> dict[str, Any]:
    """fairseq's, with what torch's scheduler has counted: epochs without progress, and since the last reduction."""
    return {**_fairseq_plateau_state(scheduler), **{name: getattr(scheduler.lr_scheduler, name) for name in COUNTERS}}


def load_plateau_state(scheduler: ReduceLROnPlateauLRSchedule, state: dict[str, Any]) -> None:
    """fairseq's, with these counts."""
    _fairseq_load_plateau_state(scheduler, state)
    for name in COUNTERS:
        setattr(scheduler.lr_scheduler, name, state.get(name, getattr(scheduler.lr_scheduler, name)))


def plateau_step(scheduler: ReduceLROnPlateauLRSchedule, epoch: int, val_loss: float | None = None) -> float:
    """fairseq's at the end of an epoch; when a training is resumed inside of one, nothing."""
    if val_loss is None and scheduler.lr_scheduler.last_epoch:
        return scheduler.optimizer.get_lr()
    return _fairseq_plateau_step(scheduler, epoch, val_loss)
