# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tensors with a row for every token of a translation model: they get pre-training's rows, matched by token."""

import re
from collections.abc import Sequence

import torch
from fairseq.data import Dictionary
from torch import Tensor

from veco_fairseq.checkpoints.mapping import HEAD_BIAS, TOKENS, Group
from veco_fairseq.checkpoints.names import EMBEDDINGS
from veco_fairseq.checkpoints.pretrained import Pretrained
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_

MAX_NEW_SHARE = 0.01  # of the dictionary's tokens may be new to pre-training
PADDING_SYMBOL = re.compile(r"madeupword\d{4,}")  # fairseq-preprocess rounds a dictionary's size up with them


def token_rows(
    pretrained: Pretrained, target: Dictionary, path: Path_ | None, allow_new_tokens: bool
) -> tuple[dict["re.Pattern[str]", Tensor], list[Group]]:
    """Return the rows of the translation dictionary's tokens, matched by token, never by number.

    Args:
        pretrained: has the embeddings, (tokens of pre-training, dim), and the LM head's bias, (tokens).
        target: the translation data's dictionary.
        path: of ``target``, for messages.
        allow_new_tokens: accept more than 1% of tokens that pre-training did not have.

    Returns:
        By the pattern of their name, embeddings, (tokens of ``target``, dim), and bias, (tokens of ``target``); and the
        report's groups about the rows of the embeddings.

    Raises:
        UserError: the dictionary has too many new tokens, or the checkpoint's own dictionary does not fit its embeddings.
    """
    old = _source_embeddings(pretrained)
    row_of = {symbol: row for row, symbol in enumerate(pretrained.symbols)}
    new = [symbol for symbol in target.symbols if symbol not in row_of]
    padding = [symbol for symbol in new if PADDING_SYMBOL.fullmatch(symbol)]
    _check_new_tokens(new, len(new) - len(padding), target, path=path, pretrained=pretrained, allow=allow_new_tokens)
    kept = [symbol for symbol in target.symbols if symbol in row_of]
    here, there = [target.indices[symbol] for symbol in kept], [row_of[symbol] for symbol in kept]
    std = old.size(1) ** -0.5  # as in pre-training and in fairseq's transformer
    table = torch.empty(len(target), old.size(1))
    table[here] = old[there].float()
    table[[target.indices[symbol] for symbol in new]] = torch.randn(len(new), old.size(1)) * std
    bias = torch.zeros(len(target))
    if "encoder.lm_head.bias" in pretrained.weights:
        bias[here] = pretrained.weights["encoder.lm_head.bias"][there].float()
    dropped = [symbol for symbol in pretrained.symbols if symbol not in target.indices]
    dim, groups = old.size(1), []
    if dropped:
        source = f"{len(dropped)} of {len(row_of):,} tokens are not in the dictionary ({_some(dropped)})"
        groups.append(Group("dropped", "rows of the token embeddings", source, 0, len(dropped) * dim))
    if new:
        source = (
            f"{len(new)} of {len(target):,} tokens were not in pre-training ({_some(new)}; {len(padding)} of them only "
            f"round the dictionary's size up), normal with standard deviation {std:.3f}"
        )
        groups.append(Group("new", "rows of the token embeddings", source, 0, len(new) * dim))
    return {TOKENS: table, HEAD_BIAS: bias}, groups


def _source_embeddings(pretrained: Pretrained) -> Tensor:
    old = pretrained.weights.get(EMBEDDINGS)
    if old is None:
        raise UserError(f"{pretrained.path}: {EMBEDDINGS} is missing; expected a VECO checkpoint")
    if old.size(0) != len(pretrained.symbols):
        raise UserError(
            f"{pretrained.path}: has {old.size(0):,} rows of token embeddings, but {len(pretrained.symbols):,} tokens in "
            "its dictionary (task_state, symbols): write it again with --task camlm"
        )
    return old


def _check_new_tokens(
    new: Sequence[str], counted: int, target: Dictionary, *, path: Path_ | None, pretrained: Pretrained, allow: bool
) -> None:
    """Refuse a dictionary that is not pre-training's; symbols that only round up its size do not count."""
    if allow or counted <= MAX_NEW_SHARE * len(target):
        return
    ordinary = [symbol for symbol in new if not PADDING_SYMBOL.fullmatch(symbol)]
    raise UserError(
        f"{path}: {counted:,} of its {len(target):,} tokens are not among the {len(pretrained.symbols):,} of "
        f"{pretrained.path} ({_some(ordinary)}): prepare the data with pre-training's SentencePiece model and dict.txt "
        "(fairseq-preprocess --srcdict), or add --allow-new-tokens"
    )


def _some(symbols: Sequence[str], limit: int = 5) -> str:
    return ", ".join(repr(symbol) for symbol in symbols[:limit]) + (", ..." if len(symbols) > limit else "")
