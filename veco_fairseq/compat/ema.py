# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The mean of a training's weights, ``--store-ema``: tied weights count once, and resumed trainings have the same mean."""

from types import SimpleNamespace

from fairseq.models.ema.ema import EMA
from torch import nn

_fairseq_step_internal = EMA._step_internal


def step(ema: EMA, new_model: nn.Module, updates: int | None = None) -> None:
    """Take the model after every ``--ema-update-freq``-th update into the mean.

    fairseq counts these updates from the start of the process, and takes tied weights once for each of their names, so
    that their mean decays twice as fast.

    Args:
        updates: the number of updates of the whole training, which a trainer passes.
    """
    number = updates or 0
    ema._set_decay(0 if number < ema.config.ema_start_update else ema.config.ema_decay)
    if number % ema.config.ema_update_freq == 0:
        once = {(tensor.data_ptr(), tensor.shape): (name, tensor) for name, tensor in new_model.state_dict().items()}
        _fairseq_step_internal(ema, SimpleNamespace(state_dict=lambda: dict(once.values())), updates)
