# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads a checkpoint of pre-training: its tensors, options and dictionary."""

from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veco_fairseq.checkpoints.kinds import notes_on_own_code
from veco_fairseq.checkpoints.names import CROSS_ATTENTION, EMBEDDINGS, LM_HEAD, PRETRAINING_ALONE, PROJECTION, TIED_HEAD
from veco_fairseq.checkpoints.reading import options_of, read_checkpoint
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_

WANTED = "expected a VECO checkpoint or an XLM-E, as fairseq-train --task camlm writes them"


class Pretrained(NamedTuple):
    """The content of a pre-training checkpoint.

    Attributes:
        path: the file.
        weights: its state dict.
        model: its model options.
        symbols: its dictionary, in id order.
        objective: the criterion's objective, "camlm" or "mlm"; empty if the file does not say, as with XLM-E.
        task: its task options.
        labels: of an understanding task, its classes or tags.
        notes: lines for the user on what is not as in the file.
        updates: of its training.
        extra: its ``extra_state``.
    """

    path: Path
    weights: dict[str, Tensor]
    model: Namespace
    symbols: list[str]
    objective: str
    task: Namespace
    labels: list[str]
    notes: list[str]
    updates: int = 0
    extra: dict[str, Any] = {}

    @property
    def has_cross_attention(self) -> bool:
        return any(map(CROSS_ATTENTION.match, self.weights))

    @property
    def has_lm_head(self) -> bool:
        return any(name.startswith(LM_HEAD) for name in self.weights)

    @property
    def has_own_projection(self) -> bool:
        """Whether its LM head has a projection that is not the token embeddings, as somebody's own class may."""
        projection = self.weights.get(TIED_HEAD)
        return projection is not None and not torch.equal(projection, self.weights.get(EMBEDDINGS, projection))


def read_pretrained(path: Path_, trust: bool = False, plain: bool = True, *, wanted: str = WANTED) -> Pretrained:
    """Read a checkpoint of ``--task camlm``, or of ``--task veco_nlu``.

    Args:
        path: the file.
        trust: see :func:`veco_fairseq.checkpoints.reading.read_checkpoint`.
        plain: always return an encoder with an ordinary table of embeddings: see :func:`discriminator` and :func:`fold`.
        wanted: what to say of a file of another kind.

    Raises:
        UserError: the file cannot be read, or has another model; the message names it.
    """
    state = read_checkpoint(path, trust, mapped=True)  # the optimizer's part is not used
    model = options_of(state, "model")
    _check_is_ours(path, state["model"], getattr(model, "arch", "unknown"), wanted)
    task_state = state.get("task_state") or {}
    symbols = task_state.get("symbols")
    if not symbols or model is None:
        raise UserError(f"{path}: it lacks its {'dictionary (task_state, symbols)' if model else 'options'}; {wanted}")
    objective = getattr(options_of(state, "criterion"), "objective", None)
    pretrained = Pretrained(
        Path(path), state["model"], model, list(symbols), str(objective or ""),
        options_of(state, "task") or Namespace(), list(task_state.get("labels", [])), notes_on_own_code(model), updates_of(state),
        state.get("extra_state") or {},
    )  # fmt: skip
    return fold(discriminator(pretrained)) if plain else pretrained


def updates_of(state: dict[str, Any]) -> int:
    """How many updates a checkpoint's model was trained."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def discriminator(pretrained: Pretrained) -> Pretrained:
    """Return XLM-E's discriminator, an encoder without LM head and cross-attention, which is kept after pre-training.

    Tables that both models share are saved under the names of both, and keep the discriminator's.
    """
    kept = {name: tensor for name, tensor in pretrained.weights.items() if not PRETRAINING_ALONE.match(name)}
    if len(kept) == len(pretrained.weights):
        return pretrained
    dropped = {name: tensor for name, tensor in pretrained.weights.items() if name not in kept}
    sizes = {t.untyped_storage().data_ptr(): t.numel() for n, t in dropped.items() if not n.endswith(".version")}
    count = sum(sizes[place] for place in sizes.keys() - {t.untyped_storage().data_ptr() for t in kept.values()})
    note = f"XLM-E: its discriminator; generator and detection head are left out ({count:,} parameters)"
    return pretrained._replace(weights=kept, notes=[*pretrained.notes, note])


def fold(pretrained: Pretrained) -> Pretrained:
    """Turn a model with ``--embed-dim`` (VoCap, section 3.2) into one with an ordinary table and the same outputs.

    The table, (tokens, embed dim), and its projection P, (dim, embed dim), are multiplied: table P^T, (tokens, dim).
    """
    weights = dict(pretrained.weights)
    if not {EMBEDDINGS, PROJECTION} <= weights.keys():
        return pretrained
    table, projection = weights[EMBEDDINGS].float(), weights.pop(PROJECTION).float()
    folded = table @ projection.t()
    tied = [TIED_HEAD] if TIED_HEAD in weights and not pretrained.has_own_projection else []
    weights.update(dict.fromkeys([EMBEDDINGS, *tied], folded))
    sizes = [" x ".join(f"{size:,}" for size in tensor.shape) for tensor in (table, projection, folded)]
    note = f"--embed-dim: token embeddings ({sizes[0]}) times projection ({sizes[1]}): {sizes[2]}, the same outputs"
    model = Namespace(**{**vars(pretrained.model), "table_dim": None})
    return pretrained._replace(weights=weights, model=model, notes=[*pretrained.notes, note])


def refuse_parts_without_place(pretrained: Pretrained, target: str) -> None:
    """Raise UserError if the model has a part that ``target`` has no place for.

    It is the relative position bias, or the projection of the embeddings that fairseq adds for ``--quant-noise-pq``.
    """
    path, model = pretrained.path, pretrained.model
    if getattr(model, "relative_position_bias", False):
        raise UserError(f"{path}: was pre-trained with --relative-position-bias, which {target} has no place for")
    if getattr(model, "quant_noise_pq", 0):
        raise UserError(
            f"{path}: was pre-trained with --quant-noise-pq, and {target} would lack its projection of the embeddings"
        )


def _check_is_ours(path: Path_, weights: dict[str, Tensor], arch: str, wanted: str) -> None:
    """Recognise a checkpoint of another model by its names, and refuse it with the model's name."""
    # The head of an understanding task has a cross-attention only if it is plugged in.
    if any(CROSS_ATTENTION.match(name) or name.startswith(("detection_head.", "head.")) for name in weights):
        return
    if any(name.startswith("decoder.layers.") for name in weights):
        kind = f"a translation model (encoder and decoder, --arch {arch})"
    elif any("sentence_encoder." in name for name in weights):
        kind = f"an encoder without cross-attention (RoBERTa or XLM-R, --arch {arch}), start pre-training from it first"
    else:
        kind = f"a model of --arch {arch}"
    raise UserError(f"{path}: this is {kind}; {wanted}")
