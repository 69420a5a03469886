# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The names and shapes of a model's tensors, before there is memory for them."""

from collections.abc import Callable

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _Unfilled(TorchFunctionMode):
    """Leaves tensors without the numbers that a model begins with.

    On the device "meta" PyTorch makes these by way of its compiler, whose import takes as long as that of all the rest.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.__name__ in ("normal_", "uniform_") or getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if func is torch.arange and all(isinstance(end, int) for end in args):
            return torch.empty(len(range(*args)), **{"dtype": torch.int64, **kwargs})
        return func(*args, **kwargs)


def shapes_of(build: Callable[[], nn.Module]) -> dict[str, torch.Size]:
    """Build a model without memory, and return the names and shapes of what its state has."""
    with torch.device("meta"), _Unfilled():
        return {name: tensor.shape for name, tensor in build().state_dict().items()}
