# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The LM head over the table of the token embeddings."""

from collections.abc import Callable

import torch.nn.functional as F
from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor

from veco_fairseq.modules.embedding import TokenEmbedding, computes_as
from veco_fairseq.modules.masked_loss import drawn_loss


class LMHead(RobertaLMHead):
    """RoBERTa's LM head, over the table of a :class:`TokenEmbedding`, which can have fewer dimensions than the model."""

    def __init__(self, dim: int, tokens: int, *, activation_fn: str, table: Tensor | None, embedding: TokenEmbedding):
        super().__init__(dim, tokens, activation_fn, table)
        self.project_out = embedding.project_out  # a method and not a module, so that its weight has one name
        self.embedding = (embedding,)  # in a tuple for the same reason

    def rows(self, states: Tensor) -> Tensor:
        """Return the rows whose product with the table is the logits: (..., model's dim) -> (..., table's dim)."""
        return self.project_out(self.layer_norm(self.activation_fn(self.dense(states))))

    def forward(self, features: Tensor, masked_tokens: Tensor | None = None, **kwargs) -> Tensor:
        """Return the logits, only for the masked tokens if these are given: (..., model's dim) -> (..., tokens)."""
        rows = self.rows(features if masked_tokens is None else features[masked_tokens])
        return F.linear(rows, self.weight) + self.bias


def is_product(head: LMHead) -> bool:
    """Return whether a head's logits are its rows times the table of the embeddings, plus its bias, so that they may be made otherwise.

    A class below may have a ``forward`` of its own, or a projection that is not tied to the embeddings.
    """
    return computes_as(head, LMHead) and head.weight is head.embedding[0].weight


def drawn_from(
    head: LMHead, table: Tensor, states: Tensor, gold: Tensor, *, draw: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the NLL of each state's token, whether it is the likeliest one, and a drawn token, as :func:`drawn_loss` does.

    Args:
        head: a generator's; one that is no product (:func:`is_product`) makes the logits of all tokens itself.
        table: the token embeddings, (tokens, table's dim).
        states: (n, dim).
        gold: ids, (n).
        draw: as in :func:`drawn_loss`.
    """
    if is_product(head):
        return drawn_loss(head.rows(states), table, head.bias, gold, draw=draw)
    logits = head(states).float()
    return *loss_of(logits, gold), draw(logits.detach().softmax(-1), slice(len(gold)))


def loss_of(logits: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Return the NLL of each row's token, nats, (n), and whether no token is likelier, (n), from all logits, fp32, (n, tokens)."""
    right = logits.detach().gather(1, gold.unsqueeze(1)).squeeze(1)
    return F.cross_entropy(logits, gold, reduction="none"), right.ge(logits.detach().amax(1))
