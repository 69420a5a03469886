# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What a task, a learning rate or an iterator may have, for fairseq's trainer to be told of it."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ResumesTaskState(Protocol):
    """A task that checks what a checkpoint kept of it, and takes it over; fairseq keeps it from the task."""

    def resume_task_state(self, task_state: dict[str, Any], checkpoint: str) -> None: ...


@runtime_checkable
class NamesDdpBackend(Protocol):
    """A task that several workers train with another ``--ddp-backend`` than fairseq's default."""

    ddp_backend: str


@runtime_checkable
class FollowsEpochs(Protocol):
    """A schedule of learning rates that is told how many batches of a worker an epoch has."""

    def set_batches(self, batches: int) -> None: ...


@runtime_checkable
class TellsMadeFrom(Protocol):
    """An iterator that tells all that decides on its batches, by option."""

    made_from: dict[str, Any]
