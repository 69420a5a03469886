# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The norm of all gradients, which fairseq clips them by, without a kernel for each parameter on a GPU."""

from collections.abc import Sequence

import torch
from fairseq.trainer import Trainer
from torch import Tensor

_fairseq_clip_grad_norm = Trainer.clip_grad_norm
AVAILABLE = True  # fairseq asks for Apex, whose norm this replaces


def total_norm(gradients: Sequence[Tensor], chunk_size: int | None = None) -> Tensor:
    """Return the Euclidean norm of all gradients together, fp32.

    Args:
        gradients: of any type and shape.
        chunk_size: of Apex's function, which fairseq calls; not used.
    """
    norms = torch._foreach_norm(list(gradients), 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))


def clip_grad_norm(trainer: Trainer, clip_norm: float) -> Tensor:
    """Clip the gradients as fairseq does, and return their norm on the CPU, where it is read three times."""
    return torch.as_tensor(_fairseq_clip_grad_norm(trainer, clip_norm)).cpu()
