# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tells what a resumed training takes from its checkpoint, where its options say something else."""

import ast
import logging
import os
from typing import Any

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

from veco_fairseq.compat import plateau
from veco_fairseq.options.flags import flag

logger = logging.getLogger(__name__)
# The part of all options that each is in.
BEGINNINGS = {"finetune_from_model": "checkpoint", "continue_once": "checkpoint", "init_from": "model"}


def tell_what_is_kept(trainer: Trainer, path: str) -> None:
    """Warn of options of the optimizer that a checkpoint has changed back, and of updates that are counted anew.

    Args:
        trainer: after it has loaded the checkpoint, optimizer included.
        path: the checkpoint.
    """
    before = trainer._optim_history[-1]["num_updates"] if trainer._optim_history else 0
    if before > trainer.get_num_updates():
        logger.warning(
            f"{path}: has no state of the optimizer (--no-save-optimizer-state): Adam's means, the learning rate and --max-update "
            f"begin again, after {before} updates"
        )
        return
    overrides = ast.literal_eval(trainer.cfg.checkpoint.optimizer_overrides)
    asked = {name: value for name, value in trainer.optimizer.optimizer_config.items() if name != "lr"}
    kept = trainer.optimizer.param_groups[0]
    for name in asked.keys() & kept.keys() - overrides.keys():
        if _plain(kept[name]) != _plain(asked[name]):
            logger.warning(
                f"{path}: goes on with {name} {_plain(kept[name])}, not with {_plain(asked[name])} of the options: to change it, "
                f"give --optimizer-overrides \"{{'{name}': {_plain(asked[name])}}}\""
            )

    scheduler = trainer.lr_scheduler
    of_plateau = isinstance(scheduler, ReduceLROnPlateauLRSchedule) and scheduler.warmup_end and "lr" not in overrides
    if of_plateau and not plateau.makes(scheduler, kept["lr"]):
        logger.warning(
            f"{path}: goes on with a learning rate of {kept['lr']:g}, which --lr-scheduler reduce_lr_on_plateau does not make of "
            f"--lr {scheduler.cfg.lr[0]:g}: to change it, give --optimizer-overrides \"{{'lr': {scheduler.cfg.lr[0]:g}}}\""
        )


def beginnings_of(cfg: Any) -> dict[str, str | None]:
    """Return the models to begin with that a training's options name, by option."""
    return {name: getattr(getattr(cfg, part, None), name, None) for name, part in BEGINNINGS.items()}


def tell_of_another_beginning(folder: str, then: dict[str, str | None], now: dict[str, str | None]) -> None:
    """Warn of a model to begin with that is not read, since the training goes on, and that was not given to it before.

    Args:
        folder: of ``--save-dir``.
        then, now: :func:`beginnings_of` the options that the last checkpoint was saved with, and of those that were given.
    """
    for name, start in now.items():
        before = then.get(name)
        if start and (not before or os.path.realpath(start) != os.path.realpath(before)):
            logger.warning(
                f"{flag(name)} {start}: is not read, since the training goes on from the last checkpoint in {folder}, which was saved "
                f"with{f' {flag(name)} {before}' if before else 'out this option'}: to begin with it, give another --save-dir"
            )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value
