# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A model's names and shapes before there is memory for it are those of the model that is made."""

from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq import options
from fairseq.models import build_model
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from veco_fairseq.checkpoints.outlines import shapes_of


class Called(TorchDispatchMode):
    """Notes which operations are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class Positions(nn.Module):
    """With what a model may begin with: numbers in order, of each kind, and random ones."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(nn.init.uniform_(torch.empty(3, 5), b=0.5))
        self.table = nn.Parameter(torch.zeros(7, 2).normal_(std=0.02))
        self.register_buffer("places", self.table[torch.arange(2, 6)])
        self.register_buffer("steps", torch.arange(1, 8, 3, dtype=torch.float16))
        self.register_buffer("shares", torch.arange(0.0, 1.0, 0.25))


@pytest.mark.parametrize(
    "arch", ["veco_mt_tiny", "transformer", "transformer --share-all-embeddings --encoder-learned-pos", None]
)
def test_names_and_shapes_are_those_of_the_model(arch):
    """... and neither random numbers nor their like are made, for which PyTorch would import its compiler."""
    build = Positions
    if arch is not None:
        words, parser = make_dictionary(), options.get_training_parser("translation")
        args = options.parse_args_and_arch(parser, ["data", "--task", "translation", "--arch", *arch.split()])
        args.encoder_embed_dim = args.decoder_embed_dim = 24
        build = lambda: build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words))  # noqa: E731
    with Called() as called:
        shapes = shapes_of(build)
    assert shapes == {name: tensor.shape for name, tensor in build().state_dict().items()} and len(shapes) > 4
    assert not called.names & {"normal_", "uniform_"} and ("arange" in called.names) is (arch is None)
