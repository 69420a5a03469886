# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tensors with a row for every token of a translation model: they get pre-training's rows, matched by token."""

import re
from collections.abc import Iterator, Sequence

import torch
from fairseq.data import Dictionary
from torch import Tensor

from veco_fairseq.checkpoints.mapping import HEAD_BIAS, TOKENS, Group
from veco_fairseq.checkpoints.names import EMBEDDINGS
from veco_fairseq.checkpoints.pretrained import Pretrained
from veco_fairseq.data.exact import spell
from veco_fairseq.data.sentencepiece import MODEL_NAME, load_sentencepiece
from veco_fairseq.data.symbols import NO_PIECE, TARGET_TOKEN, require_own_pieces, vocabulary_folder
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_

MAX_NEW_SHARE = 0.01  # of the dictionary's tokens may be new to pre-training
NEW_TOKENS = "mean", "random"  # what their rows begin with
PADDING_SYMBOL = re.compile(r"madeupword\d{4,}")  # fairseq-preprocess rounds a dictionary's size up with them


def token_rows(
    pretrained: Pretrained, target: Dictionary, path: Path_ | None, allow_new_tokens: bool, *, new_tokens: str = "mean"
) -> tuple[dict["re.Pattern[str]", Tensor], list[Group]]:
    """Return the rows of the translation dictionary's tokens, matched by token, never by number.

    Args:
        pretrained: has the embeddings, (tokens of pre-training, dim), and the LM head's bias, (tokens).
        target: the translation data's dictionary.
        path: of ``target``, for messages.
        allow_new_tokens: accept more than 1% of tokens that pre-training did not have.
        new_tokens: "mean": such a token gets the mean of the rows of the pieces that spelt it in pre-training, and
            a token ``<2LANG>`` the row of ``<s>``, in whose place it stands; "random": random rows.

    Returns:
        By the pattern of their name, embeddings, (tokens of ``target``, dim), and bias, (tokens of ``target``); and the
        report's groups about the rows of the embeddings.

    Raises:
        UserError: the dictionary has too many new tokens, the checkpoint's own dictionary does not fit its embeddings, or
            the SentencePiece model beside the checkpoint is damaged or another one.
    """
    old = _source_embeddings(pretrained)
    row_of = {symbol: row for row, symbol in enumerate(pretrained.symbols)}
    new = [symbol for symbol in target.symbols if symbol not in row_of]
    padding = [symbol for symbol in new if PADDING_SYMBOL.fullmatch(symbol)]
    words = [symbol for symbol in new if not (PADDING_SYMBOL.fullmatch(symbol) or TARGET_TOKEN.fullmatch(symbol))]
    _check_new_tokens(words, target, path=path, pretrained=pretrained, allow=allow_new_tokens)
    # By place: a token that a line with #fairseq:overwrite gives again has two rows, of which the index knows the second.
    here = [row for row, symbol in enumerate(target.symbols) if symbol in row_of]
    there = [row_of[target.symbols[row]] for row in here]
    std = old.size(1) ** -0.5  # as in pre-training and in fairseq's transformer
    table = torch.empty(len(target), old.size(1))
    table[here] = old[there].float()
    table[[row for row, symbol in enumerate(target.symbols) if symbol not in row_of]] = torch.randn(len(new), old.size(1)) * std
    bias, old_bias = torch.zeros(len(target)), pretrained.weights.get("encoder.lm_head.bias")
    if old_bias is not None:
        bias[here] = old_bias[there].float()
    spelt = _spelt(pretrained, new) if new_tokens == "mean" else {}
    for symbol, pieces in spelt.items():
        rows, row = [row_of[piece] for piece in pieces], target.indices[symbol]
        table[row] = old[rows].float().mean(0)
        if old_bias is not None:
            bias[row] = old_bias[rows].float().mean()
    dropped = [symbol for symbol in pretrained.symbols if symbol not in target.indices]
    dim, groups = old.size(1), []
    if dropped:
        source = f"{len(dropped)} of {len(row_of):,} tokens are not in the dictionary ({_some(dropped)})"
        groups.append(Group("dropped", "rows of the token embeddings", source, 0, len(dropped) * dim))
    groups += [
        Group("new", "rows of the token embeddings", source, 0, count * dim)
        for source, count in _started_from(new, spelt, padding=padding, target=target, std=std)
    ]
    return {TOKENS: table, HEAD_BIAS: bias}, groups


def _spelt(pretrained: Pretrained, new: Sequence[str]) -> dict[str, list[str]]:
    """The tokens of pre-training that stood for each new one: ``<s>`` or pieces; without those that nothing did."""
    known = set(pretrained.symbols)
    spelt = {symbol: ["<s>"] for symbol in new if TARGET_TOKEN.fullmatch(symbol)}
    words = [symbol for symbol in new if not NO_PIECE.fullmatch(symbol)]
    model = vocabulary_folder(pretrained.path) / MODEL_NAME
    if words and model.is_file():
        pieces = load_sentencepiece(model)
        require_own_pieces(pieces, model, pretrained.symbols)
        spelt.update(zip(words, ([piece for piece in parts if piece in known] for parts in spell(pieces, words))))
    return {symbol: parts for symbol, parts in spelt.items() if parts}


def _started_from(
    new: Sequence[str], spelt: dict[str, list[str]], *, padding: Sequence[str], target: Dictionary, std: float
) -> Iterator[tuple[str, int]]:
    """What the report says of the new tokens' rows, by what they begin with, and how many there are."""
    of = f"of {len(target):,} tokens were not in pre-training"
    languages = [symbol for symbol in spelt if TARGET_TOKEN.fullmatch(symbol)]
    words = [symbol for symbol in spelt if symbol not in languages]
    rest = [symbol for symbol in new if symbol not in spelt]
    if languages:
        yield f"{len(languages)} {of} ({_some(languages)}), each the row of <s>, in whose place it stands", len(languages)
    if words:
        yield f"{len(words)} {of} ({_some(words)}), each the mean of the rows of the pieces that spelt it", len(words)
    if rest:
        rounding = f"; {len(padding)} of them only round the dictionary's size up"
        yield f"{len(rest)} {of} ({_some(rest)}{rounding}), normal with standard deviation {std:.3f}", len(rest)


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


def _check_new_tokens(new: Sequence[str], target: Dictionary, *, path: Path_ | None, pretrained: Pretrained, allow: bool) -> None:
    """Refuse a dictionary that is not pre-training's.

    Args:
        new: its new tokens, without those that round up its size or name a target language.
        target, path, pretrained, allow: see :func:`token_rows`.
    """
    if allow or len(new) <= MAX_NEW_SHARE * len(target):
        return
    raise UserError(
        f"{path}: {len(new):,} of its {len(target):,} tokens are not among the {len(pretrained.symbols):,} of "
        f"{pretrained.path} ({_some(new)}): prepare the data with pre-training's SentencePiece model and dict.txt "
        "(fairseq-preprocess --srcdict), or add --allow-new-tokens"
    )


def _some(symbols: Sequence[str]) -> str:
    return ", ".join(map(repr, symbols[:5])) + (", ..." if len(symbols) > 5 else "")
