# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A pre-trained model with its dictionary and SentencePiece model, ready to look into."""

from pathlib import Path
from typing import List, NamedTuple, Optional

import sentencepiece
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.models.veco import VecoModel


class Pretrained(NamedTuple):
    """What a checkpoint folder of ``--task camlm`` holds."""

    model: VecoModel
    dictionary: Dictionary
    pieces: sentencepiece.SentencePieceProcessor

    def encode(self, text: str) -> Tensor:
        """``<s> text </s>`` as ids, (1, length)."""
        ids = [self.dictionary.index(piece) for piece in self.pieces.encode(text, out_type=str)]
        return torch.tensor([[self.dictionary.bos(), *ids, self.dictionary.eos()]])

    def tokens(self, ids: Tensor) -> List[str]:
        """The symbols of ``ids``, (length,)."""
        return [self.dictionary[int(i)] for i in ids]

    @torch.no_grad()
    def cross_attention(self, query: Tensor, memory: Tensor, layer: Optional[int] = None) -> Tensor:
        """Where ``query``'s tokens look in ``memory`` (VECO, equation 9), the mean over the heads.

        Args:
            query, memory: ids of one sequence each, (1, length).
            layer: counted from 0; the middle one by default, as in the paper's figure 1.

        Returns:
            (query length, memory length); rows add up to 1.

        Raises:
            UserError: there is no such layer.
        """
        attention: List[Tensor] = []
        self.model.plugged(query, self.model.unplugged(memory), memory, attention)
        layer = len(attention) // 2 if layer is None else layer
        if not 0 <= layer < len(attention):
            raise UserError(f"--layer {layer}: the model has layers 0 to {len(attention) - 1}")
        return attention[layer][0]


def load_pretrained(checkpoint: str) -> Pretrained:
    """Load a checkpoint of ``--task camlm`` with the dict.txt and sentencepiece.bpe.model beside it.

    Raises:
        UserError: one of the files is missing or damaged, or the checkpoint is of another model.
    """
    folder = Path(checkpoint).parent
    spm = folder / "sentencepiece.bpe.model"
    if Path(checkpoint).is_file() and not spm.is_file():
        raise UserError(f"{spm}: no such file: it lies beside the checkpoint and in the data root; copy it there")
    overrides = {"data": str(folder), "mono_langs": None, "bitext_pairs": None}
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    if not isinstance(models[0], VecoModel):
        raise UserError(f"{checkpoint}: is a {type(models[0]).__name__}, not a pre-trained VECO")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    return Pretrained(models[0].eval(), task.source_dictionary, pieces)
