# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Adam with fairseq's formula, in one pass over parameters, gradients and moments by PyTorch's fused kernel."""

import math
from collections import defaultdict
from collections.abc import Callable

import torch
from fairseq.optim.adam import Adam
from torch import Tensor
from torch.optim.adamw import adamw

_fairseq_step = Adam.step


def step(optimizer: Adam, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
    """Make a step of fairseq's Adam: in one pass for fp32 parameters, by fairseq's code for others and with AMSGrad.

    fairseq's code makes eight passes, each with one kernel for every parameter: thousands of launches on a GPU, and a
    multiple of the memory traffic on a CPU. The state is the same, so each can go on from the other's checkpoint.

    With c = 1 - beta2^t, fairseq divides by sqrt(v) + eps, and PyTorch by sqrt(v / c) + eps. So PyTorch is given
    eps / sqrt(c).

    Returns:
        The result of ``closure``.
    """
    trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    is_plain = all(p.dtype == p.grad.dtype == torch.float32 and not p.grad.is_sparse for p in trained)
    if not is_plain or any(group.get("amsgrad") for group in optimizer.param_groups):
        return _fairseq_step(optimizer, closure)
    loss = None if closure is None else closure()
    for group in optimizer.param_groups:
        beta1, beta2 = group["betas"]
        for t, with_gradients in _by_step(optimizer, group["params"]).items():
            parameters = [p for p, _ in with_gradients]
            states = [optimizer.state[p] for p in parameters]
            steps = torch.full((len(parameters),), t - 1.0, device=parameters[0].device).unbind()
            adamw(
                parameters, [gradient for _, gradient in with_gradients], [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states], [], list(steps), fused=True, amsgrad=False, maximize=False,
                beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"],
                eps=group["eps"] / math.sqrt(1 - beta2**t),
            )  # fmt: skip
    return loss


def _by_step(optimizer: Adam, parameters: list[Tensor]) -> dict[int, list[tuple[Tensor, Tensor]]]:
    """Count the step, and return the parameters with their gradients by their number of steps; frozen ones had fewer."""
    found = defaultdict(list)
    for p in parameters:
        if p.grad is None:
            continue
        state = optimizer.state[p]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(p.data), exp_avg_sq=torch.zeros_like(p.data))
        state["step"] += 1
        found[state["step"]].append((p, p.grad))
    return found
