# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Mean-pooled states of sentences."""

import sys
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from veco_fairseq.inference.batches import by_length
from veco_fairseq.inference.pretrained import PretrainedModel, require_layers
from veco_fairseq.inference.states import layer_states
from veco_fairseq.models.base import PretrainingModel


def pooled_states(model: PretrainingModel, tokens: Tensor) -> Tensor:
    """Return the mean of each sequence's plugged-out states, after the embeddings and after every layer.

    Args:
        model: in eval mode.
        tokens: (batch, length), padded on the right; ``<s>`` and ``</s>`` count, padding does not.

    Returns:
        (layers + 1, batch, dim), fp32: embeddings first, H^L last.
    """
    real = tokens.ne(model.encoder.dictionary.pad()).unsqueeze(-1)
    return torch.stack([(state.float() * real).sum(1) / real.sum(1) for state in layer_states(model, tokens)])


@torch.no_grad()  # and not inference_mode, whose tensors no gradient goes through
def sentence_states(
    pretrained: PretrainedModel, lines: Sequence[str], *, layers: Sequence[int], max_tokens: int = 8192, name: str = ""
) -> Tensor:
    """Return the mean-pooled states of raw text, scaled to length 1; print progress, and how many lines are cut, or empty.

    Args:
        pretrained: on the device to compute on.
        lines: sentences; a sentence that is longer than the model's positions is cut.
        layers: 0 for the embeddings, n for the states after the n-th layer.
        max_tokens: of a batch, with padding.
        name: of the text, for the messages.

    Returns:
        (number of ``layers``, sentences, dim), fp32.

    Raises:
        UserError: there is no such layer.
    """
    require_layers(pretrained, layers, "--layers")
    model, eos = pretrained.model, pretrained.dictionary.eos()
    longest = model.encoder.max_positions()
    ids = pretrained.sequences(lines)
    cut = [number for number, line in enumerate(ids) if len(line) > longest]
    for number in cut:
        ids[number] = np.append(ids[number][: longest - 1], eos)
    states = torch.empty(len(layers), len(lines), model.args.encoder_embed_dim)
    with tqdm(total=len(lines), desc=name, unit=" lines", disable=None, leave=False) as progress:
        for batch in by_length([len(line) for line in ids], max_tokens):
            pooled = pooled_states(model, pretrained.batch([ids[number] for number in batch]))[list(layers)]
            states[:, batch] = F.normalize(pooled, dim=-1).cpu()
            progress.update(len(batch))
    if empty := sum(len(line) == 2 for line in ids):
        print(f"{name}: empty lines: {empty:,}; all have the same states, so leave them out in both texts", file=sys.stderr)
    if cut:
        print(f"{name}: lines cut, since the model has fewer positions: {len(cut):,}", file=sys.stderr)
    return states
