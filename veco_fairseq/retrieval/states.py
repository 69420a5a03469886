# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The mean-pooled states of sentences."""

import sys
from typing import Iterator, List, Optional, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from veco_fairseq.checkpoints.pretrained import PretrainedModel
from veco_fairseq.errors import UserError
from veco_fairseq.models.veco import VecoModel


def pooled_states(model: VecoModel, tokens: Tensor) -> Tensor:
    """The mean of each sequence's unplugged states, after the embeddings and after every layer.

    Args:
        model: in eval mode.
        tokens: (batch, length), padded on the right; ``<s>`` and ``</s>`` count, padding doesn't.

    Returns:
        (layers + 1, batch, dim), fp32: embeddings first, H^L last.
    """
    layers = model.encoder.sentence_encoder.layers
    states: List[Tensor] = []
    hooks = [layers[0].register_forward_pre_hook(lambda layer, inputs: states.append(inputs[0]))]
    hooks += [layer.register_forward_hook(lambda layer, inputs, output: states.append(output)) for layer in layers]
    try:
        model.unplugged(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    real = tokens.ne(model.encoder.dictionary.pad()).t().unsqueeze(-1)
    return torch.stack([(state.float() * real).sum(0) / real.sum(0) for state in states])


@torch.inference_mode()
def sentence_states(
    pretrained: PretrainedModel, lines: Sequence[str], layers: Sequence[int], max_tokens: int = 8192, name: str = ""
) -> Tensor:
    """The mean-pooled states of raw text, of length 1; on standard error its progress, and how many lines were cut.

    Args:
        pretrained: on the device to compute on.
        lines: sentences; what is longer than the model has positions is cut.
        layers: 0 for the embeddings, n for the states after the n-th layer.
        max_tokens: of a batch, with padding.
        name: of the text, for the messages.

    Returns:
        (layers asked for, sentences, dim), fp32.
    """
    model, dictionary = pretrained.model, pretrained.dictionary
    longest = model.encoder.max_positions()
    device = next(model.parameters()).device
    ids, cut = [], 0
    for pieces in pretrained.pieces.encode(list(lines), out_type=str):
        cut += len(pieces) > longest - 2
        ids.append([dictionary.bos(), *map(dictionary.index, pieces[: longest - 2]), dictionary.eos()])
    states = torch.empty(len(layers), len(lines), model.args.encoder_embed_dim)
    with tqdm(total=len(lines), desc=name, unit=" lines", disable=None, leave=False) as progress:
        for batch in _batches([len(line) for line in ids], max_tokens):
            tokens = torch.full((len(batch), max(len(ids[number]) for number in batch)), dictionary.pad())
            for row, number in enumerate(batch):
                tokens[row, : len(ids[number])] = torch.tensor(ids[number])
            pooled = pooled_states(model, tokens.to(device))[list(layers)]
            states[:, batch] = F.normalize(pooled, dim=-1).cpu()
            progress.update(len(batch))
    if cut:
        print(f"{name}: {cut:,} lines are longer than the model has positions, and were cut", file=sys.stderr)
    return states


def chosen_layers(pretrained: PretrainedModel, wanted: Optional[Sequence[str]], option: str) -> List[int]:
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


def _batches(lengths: Sequence[int], max_tokens: int) -> Iterator[List[int]]:
    """Indices by length, so many that they have at most ``max_tokens`` with padding, or one."""
    batch: List[int] = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[index] > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
