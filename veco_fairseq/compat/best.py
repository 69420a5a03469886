# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets ``--keep-best-checkpoints N`` keep N checkpoints."""

import math
from collections.abc import Callable
from functools import wraps

from fairseq import checkpoint_utils


def keeping_best(save: Callable) -> Callable:
    """Make a ``save_checkpoint`` that, as long as fewer than N are kept, also keeps one that is worse than all of them.

    fairseq keeps a checkpoint only if it is at least as good as the worst that is kept already. While there is room, it is
    shown one more, which is worse than any. It does not find those with a figure below 0, such as a correlation, and would
    keep all of them.
    """

    @wraps(save)
    def save_and_keep(cfg, trainer, *args):
        paths = checkpoint_utils.checkpoint_paths
        worst = math.inf * (-1 if cfg.maximize_best_checkpoint_metric else 1)

        def with_room(folder: str, pattern: str, **options) -> list:
            if not pattern.startswith(r"checkpoint\.best_"):
                return paths(folder, pattern, **options)
            found = paths(folder, pattern.replace(r"(\d+", r"(-?\d+"), **options)
            if len(found) >= cfg.keep_best_checkpoints:
                return found
            none = f"_{worst}{trainer.checkpoint_suffix}.pt"
            return [*found, none] if cfg.maximize_best_checkpoint_metric else [none, *found]  # falling numbers

        checkpoint_utils.checkpoint_paths = with_room
        try:
            return save(cfg, trainer, *args)
        finally:
            checkpoint_utils.checkpoint_paths = paths

    return save_and_keep
