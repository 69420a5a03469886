# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Mixed precision: ``--amp`` also works on a CPU, and on a GPU it unscales the gradients once; bf16 that is slow is told.

An optimizer that cannot be made, such as that of ``--fp16`` on a CPU, is told in one line.

fairseq's ``--amp`` only opens CUDA's autocast, which does nothing on a CPU. On a GPU it unscales the gradients before it
clips them, but steps with another object, for which torch unscales them again.
"""

import logging
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from fairseq.optim import AMPOptimizer, FairseqOptimizer
from fairseq.tasks import FairseqTask

from veco_fairseq.checkpoints.own_options import raised_by_own_code
from veco_fairseq.compat.hooks import HasIdleParameters
from veco_fairseq.compat.mistakes import mistake
from veco_fairseq.errors import UserError
from veco_fairseq.modules.device import usual_device
from veco_fairseq.modules.rates import bf16_on_cpu

logger = logging.getLogger(__name__)

_fairseq_train_step = FairseqTask.train_step
_fairseq_amp_clip_grad_norm = AMPOptimizer.clip_grad_norm


def amp(model: torch.nn.Module, optimizer: FairseqOptimizer) -> torch.autocast:
    """Return the context for ``--amp``: fp16 on a GPU, bf16 on a CPU; parameters, gradients and the loss are in fp32."""
    return torch.autocast(next(model.parameters()).device.type, enabled=isinstance(optimizer, AMPOptimizer))


def train_step(task: FairseqTask, sample, model, criterion, optimizer, *args, **kwargs):
    """Train on a batch under autocast, also on a CPU; backward runs outside it, as PyTorch advises."""

    def forward(model, sample):
        with amp(model, optimizer):
            return criterion(model, sample)

    return _fairseq_train_step(task, sample, model, forward, optimizer, *args, **kwargs)


def amp_step(optimizer: AMPOptimizer) -> None:
    """Step with the object that has unscaled the gradients."""
    optimizer.scaler.step(optimizer.optimizer)
    optimizer.scaler.update()


def amp_clip_grad_norm(optimizer: AMPOptimizer, *args, **kwargs):
    """Clip the gradients; on a CPU, where there is no loss scale to lower, a NaN is an error."""
    if optimizer.scaler.is_enabled():
        return _fairseq_amp_clip_grad_norm(optimizer, *args, **kwargs)
    norm = optimizer.fp32_optimizer.clip_grad_norm(*args, **kwargs)
    if not torch.isfinite(norm).all():
        raise FloatingPointError("gradients are Nan/Inf")
    return norm


def in_its_precision(forward: Callable) -> Callable:
    """Make the ``forward`` of a layer of ``--checkpoint-activations`` that is computed again in the precision of the first time.

    fairseq computes it again in the backward pass, which is outside autocast: in fp32, with the time and memory of that.
    """

    @wraps(forward)
    def forward_and_again(ctx, layer: Callable, *rest) -> Any:
        device = next(given.device.type for given in rest if torch.is_tensor(given))
        enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

        def run(*args, **kwargs) -> Any:
            with torch.autocast(device, dtype, enabled=enabled):
                return layer(*args, **kwargs)

        return forward(ctx, run, *rest)

    return forward_and_again


def build_optimizer(build: Callable) -> Callable:
    """Make a trainer's ``_build_optimizer`` that says in one line which options it cannot work with.

    With ``--fp16`` a task with idle parameters gets ``--fp16-no-flatten-grads``: a part of one copy of all parameters cannot be
    left as it is (see :func:`veco_fairseq.compat.master_weights.keeping_none`).

    Raises:
        UserError: ``--fp16`` on a CPU; or the optimizer or the schedule refuses its options, or lacks a package. What goes
            wrong in this project's own code, or in that of somebody's own class, is no such thing.
    """

    @wraps(build)
    def build_or_tell(trainer) -> None:
        cfg = trainer.cfg
        on_cpu = next(trainer.model.parameters()).device.type == "cpu"
        if on_cpu and cfg.common.fp16:
            name = "--memory-efficient-fp16" if cfg.common.memory_efficient_fp16 else "--fp16"
            raise UserError(
                f"{name}: trains on a GPU alone: give --autocast bf16 in pre-training and understanding, and --amp elsewhere, or "
                "leave it out"
            )
        if cfg.common.fp16 and isinstance(trainer.task, HasIdleParameters):
            cfg.common.fp16_no_flatten_grads = True
        try:
            build(trainer)
        except Exception as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            here = frame.f_globals["__name__"].startswith("veco_fairseq.")
            if mistake(error) is not None or here or raised_by_own_code(error, cfg):
                raise
            words = " ".join(str(error).split())[:120]
            raise UserError(
                f"--optimizer {cfg.optimizer._name} with --lr-scheduler {cfg.lr_scheduler._name}: cannot be made with these "
                f"options ({type(error).__name__}: {words}): change them, or choose another one"
            ) from error

    return build_or_tell


def telling_of_slow_bf16(init: Callable) -> Callable:
    """Make a trainer's ``__init__`` that warns of bf16 on a CPU that is faster in fp32, once for all workers."""

    @wraps(init)
    def init_and_tell(trainer, cfg, *args, **kwargs):
        init(trainer, cfg, *args, **kwargs)
        asked = "--amp" if cfg.common.amp else "--autocast bf16" if getattr(cfg.model, "autocast", "none") == "bf16" else None
        if asked and not trainer.cuda and trainer.is_data_parallel_master:
            pays, rates = bf16_on_cpu()
            if not pays:
                logger.warning(f"{asked} makes training slower on this processor: {rates}; leave it out")

    return init_and_tell


def translating(main: Callable) -> Callable:
    """Make a ``main`` of fairseq-generate, -interactive or -validate that follows ``--amp``: bf16 where that is safe."""

    @wraps(main)
    def translate(cfg, *args, **kwargs):
        with torch.autocast(usual_device(cfg.common.cpu), torch.bfloat16, enabled=cfg.common.amp):
            return main(cfg, *args, **kwargs)

    return translate
