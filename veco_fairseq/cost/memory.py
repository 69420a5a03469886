# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Estimates the memory of training, without training."""

from argparse import Namespace
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from veco_fairseq.modules.device import as_on_a_gpu
from veco_fairseq.modules.masked_loss import rows_a_chunk

# fp32 parameter, gradient, and Adam's two moments.
BYTES_A_PARAMETER = 16


class Batch(NamedTuple):
    """A batch of one kind: the number of pairs, tokens a side, the share of them to predict, and whether TLM is used."""

    pairs: int
    length: int
    share: float
    tlm: bool


class Memory(NamedTuple):
    """Bytes of one worker: parameters with gradients and Adam, what the layers keep, and the LM head with the loss."""

    parameters: int
    activations: int
    loss: int

    @property
    def total(self) -> int:
        return sum(self)


def kept_for_the_backward_pass(function: Callable[[], object], parameters: Iterable[Tensor]) -> int:
    """Return the bytes that autograd keeps of a call besides the parameters, each storage counted once."""
    storages = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = function()  # noqa: F841 (holds what was kept)
    for parameter in parameters:
        storages.pop(parameter.untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in storages.values())


def training_memory(args: Namespace, dictionary: Dictionary, batch: Batch, *, device: str = "cpu") -> Memory:
    """Return the memory of an update with the largest batch.

    It is for H, S and TLM together (VECO, section 4), or generator and discriminator (XLM-E, section 3). The layers run on
    tensors without data, so their part is exact for a CPU. For a GPU they choose what they choose there (fused attention,
    states in fp32) and run as a CPU would: dropout keeps a value for each element then, where a GPU keeps one byte. The
    allocator's waste and the libraries' own memory are not counted.

    Args:
        args: the model's options, from :func:`veco_fairseq.models.base.architecture`.
        dictionary: with ``<mask>``.
        batch: the largest one.
        device: "cpu" or "cuda".
    """
    on_a_gpu, bf16 = device == "cuda", args.autocast == "bf16"
    if on_a_gpu:  # its fused kernels keep no weights of attention, with dropout either; a CPU's would
        args = Namespace(**{**vars(args), "attention_dropout": 0.0})

    def layers():
        apart = torch.full((2 * batch.pairs, batch.length), dictionary.unk())
        joined = torch.full((batch.pairs, 2 * batch.length), dictionary.unk()) if batch.tlm else None
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return model.kept_states(apart, joined)

    with FakeTensorMode(), as_on_a_gpu(on_a_gpu):
        model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, SimpleNamespace(source_dictionary=dictionary)).train()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        activations = kept_for_the_backward_pass(layers, model.parameters())
    rows = int(model.predictions_of_a_token(batch.tlm) * 2 * batch.pairs * batch.length * batch.share)
    # dense, GELU, LayerNorm and the gradient of each row; a chunk's logits, which become their gradients; the weight's gradient.
    # A GPU has the logits in fp32, too, and with bf16 a copy of the weight.
    dim, table = args.encoder_embed_dim, model.encoder.sentence_encoder.embed_tokens.weight.numel()
    dtype = torch.bfloat16 if bf16 else torch.float32
    logits = rows_a_chunk(rows, len(dictionary), dtype, for_cpu=not on_a_gpu) * len(dictionary)
    loss = 4 * 4 * rows * dim + logits * (dtype.itemsize + 4 * on_a_gpu) + 4 * table + 2 * table * (on_a_gpu and bf16)
    return Memory(BYTES_A_PARAMETER * parameters, activations, loss)
