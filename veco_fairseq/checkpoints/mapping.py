# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Maps the tensors of a pre-trained VECO to those of a translation model (VECO, section 3.2)."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from veco_fairseq.checkpoints.names import CROSS_ATTENTION, LAYER
from veco_fairseq.checkpoints.pretrained import Pretrained
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_


class Row(NamedTuple):
    """One row of the table of names: ``target`` replaces the matched part of a name.

    Attributes:
        pattern: anchored; its group, if it has one, is the pre-trained layer's number.
        target: the new beginning, with "{}" for the new layer's number; None drops the tensor.
        what: the tensors' name in the report.
    """

    pattern: "re.Pattern[str]"
    target: str | None
    what: str


_SELF = re.compile(LAYER + r"(?=(?:self_attn|self_attn_layer_norm)\.)")
_FFN = re.compile(LAYER + r"(?=(?:fc1|fc2|final_layer_norm)\.)")
TOKENS = re.compile(r"^encoder\.sentence_encoder\.embed_tokens\.(?=weight$)")
_POSITIONS = re.compile(r"^encoder\.sentence_encoder\.(?=embed_positions\.)")
_EMBEDDING_NORM = re.compile(r"^encoder\.sentence_encoder\.(?=layernorm_embedding\.)")
HEAD_TRANSFORM = re.compile(r"^encoder\.lm_head\.(?=(?:dense|layer_norm)\.)")
HEAD_BIAS = re.compile(r"^encoder\.lm_head\.(?=bias$)")
_VERSION = re.compile(r"^encoder\.sentence_encoder\.(?=version$)")
_EMBEDDINGS = "token embeddings, shared by encoder, decoder and output"

TABLE = (
    Row(TOKENS, "encoder.embed_tokens.", _EMBEDDINGS),
    Row(TOKENS, "decoder.embed_tokens.", _EMBEDDINGS),
    Row(TOKENS, "decoder.output_projection.", _EMBEDDINGS),
    Row(_POSITIONS, "encoder.", "encoder position table"),
    Row(_POSITIONS, "decoder.", "decoder position table"),
    Row(_EMBEDDING_NORM, "encoder.", "encoder embedding LayerNorm"),
    Row(_EMBEDDING_NORM, "decoder.", "decoder embedding LayerNorm"),
    Row(_SELF, "encoder.layers.{}.", "encoder self-attention and its LayerNorm"),
    Row(_FFN, "encoder.layers.{}.", "encoder FFN and its LayerNorm"),
    Row(_SELF, "decoder.layers.{}.", "decoder self-attention and its LayerNorm"),
    Row(CROSS_ATTENTION, "decoder.layers.{}.", "decoder cross-attention and its LayerNorm"),
    Row(_FFN, "decoder.layers.{}.", "decoder FFN and its LayerNorm"),
    Row(_VERSION, "encoder.", "version marks"),
    Row(_VERSION, "decoder.", "version marks"),
    Row(HEAD_TRANSFORM, "decoder.output_projection.", "LM head's dense, norm and bias"),
    Row(HEAD_BIAS, "decoder.output_projection.", "LM head's dense, norm and bias"),
    Row(re.compile(r"^encoder\.lm_head\.(?=weight$)"), None, "LM head's projection"),
)
TIED = "decoder self-attention"


class Group(NamedTuple):
    """One line of the report.

    Attributes:
        action: "copied", "tied", "dropped" or "new".
        what: the tensors.
        source: where they come from, how they are initialised, or why they are dropped.
        tensors: their number, each counted once even if it has several names; 0 for rows of a table.
        parameters: the number of parameters.
    """

    action: str
    what: str
    source: str
    tensors: int
    parameters: int

    @classmethod
    def of(cls, action: str, what: str, source: str, tensors: Collection[Tensor]) -> "Group":
        """Return the line of these tensors."""
        return cls(action, what, source, len(tensors), sum(tensor.numel() for tensor in tensors))

    def __str__(self) -> str:
        tensors = f"{self.tensors} tensor{'s' if self.tensors != 1 else ''}, " if self.tensors else ""
        return f"{self.action:<8} {self.what}: {self.source} ({tensors}{self.parameters:,} parameters)"


def map_weights(
    pretrained: Pretrained,
    chosen: Sequence[int],
    *,
    rows: Mapping["re.Pattern[str]", Tensor],
    dropped: Mapping["re.Pattern[str]", str],
    tie_self_attention: bool = False,
) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Group]]:
    """Rename the pre-trained tensors by :data:`TABLE`.

    Args:
        pretrained: the tensors.
        chosen: the pre-trained layer of every decoder layer.
        rows: the rows for tensors with a row for every token, by the pattern of their names.
        dropped: the reasons to leave out tensors, by the pattern of their names.
        tie_self_attention: take the encoder's own tensors for the decoder's, so that the file has them once.

    Returns:
        The translation model's tensors, the tensors whose names the table does not have, and the report's groups.
    """
    weights: dict[str, Tensor] = {}
    unknown: dict[str, Tensor] = {}
    members: dict[tuple[str, str, str], dict[int, Tensor]] = {}
    for name, tensor in pretrained.weights.items():
        found = [(row, match) for row in TABLE for match in [row.pattern.match(name)] if match]
        if not found:
            unknown[name] = tensor
        used = False
        for row, match in found:
            for target in _targets(row, match, chosen) if row.pattern not in dropped else []:
                key = ("copied", row.what, _source(row, target, chosen))
                if row.pattern in rows:
                    weights[target] = rows[row.pattern]
                elif tie_self_attention and re.match(r"decoder\.layers\.\d+\.self_attn\.", target):
                    (weights[target],) = (weights[name] for name in _targets(found[0][0], match, chosen))
                    key = ("tied", TIED, f"the encoder's layers {', '.join(map(str, chosen))}")
                else:
                    weights[target] = tensor.detach().float().clone()
                used = True
                group = members.setdefault(key, {})
                group[id(weights[target])] = weights[target]
        if found and not used:
            row = found[-1][0]
            reason = dropped.get(row.pattern) or _dropped_because(row, chosen, pretrained)
            members.setdefault(("dropped", row.what, reason), {})[id(tensor)] = tensor
    order = {TIED: 0, **{row.what: place for place, row in enumerate(TABLE)}}
    groups = [Group.of(*key, group.values()) for key, group in members.items()]
    return weights, unknown, sorted(groups, key=lambda group: (group.action, order[group.what]))


def _targets(row: Row, match: "re.Match[str]", chosen: Sequence[int]) -> list[str]:
    """Return the new names of the matched tensor: none, one, or one for every decoder layer that takes it."""
    if row.target is None:
        return []
    rest = match.string[match.end() :]
    if not match.groups():
        return [row.target + rest]
    layer = int(match.group(1))
    if row.target.startswith("encoder."):
        return [row.target.format(layer) + rest]
    return [row.target.format(place) + rest for place, taken in enumerate(chosen) if taken == layer]


def _layers(numbers: Sequence[int]) -> str:
    return f"layer{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _source(row: Row, target: str, chosen: Sequence[int]) -> str:
    if not row.pattern.groups:
        return "of pre-training"
    if target.startswith("encoder."):
        return "of the same layers"
    return f"of {_layers(chosen)}"


def _dropped_because(row: Row, chosen: Sequence[int], pretrained: Pretrained) -> str:
    if row.target is None:
        own = pretrained.has_own_projection
        return "not the token embeddings, in which the decoder ends" if own else "the token embeddings again"
    return f"of all but {_layers(chosen)}"


def check_weights(path: Path_, weights: dict[str, Tensor], unknown: dict[str, Tensor], expected: dict[str, torch.Size]) -> None:
    """Compare the renamed tensors with the model that they are for.

    Raises:
        UserError: names everything that is missing, unexpected, or of another shape.
    """
    problems = [f"{name} is missing, expected {tuple(expected[name])}" for name in expected if name not in weights]
    problems += [f"{name} {tuple(tensor.shape)} is unexpected" for name, tensor in unknown.items()]
    for name, tensor in weights.items():
        found = tuple(tensor.shape)
        if name not in expected:
            problems.append(f"{name} {found} is unexpected")
        elif found != tuple(expected[name]):
            problems.append(f"{name} is {found}, expected {tuple(expected[name])}")
    if problems:
        raise UserError(f"{path}: its tensors do not fit its own options: {'; '.join(problems)}")
