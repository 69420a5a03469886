# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checks what a training validates on, takes a part of it that is like the whole, and tells how much of its time that takes."""

import logging
import math
import re
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data.iterators import CountingIterator, EpochBatchIterator, GroupedEpochBatchIterator
from fairseq.trainer import Trainer

from veco_fairseq.errors import UserError

logger = logging.getLogger(__name__)

SHARE = 0.1  # of the time, that validation should not exceed
PATIENCE = 60.0  # seconds of validation before anything is advised


def checked(check: Callable) -> Callable:
    """Make a check of the sets to validate on, before they are loaded, that also knows what fairseq cannot do.

    A set has one data set and one iterator. If it is trained on, too, the first validation, which is dry, takes the first
    epoch away; and a task masks, samples and names what it trains on in another way than what it validates on.

    Raises:
        UserError: a set is the one to train on, or is left out by ``--combine-valid-subsets``.
    """

    @wraps(check)
    def check_more(cfg) -> None:
        train, sets = cfg.dataset.train_subset, cfg.dataset.valid_subset.split(",")
        if train in sets:
            raise UserError(
                f"--valid-subset {train}: is the set to train on: to validate on it, copy its files to another name than "
                f"{train}, such as seen, and give that"
            )
        if cfg.dataset.combine_valid_subsets and sets != ["valid"]:
            raise UserError(
                f"--combine-valid-subsets: makes one set of valid, valid1 and so on, and --valid-subset is "
                f"{cfg.dataset.valid_subset}: leave out one of the two"
            )
        check(cfg)

    return check_more


def by_name(find: Callable) -> Callable:
    """Make a search for sets such as valid1 that returns their names, as ``--valid-subset`` gives them.

    fairseq returns names of files, such as valid1.de-en.de, and so takes every such set for one that is not given.
    """

    @wraps(find)
    def find_names(folder: str) -> set[str]:
        return {re.split("[.-]", file)[0] for file in find(folder)}

    return find_names


class Part:
    """The first batches of an epoch, ``most`` for each worker."""

    def __init__(self, epochs: EpochBatchIterator, most: int):
        self.epochs, self.most = epochs, most

    def next_epoch_itr(self, **options) -> CountingIterator:
        return self.epochs.next_epoch_itr(**options).take(self.most)


def spread(get_valid_iterator: Callable) -> Callable:
    """Make a ``get_valid_iterator`` that gives the batches of ``--max-valid-steps``, evenly spread over the whole set.

    fairseq takes the first ones, and one more. Those are the shortest sentences, in the first of many directions.
    """

    @wraps(get_valid_iterator)
    def get_part(trainer: Trainer, *args, **kwargs) -> EpochBatchIterator | Part:
        epochs, most = get_valid_iterator(trainer, *args, **kwargs), trainer.cfg.dataset.max_valid_steps
        if most is None:
            return epochs
        wanted = most * epochs.num_shards
        kinds = len(getattr(trainer.task, "validation_names", ()))  # of pre-training
        if wanted < kinds:
            logger.warning(
                f"--max-valid-steps {most}: a batch is of one language or pair, and there are {kinds}, of which {wanted} will have "
                f"a loss: give at least {-(-kinds // epochs.num_shards)}"
            )
        batches = () if isinstance(epochs, GroupedEpochBatchIterator) else epochs.frozen_batches
        if wanted < len(batches):
            epochs._frozen_batches = tuple(batches[number * len(batches) // wanted] for number in range(wanted))
        return Part(epochs, most)

    return get_part


def of_the_metric(get_valid_stats: Callable) -> Callable:
    """Make a ``get_valid_stats`` that raises UserError where ``--best-checkpoint-metric`` is none of a validation's figures."""

    @wraps(get_valid_stats)
    def get_stats(cfg, trainer: Trainer, stats: dict[str, Any], *args) -> dict[str, Any]:
        metric = cfg.checkpoint.best_checkpoint_metric
        if metric not in stats:
            raise UserError(f"--best-checkpoint-metric {metric}: validation has {', '.join(stats)}")
        return get_valid_stats(cfg, trainer, stats, *args)

    return get_stats


def saving(validate: Callable) -> Callable:
    """Make a ``validate`` of fairseq-train that saves what is trained before it ends in a user's mistake.

    fairseq validates before it saves, and would lose an epoch by ``--best-checkpoint-metric`` with a typo in it.
    """

    @wraps(validate)
    def validate_or_save(cfg, trainer: Trainer, task, epoch_itr, *args):
        try:
            return validate(cfg, trainer, task, epoch_itr, *args)
        except UserError:
            cfg.checkpoint.no_last_checkpoints = False
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
            raise

    return validate_or_save


def judged(validate: Callable) -> Callable:
    """Make a ``validate`` of fairseq-train whose figures are None, as where there is no validation, if they are no numbers.

    In 16 bits a long sentence can be enough for that. fairseq would take it for the best figure, and none after it for a better
    one: checkpoint_best.pt would stay as it was, and ``--patience`` would end the training.
    """

    @wraps(validate)
    def validate_and_judge(cfg, *args) -> list[float | None]:
        losses = validate(cfg, *args)
        if losses and losses[0] is not None and math.isnan(losses[0]):
            logger.warning(
                f"--best-checkpoint-metric {cfg.checkpoint.best_checkpoint_metric}: is no number in this validation, which makes no "
                "checkpoint the best one, and does not count for --patience"
            )
        return [None if loss is not None and math.isnan(loss) else loss for loss in losses]

    return validate_and_judge


def timed(validate: Callable) -> Callable:
    """Make a ``validate`` of fairseq-train that logs its seconds, and what share of this process's time validation has taken.

    Where that is more than :data:`SHARE`, and more than :data:`PATIENCE` seconds, the line names the options to change.
    """

    @wraps(validate)
    def validate_and_tell(cfg, trainer: Trainer, *args):
        started = time.time()
        losses = validate(cfg, trainer, *args)
        seconds = time.time() - started
        total = trainer.validation_seconds = getattr(trainer, "validation_seconds", 0.0) + seconds
        share = total / max(seconds, time.time() - trainer._start_time)
        message = f"validation took {seconds:.1f} s; so far it has taken {share:.0%} of the time"
        if share > SHARE and total > PATIENCE:
            message += (
                ": to validate less often, give a larger --validate-interval (epochs), --validate-interval-updates or "
                "--save-interval-updates, or fewer sentences to validate on"
            )
        logger.info(message)
        return losses

    return validate_and_tell
