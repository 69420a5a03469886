# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Optimal transport with entropic regularisation, and the links in its plan."""

import torch
from torch import Tensor


def sinkhorn(cost: Tensor, x_mass: Tensor, y_mass: Tensor, *, regularisation: float, iterations: int) -> Tensor:
    """The plan A that takes the mass of x to y at the least cost, sum of A (cost + regularisation log A).

    It is A = diag(u) K diag(v) with K = exp(-cost / regularisation), where u = x_mass / K v and v = y_mass / K' u are
    computed in turn, u first, from v = y_mass (Sinkhorn's algorithm; Peyré and Cuturi 2019, section 4.2). All of it in
    logarithms, so that a small regularisation does not underflow.

    Args:
        cost: (batch, n, m), finite.
        x_mass: (batch, n), y_mass: (batch, m): not negative, of the same sum; 0 for padding, which the plan leaves out.
        regularisation: more than 0; the nearer to 0, the nearer to the cheapest plan, and the more iterations it takes.
        iterations: at least 1, each of u and of v: the plan's columns sum to ``y_mass`` from the first on, its rows to
            ``x_mass`` in the end.

    Returns:
        (batch, n, m).
    """
    log_k = -cost / regularisation
    log_x, log_y = x_mass.log().unsqueeze(2), y_mass.log().unsqueeze(1)
    log_v = log_y
    for _ in range(iterations):
        log_u = log_x - (log_k + log_v).logsumexp(2, keepdim=True)
        log_v = log_y - (log_k + log_u).logsumexp(1, keepdim=True)
    return (log_k + log_u + log_v).exp()


def mutual(plan: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The links i-j where j has the most of row i and i the most of column j: the forward and the backward alignment's.

    Args:
        plan: (batch, n, m), with nothing in the rows and columns of padding, which are therefore in no link.

    Returns:
        The links' places in the batch, their i and their j, each (links).
    """
    forward, backward = plan.argmax(2), plan.argmax(1)  # (batch, n), (batch, m)
    places, i = (backward.gather(1, forward) == torch.arange(plan.size(1), device=plan.device)).nonzero(as_tuple=True)
    return places, i, forward[places, i]
