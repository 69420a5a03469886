# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What all workers of a training have in common. They add up their gradients, and never compare their weights.

Every worker reads the data and the checkpoints itself. On a machine that has other files, or another command, the weights become
others without a word, or the workers wait for each other forever.
"""

import math
from collections.abc import Mapping
from zlib import crc32

import torch
from fairseq.data.iterators import EpochBatchIterator
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from veco_fairseq.errors import UserError

COMMAND = "give the same command on each machine"
FILES = "every machine reads its own files: share the folder among them, or copy it to each"


def highest(trainer: Trainer, number: float) -> float:
    """Return the largest of all workers' numbers to all of them; every worker waits here for the others."""
    return _highest(trainer, [number])[0]


def _highest(trainer: Trainer, numbers: list[float]) -> list[float]:
    if trainer.data_parallel_world_size == 1:
        return numbers
    largest = torch.tensor(numbers, dtype=torch.float64, device=trainer.device)
    distributed_utils.all_reduce(largest, trainer.data_parallel_process_group, op="max")
    return largest.tolist()


def refuse(trainer: Trainer, error: UserError | None) -> None:
    """End all workers if the first one has an error, which it tells.

    Raises:
        UserError: the first worker's error, on the first worker.
        SystemExit: on the others.
    """
    if highest(trainer, error is not None):
        raise error or SystemExit(1)


def agree(trainer: Trainer, numbers: Mapping[str, float]) -> None:
    """End all workers unless each has the same numbers.

    Args:
        numbers: by the message for the case that they differ. Those that are not whole are compared to nine digits.

    Raises:
        UserError: with the first of these messages, on the first worker.
        SystemExit: on the others.
    """
    values = [float(number) for number in numbers.values()]
    extremes = _highest(trainer, [*values, *(-value for value in values)])
    for (message, number), most, least in zip(numbers.items(), extremes, extremes[len(values) :]):
        if abs(most + least) > (0 if isinstance(number, int) else 1e-9 * abs(most)):  # never of NaN
            raise UserError(message) if distributed_utils.is_master(trainer.cfg.distributed_training) else SystemExit(1)


def begin_alike(trainer: Trainer, iterator: EpochBatchIterator) -> None:
    """End all workers unless they begin to train with the same command, at the same place, with the same data and weights.

    Args:
        trainer: after it has loaded a checkpoint, or with new weights.
        iterator: of the training set.

    Raises:
        UserError, SystemExit: see :func:`agree`.
    """
    if trainer.data_parallel_world_size == 1:
        return
    batches = len(iterator) if isinstance(iterator, EpochBatchIterator) else 0  # a stream has no number
    weights = (p.detach().sum(dtype=torch.float64).item() for p in trainer.model.parameters() if not hasattr(p, "expert"))
    agree(
        trainer,
        {
            f"--seed: is not the same for all workers: {COMMAND}": trainer.cfg.common.seed,
            f"the options of optimization (--lr, --update-freq ...) are not the same for all workers: {COMMAND}": crc32(
                str(trainer.cfg.optimization).encode()
            ),
            f"{trainer.cfg.checkpoint.save_dir}: the first worker goes on from update {trainer.get_num_updates()}, and others do "
            f"not: {FILES}": trainer.get_num_updates(),
            f"{getattr(trainer.cfg.task, 'data', 'the data')}: the first worker has {batches} batches in this epoch, and others have "
            f"another number: {COMMAND}, and the same data": batches,
            f"the workers begin with different weights: {FILES} (--restore-file, --finetune-from-model, --init-from)": math.fsum(
                weights
            ),
        },
    )
