# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The mean of a training's weights, ``--store-ema``: tied weights count once, and resumed trainings have the same mean."""

from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

from fairseq.models.ema.ema import EMA
from torch import nn

from veco_fairseq.checkpoints.integrity import check_finite, check_kinds, place_of
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.checkpoints.skeleton import ADVICE
from veco_fairseq.compat.misfits import misfit
from veco_fairseq.errors import UserError

_fairseq_step_internal = EMA._step_internal


def read_mean(path: str) -> dict[str, Any]:
    """Read a checkpoint whose mean is to be the first one of a training, ``--ema-seed-model``.

    Raises:
        UserError: see :func:`read_checkpoint`; or the checkpoint has no mean, or one that is no weights, or no numbers.
    """
    state = read_checkpoint(path)
    mean = (state.get("extra_state") or {}).get("ema")
    if not mean:
        raise UserError(
            f"--ema-seed-model {path}: has no mean of weights: give a checkpoint that was trained with --store-ema, or leave the "
            "option out"
        )
    check_kinds(path, mean, ADVICE)
    check_finite(path, mean)
    return {**state, "model": {name: tensor.float() for name, tensor in mean.items()}}


def begun(make: Callable) -> Callable:
    """Make an ``EMA.__init__`` that says in one line that the mean of ``--ema-seed-model`` is of another model.

    Raises:
        UserError: it is.
    """

    @wraps(make)
    def make_or_refuse(ema: EMA, model: nn.Module, config, *args, **options) -> None:
        try:
            make(ema, model, config, *args, **options)
        except RuntimeError as error:
            if told := misfit(error):
                raise UserError(
                    f"--ema-seed-model {config.ema_seed_model}: does not fit the chosen model: {told}; give a checkpoint of this one"
                ) from error
            raise

    return make_or_refuse


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
        once = {place_of(tensor): (name, tensor) for name, tensor in new_model.state_dict().items()}
        _fairseq_step_internal(ema, SimpleNamespace(state_dict=lambda: dict(once.values())), updates)


def with_versions(restore: Callable) -> Callable:
    """Make an ``EMA.restore`` that gives the model the versions of its parts, too, which have no mean.

    ``--adaptive-softmax-cutoff`` asks for that of its softmax, without which it takes the mean for one of 2017.
    """

    @wraps(restore)
    def restore_with_versions(ema: EMA, state_dict: dict[str, Any], *args, **kwargs) -> None:
        versions = {name: number for name, number in ema.model.state_dict().items() if name.rpartition(".")[2] == "version"}
        restore(ema, {**versions, **state_dict}, *args, **kwargs)

    return restore_with_versions
