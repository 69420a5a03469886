# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Loads a pre-trained model, and shows its attention."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, data_utils
from fairseq.models.roberta import RobertaModel
from torch import Tensor

from veco_fairseq.checkpoints.kinds import arch_of, model_class
from veco_fairseq.checkpoints.reading import options_of, read_checkpoint, require_checkpoint
from veco_fairseq.checkpoints.xlmr import copy_xlmr
from veco_fairseq.checkpoints.xlmr_files import POSITIONS, is_hugging_face, names, read_xlmr, weights_of
from veco_fairseq.data.sentencepiece import MODEL_NAME, Encoder, load_sentencepiece
from veco_fairseq.data.symbols import require_own_pieces, vocabulary_folder
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import Path_
from veco_fairseq.inference.states import layer_states
from veco_fairseq.models.base import PretrainingModel, architecture
from veco_fairseq.models.veco import PluggableModel
from veco_fairseq.models.xlme import Discriminator
from veco_fairseq.modules.device import usual_device
from veco_fairseq.parallel import default_workers


class PretrainedModel(NamedTuple):
    """The content of a checkpoint folder of ``--task camlm``."""

    model: PretrainingModel
    dictionary: Dictionary
    encoder: Encoder

    @property
    def depth(self) -> int:
        """The number of the encoder's layers."""
        return len(self.model.encoder.sentence_encoder.layers)

    def sequences(self, lines: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of ``<s> line </s>``, (length,), for each line."""
        require_list(lines, "lines")
        return [np.append(self.dictionary.bos(), ids) for ids in self.encoder(list(lines))]

    def encode(self, text: str) -> Tensor:
        """Return the ids of ``<s> text </s>``, (1, length)."""
        return self.batch(self.sequences([text]))

    def batch(self, rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
        """Return ids as a batch on the model's device, (rows, length of the longest), padded on the right."""
        tokens = data_utils.collate_tokens([torch.as_tensor(row) for row in rows], self.dictionary.pad())
        return tokens.to(next(self.model.parameters()).device)

    def tokens(self, ids: Tensor) -> list[str]:
        """Return the symbols of ``ids``, (length,)."""
        return [self.dictionary[int(i)] for i in ids]

    @torch.no_grad()
    def cross_attention(self, query: Tensor, memory: Tensor, layer: int | None = None) -> Tensor:
        """Return the cross-attention of ``query`` to ``memory`` (VECO, equation 9), as the mean over the heads.

        Args:
            query, memory: ids of one sequence each, (1, length).
            layer: counted from 0; the middle one by default, as in the paper's figure 1.

        Returns:
            (query length, memory length); rows add up to 1.

        Raises:
            UserError: there is no such layer, or no cross-attention, as in XLM-E, or a sequence is too long.
        """
        if not self.model.encoder.sentence_encoder.cross_attention:
            raise UserError("--attention cross: the model has no cross-attention: give --attention self")
        attention: list[Tensor] = []
        layer = self.layer_number(layer)
        for tokens in (query, memory):
            self.require_positions(tokens)
        self.model.plugged(query, self.model.unplugged(memory), memory, attention=attention)
        return attention[layer][0]

    @torch.no_grad()
    def self_attention(self, tokens: Tensor, layer: int | None = None) -> Tensor:
        """Return a sequence's self-attention (VECO, equation 5), as the mean over the heads.

        Args:
            tokens: ids of one sequence, (1, length), such as from :meth:`join`.
            layer: as in :meth:`cross_attention`.

        Returns:
            (length, length); rows add up to 1.

        Raises:
            UserError: there is no such layer, or the sequence is too long.
        """
        layer = self.layer_number(layer)
        self.require_positions(tokens)
        states = layer_states(self.model, tokens)[layer].transpose(0, 1)  # before the layer
        _, weights = self.model.encoder.sentence_encoder.layers[layer].self_attn(states, states, states, need_weights=True)
        return weights[0]

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        """Join two results of :meth:`encode` to ``<s> x </s> </s> y </s>`` as in TLM, (1, length of both)."""
        return torch.cat([x, x[:, -1:], y[:, 1:]], 1)

    def require_positions(self, tokens: Tensor) -> None:
        """Raise UserError if a sequence, (1, length), is longer than the model has positions."""
        longest = self.model.encoder.max_positions()
        if tokens.size(1) > longest:
            raise UserError(f"the text has {tokens.size(1):,} tokens, but the model has {longest:,} positions: shorten it")

    def layer_number(self, layer: int | None) -> int:
        """Return ``layer``, counted from 0, for None the middle one; raise UserError if there is no such layer."""
        layer = self.depth // 2 if layer is None else layer
        if not 0 <= layer < self.depth:
            raise UserError(f"--layer {layer}: the model has layers 0 to {self.depth - 1}")
        return layer


def is_xlmr(checkpoint: Path_) -> bool:
    """Return whether a checkpoint is an XLM-R, of Hugging Face or fairseq, and not one of this project.

    Raises:
        UserError: it cannot be read, or its model is none of pre-training, which is told before its other files are missed.
    """
    if is_hugging_face(checkpoint):
        return True
    require_checkpoint(checkpoint)
    options = options_of(read_checkpoint(checkpoint, mapped=True), "model")
    kind = model_class(options) or PretrainingModel
    of_fairseq = issubclass(kind, RobertaModel) and kind.__module__.startswith("fairseq.")  # own code may compute otherwise
    if not (of_fairseq or issubclass(kind, PretrainingModel)):
        arch = arch_of(options)
        raise UserError(f"{checkpoint}: has a model of --arch {arch}, not a pre-trained one: give a checkpoint of --task camlm")
    return not issubclass(kind, PretrainingModel)


def load_pretrained(checkpoint: Path_, cpu: bool = False) -> PretrainedModel:
    """Load a checkpoint of ``--task camlm`` with the dict.txt and sentencepiece.bpe.model beside it.

    One of ``--task veco_nlu`` has the encoder as fine-tuning has left it; with ``--plug out`` that has H alone. So has an
    XLM-R of Hugging Face or fairseq, given as its folder or its file.

    Args:
        cpu: use the CPU even if there is a GPU.

    Raises:
        UserError: one of the files is missing or damaged, or the checkpoint has another model.
    """
    checkpoint = weights_of(checkpoint)
    if is_xlmr(checkpoint):
        return _load_xlmr(checkpoint, usual_device(cpu))
    folder = vocabulary_folder(checkpoint)
    spm = folder / MODEL_NAME
    if not spm.is_file():
        raise UserError(f"{spm}: no such file: it must be beside the checkpoint: copy it there from the data root")
    overrides = {"data": str(folder), "vocabulary": str(folder), "mono_langs": None, "bitext_pairs": None}
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    if not isinstance(models[0], PretrainingModel):
        raise UserError(f"{checkpoint}: is a {type(models[0]).__name__}, not a pre-trained VECO or XLM-E")
    return _ready(models[0], task.source_dictionary, spm, usual_device(cpu))


def _load_xlmr(path: Path_, device: str) -> PretrainedModel:
    """Load an XLM-R as an encoder without cross-attention and LM head; errors as in :func:`read_xlmr`."""
    xlmr = read_xlmr(path)
    spm = vocabulary_folder(xlmr.path) / MODEL_NAME
    if not spm.is_file():
        raise UserError(
            f"{spm}: no such file: fetch it with the model; where veco export-hf has left it out, give the checkpoint itself"
        )
    weights = {name: tensor for name, tensor in xlmr.weights.items() if not name.startswith("lm_head.")}
    parts = [name for name in names(max(xlmr.layers, 1)) if not name.startswith("lm_head.")]
    if missing := next((name for name in parts if name not in weights), None):  # a model of fewer layers would be another one
        raise UserError(f"{xlmr.path}: lacks {missing}: fetch it again")
    ffn_dim, dim = weights["sentence_encoder.layers.0.fc1.weight"].shape
    if dim % xlmr.heads:
        raise UserError(f"{xlmr.path}: is {dim} wide, and said to have {xlmr.heads} attention heads: fetch it again")
    dictionary = dictionary_of(xlmr.symbols)
    args = architecture(
        "veco_base", encoder_layers=xlmr.layers, encoder_embed_dim=dim, encoder_ffn_embed_dim=ffn_dim,
        encoder_attention_heads=xlmr.heads, activation_fn=xlmr.activation,
        max_positions=len(weights[POSITIONS]) - dictionary.pad() - 1,
    )  # fmt: skip
    model = PluggableModel(args, Discriminator(args, dictionary))
    copy_xlmr(xlmr._replace(weights=weights), model.encoder, dictionary, xlmr.heads)
    return _ready(model, dictionary, spm, device)


def _ready(model: PretrainingModel, dictionary: Dictionary, spm: Path, device: str) -> PretrainedModel:
    """Put a model to use, with its SentencePiece model; raise UserError if that does not belong to its dictionary."""
    pieces = load_sentencepiece(spm)
    require_own_pieces(pieces, spm, dictionary.symbols)
    return PretrainedModel(model.eval().to(device), dictionary, Encoder(pieces, dictionary.symbols, default_workers()))


def chosen_layers(pretrained: PretrainedModel, wanted: Sequence[str] | None, option: str) -> list[int]:
    """Return the layers' numbers from the words of an option; for None all, with the embeddings.

    Raises:
        UserError: there is no such layer.
    """
    if wanted is None:
        return list(range(pretrained.depth + 1))
    require_layers(pretrained, [int(word) if word.isdecimal() else word for word in wanted], option)
    return [int(word) for word in wanted]


def require_layers(pretrained: PretrainedModel, layers: Iterable[int | str], option: str) -> None:
    """Raise UserError if one is no number of a layer, from 1 to the model's depth, or 0 for the embeddings."""
    for layer in layers:
        if layer not in range(pretrained.depth + 1):
            raise UserError(f"{option} {layer}: the model has layers 1 to {pretrained.depth}, and 0 for the embeddings")
