# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tells how much of a training's time its validations take."""

import logging
import time
from collections.abc import Callable
from functools import wraps

from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)

SHARE = 0.1  # of the time, that validation should not exceed
PATIENCE = 60.0  # seconds of validation before anything is advised


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
