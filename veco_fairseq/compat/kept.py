# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tells what a resumed training takes from its checkpoint, where its options say something else."""

import ast
import logging
from typing import Any

from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)


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


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value
