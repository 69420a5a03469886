# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Token embeddings, and the look-up of tokens in a table that the LM head uses, too."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


class TokenEmbedding(nn.Embedding):
    """Token embeddings whose table the LM head takes as it is: normal with standard deviation dim^-0.5, as fairseq's."""

    def __init__(self, tokens: int, dim: int, padding_idx: int):
        super().__init__(tokens, dim, padding_idx)
        nn.init.normal_(self.weight, std=dim**-0.5)
        nn.init.zeros_(self.weight[padding_idx])

    def project_in(self, rows: Tensor) -> Tensor:
        """Token embeddings of the table's rows: (..., table's dim) -> (..., model's dim)."""
        return rows

    def project_out(self, states: Tensor) -> Tensor:
        """What is multiplied with the table for the logits: (..., model's dim) -> (..., table's dim)."""
        return states

    def with_table(self, *batches: Tensor, only: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """The table, for the LM head, and the embeddings of each batch, in one look-up (see :func:`look_up`).

        Args:
            batches: ids, (batch, length), whose embeddings are (batch, length, model's dim).
            only: the tokens whose rows alone are to be in the table, (n); all if none.

        Returns:
            (tokens, table's dim) or (n, table's dim), and the embeddings.
        """
        ids = torch.cat([tokens.flatten() for tokens in batches])
        if only is None:
            rows, table = look_up(self.weight, ids)
        else:
            rows, table = F.embedding(torch.cat([ids, only]), self.weight).tensor_split([len(ids)])
        parts = self.project_in(rows).split([tokens.numel() for tokens in batches])
        return table, [part.view(*tokens.shape, -1) for part, tokens in zip(parts, batches)]


class FactorizedEmbedding(TokenEmbedding):
    """Embeddings of fewer dimensions than the model's, projected in and out (VoCap, section 3.2).

    One projection P, (dim, table_dim), serves both ways: a token's embedding is e P^T, and the logits of a state h are
    (h P) e^T. That is an ordinary table, e P^T, of low rank, at table_dim / dim of its parameters and operations.

    P starts with orthonormal columns, which keep the lengths of what they project, so that e P^T has the standard
    deviation that an ordinary table starts with, dim^-0.5, and the row of padding stays 0.

    Args:
        tokens: rows of the table.
        dim: the model's.
        padding_idx: the row of padding.
        table_dim: the table's, below ``dim``.
    """

    def __init__(self, tokens: int, dim: int, padding_idx: int, table_dim: int):
        super().__init__(tokens, table_dim, padding_idx)
        self.embedding_dim = dim  # of what comes out, from which fairseq derives positions and LayerNorm
        self.project = nn.Linear(table_dim, dim, bias=False)
        nn.init.orthogonal_(self.project.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Any shape -> (*ids.shape, model's dim)."""
        return self.project_in(super().forward(ids))

    def project_in(self, rows: Tensor) -> Tensor:
        return self.project(rows)

    def project_out(self, states: Tensor) -> Tensor:
        return states @ self.project.weight


def look_up(table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of ``ids``, and the table again, for the LM head.

    The gradient of an ordinary look-up is a matrix of the table's size, to be filled with zeros and added to the
    head's, however few tokens there are. Here the head's own gradient arrives in the backward pass, and takes the
    rows' in.

    Args:
        table: (vocabulary, dim).
        ids: any shape.

    Returns:
        (*ids.shape, dim), and (vocabulary, dim), which must have one use, with a gradient that is nobody else's.
    """
    return _LookUp.apply(table, ids)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        return F.embedding(ids, table), table.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, of_rows, of_table):
        (ids,) = ctx.saved_tensors
        # In 16 bits the additions to a frequent token's row would be lost to rounding.
        total = of_table.to(torch.promote_types(of_table.dtype, torch.float32))
        total.index_add_(0, ids.flatten(), of_rows.flatten(0, -2).to(total.dtype))
        return total.to(of_table.dtype), None
