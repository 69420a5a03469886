# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The prediction of masked tokens (VECO, equations 10-13): the same LM head for H, S and TLM."""

from typing import NamedTuple

import torch
from torch import Tensor

from veco_fairseq.data.masking import masked_places, positions
from veco_fairseq.modules.lm_head import LMHead, is_product, loss_of
from veco_fairseq.modules.masked_loss import masked_loss


class Subset(NamedTuple):
    """The tokens of a softmax that is not over all tokens.

    Attributes:
        tokens: (n), ascending.
        offsets: added to their logits, (n), fp32.
    """

    tokens: Tensor
    offsets: Tensor


class MaskedPrediction(NamedTuple):
    """The LM head's predictions of the masked tokens, one entry each, x's before y's.

    Attributes:
        nll: -log P(token), nats, fp32.
        correct: whether the likeliest token is the right one.
        from_x: whether the token is one of x's.
    """

    nll: Tensor
    correct: Tensor
    from_x: Tensor


class OutputLayer(NamedTuple):
    """P(token | state) = softmax(head(state) table^T + bias).

    A head with a ``forward`` or a projection of its own, or hooks, makes the logits of all tokens itself.

    Attributes:
        head: its dense layer, activation, LayerNorm and bias.
        table: the token embeddings, (tokens, table's dim).
        vocabulary: the tokens of the table's rows, which the softmax is over; None for all.
    """

    head: LMHead
    table: Tensor
    vocabulary: Subset | None = None

    def nll(self, states: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        """Return -log P(gold | state) in nats, fp32, (n), and whether gold is the likeliest token, (n).

        Args:
            states: (n, dim).
            gold: ids, (n).
        """
        if self.vocabulary is not None:
            gold = torch.searchsorted(self.vocabulary.tokens, gold)
        if not is_product(self.head):
            logits = self.head(states).float()
            if self.vocabulary is not None:
                logits = logits[:, self.vocabulary.tokens] + self.vocabulary.offsets
            return loss_of(logits, gold)
        rows, bias = self.head.rows(states), self.head.bias
        if self.vocabulary is not None:
            bias = bias[self.vocabulary.tokens] + self.vocabulary.offsets
        return masked_loss(rows, self.table, bias, gold)


def predict(
    branches: dict[str, tuple[Tensor, Tensor]], output: OutputLayer, pad: int, places: dict[str, Tensor] | None = None
) -> dict[str, MaskedPrediction]:
    """Return the predictions of the masked tokens, computed only for their rows, and in one pass for all branches.

    Args:
        branches: by name, states (2, batch, length, dim) for x and y, or (batch, length, dim), and targets of this shape
            without dim: the original token at masked positions, padding elsewhere.
        output: the softmax.
        pad: the id of padding.
        places: by the branches' names, :func:`masked_places`, where the loader has found them.
    """
    if places is None:
        places = {name: masked_places(targets, pad) for name, (_, targets) in branches.items()}
    # A position begins with the side or, in a concatenation, with the row.
    found = [positions(places[name], targets.shape) for name, (_, targets) in branches.items()]
    rows = torch.cat([states[position] for position, (states, _) in zip(found, branches.values())])
    gold = torch.cat([targets[position] for position, (_, targets) in zip(found, branches.values())])
    nll, correct = output.nll(rows, gold)
    from_x = [first.eq(0) if others[1:] else torch.zeros_like(first, dtype=torch.bool) for first, *others in found]
    counts = list(map(len, from_x))
    return {
        name: MaskedPrediction(*of_branch) for name, *of_branch in zip(branches, nll.split(counts), correct.split(counts), from_x)
    }
