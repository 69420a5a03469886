# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Token embeddings, and the look-up of tokens in a table that the LM head also uses."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def computes_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether calling a module does what ``kind.forward`` does, so that this may be computed in another way.

    A class below ``kind`` may have a ``forward`` of its own, and hooks may change what goes in or comes out.
    """
    return type(module).forward is kind.forward and not (module._forward_hooks or module._forward_pre_hooks)


class TokenEmbedding(nn.Embedding):
    """Token embeddings whose table is the LM head's. It starts normal with standard deviation dim^-0.5, as in fairseq."""

    def __init__(self, tokens: int, dim: int, padding_idx: int):
        super().__init__(tokens, dim, padding_idx)
        nn.init.normal_(self.weight, std=dim**-0.5)
        nn.init.zeros_(self.weight[padding_idx])

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings: any shape -> (*ids.shape, model's dim)."""
        return self.project_in(super().forward(ids))

    def project_in(self, rows: Tensor) -> Tensor:
        """Return the token embeddings of the table's rows: (..., table's dim) -> (..., model's dim)."""
        return rows

    def project_out(self, states: Tensor) -> Tensor:
        """Return the rows whose product with the table is the logits: (..., model's dim) -> (..., table's dim)."""
        return states

    def with_table(self, *batches: Tensor, only: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Return the table for the LM head, and the embeddings of each batch, from one look-up (see :func:`look_up`).

        A class with a ``forward`` of its own, or hooks, is called for each batch.

        Args:
            batches: ids, (batch, length); their embeddings are (batch, length, model's dim).
            only: the tokens whose rows the table has, (n); None for all.

        Returns:
            (tokens, table's dim) or (n, table's dim), and the embeddings.
        """
        if not computes_as(self, TokenEmbedding):
            return self.weight if only is None else F.embedding(only, self.weight), [self(tokens) for tokens in batches]
        ids = torch.cat([tokens.flatten() for tokens in batches])
        if only is None:
            rows, table = look_up(self.weight, ids)
        else:
            rows, table = F.embedding(torch.cat([ids, only]), self.weight).tensor_split([len(ids)])
        parts = self.project_in(rows).split([tokens.numel() for tokens in batches])
        return table, [part.view(*tokens.shape, -1) for part, tokens in zip(parts, batches)]


class FactorizedEmbedding(TokenEmbedding):
    """Embeddings with fewer dimensions than the model, projected in and out (VoCap, section 3.2).

    One projection P, (dim, table_dim), serves both ways: a token's embedding is e P^T, and the logits of a state h are
    (h P) e^T. This equals an ordinary table e P^T of low rank, with table_dim / dim of its parameters and operations.

    P starts with orthonormal columns, which keep lengths. So e P^T starts with the standard deviation of an ordinary
    table, dim^-0.5, and the row of padding stays 0.

    Args:
        tokens: rows of the table.
        dim: the model's width.
        padding_idx: the row of padding.
        table_dim: the table's width, below ``dim``.
    """

    def __init__(self, tokens: int, dim: int, padding_idx: int, table_dim: int):
        super().__init__(tokens, table_dim, padding_idx)
        self.embedding_dim = dim  # of the output; fairseq derives positions and LayerNorm from it
        self.project = nn.Linear(table_dim, dim, bias=False)
        nn.init.orthogonal_(self.project.weight)

    def project_in(self, rows: Tensor) -> Tensor:
        return self.project(rows)

    def project_out(self, states: Tensor) -> Tensor:
        return states @ self.project.weight


def look_up(table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of ``ids``, and the table again for the LM head.

    The gradient of an ordinary look-up has the table's size: it is filled with zeros and added to the head's gradient,
    even for few tokens. Here the backward pass receives the head's own gradient, and adds the rows to it.

    Args:
        table: (vocabulary, dim).
        ids: any shape.

    Returns:
        (*ids.shape, dim), and (vocabulary, dim). The second must be used once, and its gradient by nothing else.
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
        # In 16 bits, rounding would lose the additions to a frequent token's row.
        total = of_table.to(torch.promote_types(of_table.dtype, torch.float32))
        total.index_add_(0, ids.flatten(), of_rows.flatten(0, -2).to(total.dtype))
        return total.to(of_table.dtype), None
