# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The norm of all gradients, which fairseq clips them by, without a kernel for each parameter on a GPU."""

from collections.abc import Sequence

import torch
from torch import Tensor

AVAILABLE = True  # fairseq asks for Apex, whose norm this replaces


def total_norm(gradients: Sequence[Tensor], chunk_size: int | None = None) -> Tensor:
    """Return the Euclidean norm of all gradients together, fp32.

    Args:
        gradients: of any type and shape.
        chunk_size: of Apex's function, which fairseq calls; not used.
    """
    norms = torch._foreach_norm(list(gradients), 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
