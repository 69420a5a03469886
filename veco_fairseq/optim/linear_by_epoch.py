# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--lr-scheduler linear_by_epoch``, for fine-tuning whose length is given in epochs."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from veco_fairseq.errors import UserError

logger = logging.getLogger(__name__)


def updates_of(batches: int, update_freq: int, skip_remainder: bool) -> int:
    """Return the number of updates that a worker's batches make.

    Args:
        skip_remainder: ``--skip-remainder-batch``: not of what is left at the end. If that is all, it is one update.
    """
    return max(batches // update_freq, min(batches, 1)) if skip_remainder else math.ceil(batches / update_freq)


@dataclass
class LinearByEpochConfig(FairseqDataclass):
    """The schedule's options."""

    warmup_ratio: float = field(default=0.1, metadata={"help": "share of all updates during which the learning rate rises"})
    lr: list[float] = II("optimization.lr")
    max_epoch: int = II("optimization.max_epoch")
    max_update: int = II("optimization.max_update")
    update_freq: list[int] = II("optimization.update_freq")
    skip_remainder_batch: bool = II("optimization.skip_remainder_batch")


@register_lr_scheduler("linear_by_epoch", dataclass=LinearByEpochConfig)
class LinearByEpoch(FairseqLRScheduler):
    """The learning rate rises from 0 to ``--lr`` and falls to 0 at the end of ``--max-epoch``, both linearly.

    fairseq's ``polynomial_decay`` is the same, but needs the number of updates. Here ``veco_fairseq.compat`` passes in the
    epochs' numbers of batches (:meth:`set_batches`), and fairseq says when an epoch begins (:meth:`step_begin_epoch`).

    Raises:
        UserError: ``--max-epoch`` is missing, there is more than one ``--lr``, or the ratio is not from 0 to 1.
    """

    def __init__(self, cfg: LinearByEpochConfig, optimizer):
        super().__init__(cfg, optimizer)
        if cfg.max_epoch < 1:
            raise UserError("--lr-scheduler linear_by_epoch: needs the length of the training: give --max-epoch N")
        if len(cfg.lr) > 1:
            raise UserError("--lr: --lr-scheduler linear_by_epoch takes one learning rate")
        if not 0 <= cfg.warmup_ratio <= 1:
            raise UserError(f"--warmup-ratio {cfg.warmup_ratio}: must be between 0 and 1")
        self.total = 0
        self.num_updates = 0
        self.told = False  # of an end at a high rate
        self.begun: dict[str, int] = {}
        self.here: dict[int, int] = {}  # by epoch: a worker's batches

    def set_batches(self, batches_in: Callable[[int], int], epoch: int, done: Callable[[], int]) -> None:
        """Take note of the numbers of a worker's batches from this epoch on; :meth:`step_begin_epoch` counts the updates.

        Args:
            batches_in: a function of an epoch. From the last number of ``--update-freq`` on, epochs are equally long.
            epoch: this epoch.
            done: returns the number of this epoch's batches that were trained on.
        """
        here = batches_in(epoch)
        expected = self.here.get(min(epoch, max(self.here, default=epoch)), here)
        if here != expected:  # of several roots, each is known when its epoch comes
            logger.warning(
                f"epoch {epoch} has {here:,} batches, and not {expected:,} as expected from the one before: the learning "
                "rate jumps; for roots of unlike sizes give --lr-scheduler polynomial_decay and --total-num-update"
            )
        self.here = {number: batches_in(number) for number in range(epoch, max(epoch, len(self.cfg.update_freq)) + 1)}
        self.done = done

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: also what the updates were last counted from."""
        return {**super().state_dict(), "begun": dict(self.begun)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.begun = dict(state_dict.get("begun", {}))

    def step_begin_epoch(self, epoch: int) -> float:
        """Count the updates of the whole training: those that are done as they were done, and those that are left.

        An epoch that is resumed with the ``--update-freq`` with which it began is counted from its beginning, since batches
        whose gradients overflow are no update.

        Args:
            epoch: that begins, or goes on.
        """
        freqs = self.cfg.update_freq

        def updates(number: int, without: int = 0) -> int:
            """Return those of an epoch; ``--update-freq`` has one number an epoch."""
            batches = self.here[min(number, max(self.here))] - without
            return updates_of(batches, freqs[min(number, len(freqs)) - 1], self.cfg.skip_remainder_batch)

        now = {
            "epoch": epoch,
            "update_freq": freqs[min(epoch, len(freqs)) - 1],
            "batches": self.done(),
            "updates": self.num_updates,
        }
        same = all(self.begun.get(name) == now[name] for name in ("epoch", "update_freq"))
        if not same or now["batches"] <= self.begun["batches"]:
            self.begun = now
        self.total = self.begun["updates"] + updates(epoch, without=self.begun["batches"])
        self.total += sum(map(updates, range(epoch + 1, self.cfg.max_epoch + 1)))
        share = self._share(self.cfg.max_update)
        # of 1,000 updates, the last few may be missing
        if 0 < self.cfg.max_update < self.total and share >= 0.01 and not self.told:
            self.told = True
            logger.warning(
                f"--max-update {self.cfg.max_update}: the training ends at {share:.0%} of --lr, since "
                f"linear_by_epoch lowers it to 0 at the end of --max-epoch {self.cfg.max_epoch}, update {self.total}: give fewer "
                "epochs, or --lr-scheduler polynomial_decay"
            )
        return self.optimizer.get_lr()

    def step_update(self, num_updates: int) -> float:
        """Set and return the learning rate after this many updates; 0 while the length of an epoch is not known."""
        self.num_updates = num_updates
        self.optimizer.set_lr(self._share(num_updates) * self.cfg.lr[0])
        return self.optimizer.get_lr()

    def _share(self, num_updates: int) -> float:
        """Return the share of ``--lr`` after this many updates."""
        warmup = round(self.total * self.cfg.warmup_ratio)
        if num_updates < warmup:
            return num_updates / warmup
        return max(0, self.total - num_updates) / max(1, self.total - warmup)
