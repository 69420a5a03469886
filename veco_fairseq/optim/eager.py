# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Optimizers that leave PyTorch's compiler alone, which takes more than a second to import."""

from collections.abc import Callable


def without_compiler(method: Callable) -> Callable:
    """Return a method of ``torch.optim.Optimizer`` without ``torch._disable_dynamo`` around it.

    The wrapper keeps the compiler away from the method, and imports the compiler to tell it so. Nothing here compiles an
    optimizer.
    """
    return getattr(method, "__wrapped__", method)
