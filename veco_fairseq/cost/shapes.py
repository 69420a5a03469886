# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Runs PyTorch code for its shapes alone: no floating-point number is computed."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

UNKNOWN = (NotImplementedError, RuntimeError)  # no shapes without values


class ShapesAlone(TorchDispatchMode):
    """Gives every floating-point result its shape, and zero as its values; whole numbers and views are computed.

    All of these results share their memory, and nothing is written to it. So a step of a large model takes the time of its
    Python code, and the memory of its parameters and its largest tensor. Code that looks at floating-point values sees zeros.
    """

    def __init__(self):
        super().__init__()
        self.zeros = torch.zeros(0, dtype=torch.uint8)
        self.known: dict[Any, Any] = {}  # the results of calls like those before, without their values

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            given = {of.name: arg for of, arg in zip(func._schema.arguments, args)} | kwargs
            changed = [
                given[of.name]
                for of in func._schema.arguments
                if of.name in given and of.alias_info is not None and of.alias_info.is_write
            ]
            returned = len(func._schema.returns)
            if changed and all(map(_is_float, tree_flatten(changed)[0])) and (not returned or returned == len(changed) == 1):
                return changed[0] if returned else None  # floating-point numbers alone would be changed in place
            return func(*args, **kwargs)
        if func.is_view:
            return func(*args, **kwargs)
        key = (func, *map(_outline, (*args, *kwargs.items())))
        if key not in self.known:
            self.known[key] = _shapes(func, args, kwargs)
        shapes = self.known[key]
        if shapes is None:
            return func(*args, **kwargs)
        if isinstance(shapes, Tensor):
            return self._zeros_like(shapes)
        return type(shapes)(map(self._zeros_like, shapes))

    def _zeros_like(self, shape: Tensor) -> Tensor:
        size = shape.untyped_storage().nbytes()
        if self.zeros.numel() < size:
            self.zeros = torch.zeros(size, dtype=torch.uint8)
        made = torch.empty(0, dtype=shape.dtype)
        return made.set_(self.zeros.untyped_storage(), 0, shape.shape, shape.stride())


def _shapes(func, args, kwargs) -> Tensor | tuple[Tensor, ...] | list[Tensor] | None:
    """Return the results without their values; None if some of them are no floating-point tensor, or unknown without values."""
    try:
        found = func(*tree_map_only(Tensor, _without_values, args), **tree_map_only(Tensor, _without_values, kwargs))
    except UNKNOWN:
        return None
    results = (found,) if isinstance(found, Tensor) else found
    return found if isinstance(results, (tuple, list)) and results and all(map(_is_float, results)) else None


def _outline(value) -> Any:
    """Return what the shapes of the results depend on, of an argument."""
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, (tuple, list)):
        return tuple(map(_outline, value))
    return type(value), value


def _is_float(value) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _without_values(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
