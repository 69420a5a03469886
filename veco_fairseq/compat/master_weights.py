# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The fp32 copies of half-precision weights: what a checkpoint keeps of them, and which of them are trained.

fairseq saves the model's fp16 weights, and a resumed training makes its fp32 copies from them, without the digits that fp16
does not have. The count of updates since the loss scale last changed begins anew, and with ``--amp`` the scale itself. So a
checkpoint here has the copies, and the state of the loss scale.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from fairseq.optim import AMPOptimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer
from torch import Tensor

FP32_PARAMS, SCALER = "fp32_params", "scaler"
# Of fairseq's DynamicLossScaler; it saves the loss scale itself.
COUNTS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
AMP_STATE = ("scale", "_growth_tracker")  # of PyTorch's GradScaler; the rest are options


def copies(optimizer: FP16Optimizer) -> list[Tensor]:
    """The fp32 copies: of all parameters together, or of each (``--fp16-no-flatten-grads``, ``--bf16``)."""
    params = optimizer.fp32_params
    return [param.data for param in (params.values() if isinstance(params, dict) else params)]


def keeping_none(sync: Callable) -> Callable:
    """Make a ``_sync_fp16_grads_to_fp32`` after which a copy has a gradient only if its parameter has one.

    fairseq gives the others zeros, with which ``--weight-decay`` shrinks what learns from no batch, or is frozen. One flat copy
    of all parameters has no such gradients; tasks that need them have none (:class:`veco_fairseq.compat.hooks.HasIdleParameters`).
    """

    @wraps(sync)
    def sync_and_keep(optimizer: FP16Optimizer) -> None:
        sync(optimizer)
        if not optimizer.has_flat_params:
            for param, copy in zip(optimizer.fp16_params, optimizer.fp32_params, strict=True):
                if param.grad is None:
                    copy.grad = None

    return sync_and_keep


def saving_counts(state_dict: Callable) -> Callable:
    """Make an optimizer's ``state_dict`` that has the loss scale's counts, too, and the fp32 copies if there are some."""

    @wraps(state_dict)
    def with_counts(optimizer) -> dict[str, Any]:
        state = {**state_dict(optimizer)}
        if optimizer.scaler is not None:  # bf16 needs none
            state[SCALER] = {name: getattr(optimizer.scaler, name) for name in COUNTS}
        if isinstance(optimizer, FP16Optimizer):
            state[FP32_PARAMS] = copies(optimizer)
        return state

    return with_counts


def loading_counts(load_state_dict: Callable) -> Callable:
    """Make the ``load_state_dict`` that reads what :func:`saving_counts` saves.

    A copy counts where it is the model's weight when rounded. Elsewhere the weights have been changed since, and stay so.
    """

    @wraps(load_state_dict)
    def with_counts(optimizer, state_dict: dict[str, Any], *args, **kwargs) -> None:
        state = {**state_dict}
        saved, counts = state.pop(FP32_PARAMS, ()), state.pop(SCALER, {})
        load_state_dict(optimizer, state, *args, **kwargs)
        if optimizer.scaler is not None:
            vars(optimizer.scaler).update(counts)
        if saved:
            rounded = optimizer.fp16_params[0].dtype
            for copy, of_file in zip(copies(optimizer), saved, strict=True):
                of_file = of_file.to(copy.device)
                copy.copy_(torch.where(of_file.to(rounded) == copy.to(rounded), of_file, copy))

    return with_counts


def saving_scale(state_dict: Callable) -> Callable:
    """Make an AMPOptimizer's ``state_dict`` that has the loss scale, too; on a CPU there is none."""

    @wraps(state_dict)
    def with_scale(optimizer: AMPOptimizer) -> dict[str, Any]:
        return {**state_dict(optimizer), SCALER: optimizer.scaler.state_dict()}

    return with_scale


def loading_scale(load_state_dict: Callable) -> Callable:
    """Make the ``load_state_dict`` that reads what :func:`saving_scale` saves; the scale's options are this training's."""

    @wraps(load_state_dict)
    def with_scale(optimizer: AMPOptimizer, state_dict: dict[str, Any], *args, **kwargs) -> None:
        state = {**state_dict}
        saved, now = state.pop(SCALER, None), optimizer.scaler.state_dict()
        load_state_dict(optimizer, state, *args, **kwargs)
        if saved and now:
            optimizer.scaler.load_state_dict({**now, **{name: saved[name] for name in AMP_STATE}})

    return with_scale
