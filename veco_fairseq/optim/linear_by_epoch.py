# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--lr-scheduler linear_by_epoch``, for fine-tuning whose length is given in epochs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from veco_fairseq.errors import UserError


@dataclass
class LinearByEpochConfig(FairseqDataclass):
    """The schedule's options."""

    warmup_ratio: float = field(default=0.1, metadata={"help": "share of all updates during which the learning rate rises"})
    lr: list[float] = II("optimization.lr")
    max_epoch: int = II("optimization.max_epoch")
    update_freq: list[int] = II("optimization.update_freq")
    skip_remainder_batch: bool = II("optimization.skip_remainder_batch")


@register_lr_scheduler("linear_by_epoch", dataclass=LinearByEpochConfig)
class LinearByEpoch(FairseqLRScheduler):
    """The learning rate rises from 0 to ``--lr`` and falls to 0 at the end of ``--max-epoch``, both linearly.

    fairseq's ``polynomial_decay`` is the same, but needs the number of updates. Here ``veco_fairseq.compat`` passes in the
    epochs' numbers of batches (:meth:`set_batches`).

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
        self.batches: dict[int, int] = {}

    def set_batches(self, batches_in: Callable[[int], int], epoch: int) -> None:
        """Set the numbers of a worker's batches from this epoch on; ``--update-freq``, one an epoch, turns them into updates.

        The earlier epochs have had their own numbers.

        Args:
            batches_in: a function of an epoch. From the last number of ``--update-freq`` on, epochs are equally long.
            epoch: this epoch.
        """
        freqs = self.cfg.update_freq
        here = {number: batches_in(number) for number in range(epoch, max(epoch, len(freqs)) + 1)}
        self.batches = {number: count for number, count in self.batches.items() if number < epoch} | {epoch: here[epoch]}
        whole = math.floor if self.cfg.skip_remainder_batch else math.ceil
        self.total = 0
        for number in range(1, self.cfg.max_epoch + 1):
            count = self.batches.get(number) or here[max(epoch, min(number, max(here)))]
            self.total += whole(count / freqs[min(number, len(freqs)) - 1])

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: also the epochs' numbers of batches."""
        return {**super().state_dict(), "batches": dict(self.batches)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.batches = dict(state_dict.get("batches", {}))

    def step_begin_epoch(self, epoch: int) -> float:
        return self.optimizer.get_lr()

    def step_update(self, num_updates: int) -> float:
        """Set and return the learning rate after this many updates; 0 while the length of an epoch is not known."""
        warmup = round(self.total * self.cfg.warmup_ratio)
        if num_updates < warmup:
            share = num_updates / warmup
        else:
            share = max(0, self.total - num_updates) / max(1, self.total - warmup)
        self.optimizer.set_lr(share * self.cfg.lr[0])
        return self.optimizer.get_lr()
