# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The states of a pre-trained model's layers, plugged out."""

from contextlib import ExitStack

from torch import Tensor

from veco_fairseq.models.base import PretrainingModel


def layer_states(model: PretrainingModel, tokens: Tensor) -> list[Tensor]:
    """Return the states of each sequence's tokens, plugged out, after the embeddings and after every layer.

    Args:
        model: in eval mode.
        tokens: (batch, length), padded on the right.

    Returns:
        Layers + 1 times (batch, length, dim): embeddings first, H^L last.
    """
    layers = model.encoder.sentence_encoder.layers
    states: list[Tensor] = []
    with ExitStack() as hooks:
        hooks.enter_context(layers[0].register_forward_pre_hook(lambda layer, inputs: states.append(inputs[0])))
        for layer in layers:
            hooks.enter_context(layer.register_forward_hook(lambda layer, inputs, output: states.append(output)))
        model.unplugged(tokens)
    return [state.transpose(0, 1) for state in states]
