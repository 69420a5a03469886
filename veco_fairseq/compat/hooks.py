# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Protocols that a task, a learning rate or an iterator may follow, and that fairseq's trainer then uses."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ResumesTaskState(Protocol):
    """A task that checks and takes over its state in a checkpoint, which fairseq does not show to the task."""

    def resume_task_state(self, task_state: dict[str, Any], checkpoint: str) -> None: ...


@runtime_checkable
class NamesDdpBackend(Protocol):
    """A task that needs another ``--ddp-backend`` for several workers than fairseq's default."""

    ddp_backend: str


@runtime_checkable
class HasIdleParameters(Protocol):
    """A task some of whose parameters may learn from no batch: ``--fp16`` leaves them as they are.

    Each parameter has its own fp32 copy then, and not a part of one flat copy.
    """

    idle_parameters: bool


@runtime_checkable
class HasOptionsWithoutEffect(Protocol):
    """A class of tasks that some of fairseq's options do nothing for: their names, each with the reason."""

    without_effect: dict[str, str]


@runtime_checkable
class FollowsEpochs(Protocol):
    """A learning rate schedule that needs the numbers of a worker's batches in this epoch and the later ones, and those done."""

    def set_batches(self, batches_in: Callable[[int], int], epoch: int, done: Callable[[], int]) -> None: ...


@runtime_checkable
class CountsBatches(Protocol):
    """An iterator that knows the number of a worker's batches in any epoch, since epochs differ."""

    def batches_in(self, epoch: int) -> int: ...


@runtime_checkable
class TellsMadeFrom(Protocol):
    """An iterator that knows everything that its batches depend on, by option."""

    made_from: dict[str, Any]
