# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The states of a pre-trained model's layers, unplugged, and batches of text to compute them for."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.inference.pretrained import PretrainedModel
from veco_fairseq.models.base import PretrainingModel


def layer_states(model: PretrainingModel, tokens: Tensor) -> list[Tensor]:
    """The states of each sequence's tokens, unplugged, after the embeddings and after every layer.

    Args:
        model: in eval mode.
        tokens: (batch, length), padded on the right.

    Returns:
        Layers + 1 times (batch, length, dim): embeddings first, H^L last.
    """
    layers = model.encoder.sentence_encoder.layers
    states: list[Tensor] = []
    hooks = [layers[0].register_forward_pre_hook(lambda layer, inputs: states.append(inputs[0]))]
    hooks += [layer.register_forward_hook(lambda layer, inputs, output: states.append(output)) for layer in layers]
    try:
        model.unplugged(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return [state.transpose(0, 1) for state in states]


def chosen_layers(pretrained: PretrainedModel, wanted: Sequence[str] | None, option: str) -> list[int]:
    """The layers' numbers, from the words of an option; none: all, with the embeddings.

    Raises:
        UserError: there is no such layer.
    """
    depth = len(pretrained.model.encoder.sentence_encoder.layers)
    if wanted is None:
        return list(range(depth + 1))
    for word in wanted:
        if not word.isdecimal() or int(word) > depth:
            raise UserError(f"{option} {word}: the model has layers 1 to {depth}, and 0 for the embeddings")
    return [int(word) for word in wanted]


def by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices by length, so many that they have at most ``max_tokens`` with padding, or one."""
    batch: list[int] = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[index] > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], pretrained: PretrainedModel) -> Tensor:
    """Ids as a batch, (rows, length of the longest), padded on the right, where the model computes."""
    tokens = collate_tokens([torch.tensor(row) for row in rows], pretrained.dictionary.pad())
    return tokens.to(next(pretrained.model.parameters()).device)
