# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which of two ways to compute: a CPU's or a GPU's."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_AS_ON_A_GPU: ContextVar[bool] = ContextVar("as_on_a_gpu", default=False)


def usual_device(cpu: bool = False) -> str:
    """Return the name of the device to compute on: "cuda" where there is a GPU, unless ``cpu`` is asked for, else "cpu"."""
    return "cuda" if torch.cuda.is_available() and not cpu else "cpu"


def on_cpu(tensor: Tensor) -> bool:
    """Return whether the modules compute in the way that is best for a CPU: the tensor is there, and no GPU is pretended."""
    return tensor.device.type == "cpu" and not _AS_ON_A_GPU.get()


@contextmanager
def as_on_a_gpu(pretend: bool = True) -> Iterator[None]:
    """Let the modules choose what they choose on a GPU, to estimate its memory where there is none."""
    token = _AS_ON_A_GPU.set(pretend)
    try:
        yield
    finally:
        _AS_ON_A_GPU.reset(token)
