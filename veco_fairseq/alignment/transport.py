# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Optimal transport with entropic regularisation, and the links that its plan gives."""

import torch
from torch import Tensor


def sinkhorn(cost: Tensor, x_mass: Tensor, y_mass: Tensor, *, regularisation: float, iterations: int) -> Tensor:
    """Return log A of the plan A that moves the mass of x to y at the least cost, sum of A (cost + regularisation log A).

    The plan is A = diag(u) K diag(v) with K = exp(-cost / regularisation). u = x_mass / K v and v = y_mass / K' u are
    computed in turn, u first, from v = y_mass (Sinkhorn's algorithm; Peyré and Cuturi 2019, section 4.2). Everything is
    in logarithms and in fp64: with a small regularisation these are large numbers that differ little, and A underflows.

    Args:
        cost: (batch, n, m), finite.
        x_mass: (batch, n), y_mass: (batch, m): not negative, with equal sums; 0 for padding, which the plan leaves out.
        regularisation: above 0; a smaller one gives a cheaper plan, and needs more iterations.
        iterations: at least 1, each of u and of v. The plan's columns sum to ``y_mass`` after each iteration, its rows to
            ``x_mass`` only in the limit.

    Returns:
        (batch, n, m), fp64; -inf for padding.
    """
    log_k = -cost.double() / regularisation
    log_x, log_y = x_mass.double().log().unsqueeze(2), y_mass.double().log().unsqueeze(1)
    log_v = log_y
    for _ in range(iterations):
        log_u = log_x - (log_k + log_v).logsumexp(2, keepdim=True)
        log_v = log_y - (log_k + log_u).logsumexp(1, keepdim=True)
    return log_k + log_u + log_v


def mutual(plan: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the links i-j where j is the largest in row i, and i in column j: those of both directions' alignments.

    Args:
        plan: (batch, n, m), or its logarithm, with the least number in the rows and columns of padding, so that these have
            no links.

    Returns:
        The links' sentence in the batch, their i, and their j, each (links).
    """
    forward, backward = plan.argmax(2), plan.argmax(1)  # (batch, n), (batch, m)
    places, i = (backward.gather(1, forward) == torch.arange(plan.size(1), device=plan.device)).nonzero(as_tuple=True)
    return places, i, forward[places, i]
