# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A pre-trained model, ready to look into."""

from pathlib import Path
from typing import NamedTuple

import sentencepiece
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from torch import Tensor

from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.data.symbols import require_own_pieces
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import PretrainingModel


class PretrainedModel(NamedTuple):
    """What a checkpoint folder of ``--task camlm`` holds."""

    model: PretrainingModel
    dictionary: Dictionary
    pieces: sentencepiece.SentencePieceProcessor

    def encode(self, text: str) -> Tensor:
        """``<s> text </s>`` as ids, (1, length)."""
        ids = [self.dictionary.index(piece) for piece in self.pieces.encode(text, out_type=str)]
        return torch.tensor([[self.dictionary.bos(), *ids, self.dictionary.eos()]])

    def tokens(self, ids: Tensor) -> list[str]:
        """The symbols of ``ids``, (length,)."""
        return [self.dictionary[int(i)] for i in ids]

    @torch.no_grad()
    def cross_attention(self, query: Tensor, memory: Tensor, layer: int | None = None) -> Tensor:
        """Where ``query``'s tokens look in ``memory`` (VECO, equation 9), the mean over the heads.

        Args:
            query, memory: ids of one sequence each, (1, length).
            layer: counted from 0; the middle one by default, as in the paper's figure 1.

        Returns:
            (query length, memory length); rows add up to 1.

        Raises:
            UserError: there is no such layer, or no cross-attention, as in XLM-E.
        """
        if not self.model.encoder.sentence_encoder.cross_attention:
            raise UserError("--attention cross: the model has no cross-attention: give --attention self")
        attention: list[Tensor] = []
        layer = self.layer_number(layer)
        self.model.plugged(query, self.model.unplugged(memory), memory, attention=attention)
        return attention[layer][0]

    @torch.no_grad()
    def self_attention(self, tokens: Tensor, layer: int | None = None) -> Tensor:
        """Where a sequence's tokens look in itself (VECO, equations 2 and 3), the mean over the heads.

        Args:
            tokens: ids of one sequence, (1, length), as of :meth:`join`.
            layer: as in :meth:`cross_attention`.

        Returns:
            (length, length); rows add up to 1.

        Raises:
            UserError: there is no such layer.
        """
        layer = self.model.encoder.sentence_encoder.layers[self.layer_number(layer)]
        inputs: list[Tensor] = []
        hook = layer.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
        try:
            self.model.unplugged(tokens)
        finally:
            hook.remove()
        _, weights = layer.self_attn(*3 * inputs, need_weights=True)
        return weights[0]

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        """``<s> x </s> </s> y </s>`` as in TLM, (1, length of both), of two that :meth:`encode` made."""
        return torch.cat([x, x[:, -1:], y[:, 1:]], 1)

    def layer_number(self, layer: int | None = None) -> int:
        """``layer``, counted from 0, the middle one by default; a UserError if there is no such layer."""
        layers = len(self.model.encoder.sentence_encoder.layers)
        layer = layers // 2 if layer is None else layer
        if not 0 <= layer < layers:
            raise UserError(f"--layer {layer}: the model has layers 0 to {layers - 1}")
        return layer


def load_pretrained(checkpoint: str, gpu: bool = False) -> PretrainedModel:
    """Load a checkpoint of ``--task camlm`` with the dict.txt and sentencepiece.bpe.model beside it.

    Args:
        gpu: to a GPU, if there is one.

    Raises:
        UserError: one of the files is missing or damaged, or the checkpoint is of another model.
    """
    folder = Path(checkpoint).parent
    spm = folder / "sentencepiece.bpe.model"
    if not Path(checkpoint).is_file():
        raise UserError(f"{checkpoint}: no such checkpoint")
    if not spm.is_file():
        raise UserError(f"{spm}: no such file: it lies beside the checkpoint and in the data root; copy it there")
    overrides = {"data": str(folder), "vocabulary": str(folder), "mono_langs": None, "bitext_pairs": None}
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    if not isinstance(models[0], PretrainingModel):
        raise UserError(f"{checkpoint}: is a {type(models[0]).__name__}, not a pre-trained VECO or XLM-E")
    pieces = load_sentencepiece(spm)
    require_own_pieces(pieces, spm, task.source_dictionary.symbols)
    device = "cuda" if gpu and torch.cuda.is_available() else "cpu"
    return PretrainedModel(models[0].eval().to(device), task.source_dictionary, pieces)
