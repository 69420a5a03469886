# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--quant-noise-pq`` (Fan et al., 2021) whose noise is of one pass alone: fairseq's own stays in the weights."""

from collections.abc import Callable
from functools import wraps

from torch import nn


def of_one_pass(add_noise: Callable) -> Callable:
    """Make a ``quant_noise`` after which a module computes with weights that its noise has changed, and keeps its own.

    The gradient of the noisy ones is taken for its own, as in the paper: a block that was dropped is trained, too.
    """

    @wraps(add_noise)
    def add_noise_of_one_pass(module: nn.Module, p: float, block_size: int) -> nn.Module:
        add_noise(module, p, block_size)
        if p > 0:
            _, change = module._forward_pre_hooks.popitem()

            def begin(module: nn.Module, inputs) -> None:
                if module.training:
                    weight = module.get_parameter("weight")
                    own = weight.data
                    change(module, inputs)
                    noisy, weight.data = weight.data, own
                    # Found before the parameter, which stays where it is.
                    vars(module)["weight"] = noisy + (weight - weight.detach())

            module.register_forward_pre_hook(begin)
            module.register_forward_hook(end, always_call=True)
        return module

    return add_noise_of_one_pass


def end(module: nn.Module, *_) -> None:
    """Forget the noisy weights."""
    vars(module).pop("weight", None)
