# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets ``--keep-best-checkpoints N`` keep the N best checkpoints, and its like the last ones of this training."""

import logging
import math
import os
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace

import numpy as np
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.compat.patching import replaced
from veco_fairseq.compat.stopping import changes_of_judge
from veco_fairseq.errors import UserError

logger = logging.getLogger(__name__)
_figures: dict[tuple[str, int, int], float | None] = {}  # of a file at a time; None if there is nothing to compare it by


def keeping_best(save: Callable) -> Callable:
    """Make a ``save_checkpoint`` that keeps the N best by their exact figures, of those that can be compared.

    fairseq compares the numbers in the files' names, which are rounded to three decimals, with a random one behind them. Two
    with the same number are one file. It keeps a checkpoint only if it is at least as good as the worst that is kept already,
    also while there are fewer than N, and whatever that one was validated on. It does not find those with a figure below 0, such
    as a correlation, and would keep all of them.
    """

    @wraps(save)
    def save_and_keep(cfg, trainer: Trainer, epochs, figure: float | None):
        if cfg.keep_best_checkpoints <= 0 or cfg.no_save or not trainer.should_save_checkpoint_on_current_rank:
            return save(cfg, trainer, epochs, figure)
        paths = checkpoint_utils.checkpoint_paths
        worst = math.inf * (-1 if cfg.maximize_best_checkpoint_metric else 1)
        name = rf"checkpoint\.best_{cfg.best_checkpoint_metric}_(-?\d+\.?\d*){trainer.checkpoint_suffix}\.pt"
        for path in paths(cfg.save_dir, name) if os.path.isdir(cfg.save_dir) else ():
            if _stamp(path) not in _figures:
                _figures[_stamp(path)] = _figure_of(path, trainer)

        def by_figure(folder: str, pattern: str, **options) -> list:
            if not pattern.startswith(r"checkpoint\.best_"):
                return paths(folder, pattern, **options)
            kept = []
            for path in paths(folder, name):
                known = _figures.setdefault(_stamp(path), figure)  # what is new was saved by this call
                kept.append((worst if known is None else known, path))
            kept.sort(reverse=True)
            lowest = kept[-1 if worst < 0 else 0][0] if len(kept) >= cfg.keep_best_checkpoints else worst
            bound = f"_{lowest}{trainer.checkpoint_suffix}.pt"  # no file: what a checkpoint must be as good as
            return [*(path for _, path in kept), bound] if worst < 0 else [bound, *(path for _, path in kept)]

        def unused(low: int, high: int) -> int:
            number = int(np.random.randint(low, high))  # again the same where a training is resumed and comes here again
            beginning = os.path.join(cfg.save_dir, f"checkpoint.best_{cfg.best_checkpoint_metric}_{figure:.3f}")
            while _is_of_others(f"{beginning}{number}{trainer.checkpoint_suffix}.pt", trainer):
                number += 1
            return number

        numbers = SimpleNamespace(random=SimpleNamespace(randint=unused))
        with replaced(checkpoint_utils, "checkpoint_paths", by_figure), replaced(checkpoint_utils, "np", numbers):
            return save(cfg, trainer, epochs, figure)

    return save_and_keep


def keeping_own(save: Callable) -> Callable:
    """Make a ``save_checkpoint`` whose ``--keep-interval-updates`` and ``--keep-last-epochs`` count this training's checkpoints alone.

    fairseq keeps those of the highest numbers. In a folder with later ones of another training, such as one that was begun
    again from its last checkpoint with ``--reset-optimizer``, it would remove each new checkpoint at once.
    """
    told: set[tuple[str, str]] = set()

    @wraps(save)
    def save_and_keep(cfg, trainer: Trainer, epochs, *args):
        paths = checkpoint_utils.checkpoint_paths
        here = {r"checkpoint_\d+_(\d+)": trainer.get_num_updates(), r"checkpoint(\d+)": epochs.epoch}

        def up_to_here(folder: str, pattern: str, **options) -> list:
            most = next((number for start, number in here.items() if pattern.startswith(start)), None)
            if most is None:
                return paths(folder, pattern, **options)
            found = paths(folder, pattern, keep_match=True)  # each with its number
            later = [path for path, number in found if number > most]
            if later and (folder, pattern) not in told:
                told.add((folder, pattern))
                more = f" and {len(later) - 1} more" if later[1:] else ""
                logger.warning(
                    f"{later[0]}{more}: of a later place than this training has come to: stays beside its own, and veco average "
                    "would take it for the last one: move it elsewhere"
                )
            own = [(path, number) for path, number in found if number <= most]
            return own if options.get("keep_match") else [path for path, _ in own]

        with replaced(checkpoint_utils, "checkpoint_paths", up_to_here):
            return save(cfg, trainer, epochs, *args)

    return save_and_keep


def _stamp(path: str) -> tuple[str, int, int]:
    """Return what tells a file from another one of the same name."""
    found = os.stat(path)
    return path, found.st_ino, found.st_mtime_ns


def _is_of_others(path: str, trainer: Trainer) -> bool:
    """Return whether there is a checkpoint of another number of updates at this path."""
    try:
        history = read_checkpoint(path, mapped=True).get("optimizer_history") or [{}]
        return history[-1].get("num_updates") != trainer.get_num_updates()
    except UserError:
        return False


def _figure_of(path: str, trainer: Trainer) -> float | None:
    """Return the figure of a checkpoint's validation; None if it is not readable, or of another set or loss than this training's."""
    try:
        extra_state = read_checkpoint(path, mapped=True).get("extra_state") or {}
        return None if changes_of_judge(extra_state, trainer) else float(extra_state["val_loss"])
    except (UserError, LookupError, TypeError, ValueError):
        return None
