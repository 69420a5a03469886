# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Liger's fused linear cross-entropy (Hsu et al., 2024) for the LM head, on GPUs with ``liger-kernel``."""

import functools
import inspect
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

# The arguments that its function must have, since 0.8.5.
OPTIONS = {
    "bias", "reduction", "accum_dtype", "return_predicted_tokens", "compute_gradients", "weight_requires_grad",
    "token_grad_output", "chunk_mem_const",
}  # fmt: skip


def serves(rows: Tensor) -> bool:
    """Return whether to use Liger: on a GPU, and not in fp16, where it rounds gradients before it scales them."""
    return rows.is_cuda and rows.dtype != torch.float16 and len(rows) > 0 and _function() is not None


@functools.cache
def _function() -> Callable | None:
    try:
        from liger_kernel.ops.fused_linear_cross_entropy import fused_linear_cross_entropy_forward as function
    except ImportError:
        return None
    missing = OPTIONS - set(inspect.signature(function).parameters)
    if missing:
        logger.warning(
            f"this version of liger-kernel has no {', '.join(sorted(missing))}: the LM head's loss is computed without "
            "it (liger-kernel 0.8.5 has them)"
        )
        return None
    logger.info("the LM head's loss is computed by liger-kernel")
    return function


def fused_loss(
    rows: Tensor,
    weight: Tensor,
    bias: Tensor,
    gold: Tensor,
    *,
    needed: Sequence[bool],
    scale: Tensor | None,
    logits_a_chunk: int,
) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """Return the NLL of each row's token, and the gradients of the sum.

    Liger's function for the losses of single rows computes the logits twice, the second time for the gradients. Its
    forward pass, which is called here, makes both from the same logits.

    Args:
        rows: (n, dim).
        weight, bias: (vocabulary, dim) and (vocabulary), of any type; the products are computed in the rows' type.
        gold: the right tokens, (n).
        needed: whether the gradients of rows, weight and bias are needed.
        scale: the weight of each row's NLL in the gradients, (n); None for 1.
        logits_a_chunk: the most logits in memory at a time, but at least those of one row.

    Returns:
        NLL in nats, fp32, (n); whether it is the likeliest token, (n); gradients, None where not needed. The
        weight's gradient is added up in fp32 and rounded once to the rows' type.
    """
    function = _function()
    assert function is not None  # see `serves`
    n, dim = rows.shape
    nll, _, _, likeliest, *gradients = function(
        rows,
        weight.to(rows.dtype),
        gold,
        bias=bias.to(rows.dtype),
        reduction="none",
        accum_dtype=torch.float32,
        return_predicted_tokens=True,
        compute_gradients=any(needed),
        weight_requires_grad=needed[1],
        token_grad_output=scale,
        # Liger chooses its chunk of rows from this ratio of logits to a row's own numbers, rounded up to a power of two.
        chunk_mem_const=max(1, logits_a_chunk // (2 * n * dim)),
    )
    return nll, likeliest.eq(gold), [g if is_needed else None for g, is_needed in zip(gradients, needed)]
