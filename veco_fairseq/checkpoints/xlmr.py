# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Starts a VECO from XLM-R: from fairseq's checkpoints, and Hugging Face's folders and files."""

import re
from argparse import Namespace
from collections.abc import Iterable, Mapping

import torch
from fairseq.data import Dictionary
from torch import Tensor

from veco_fairseq.checkpoints.mapping import Group
from veco_fairseq.checkpoints.names import CROSS_ATTENTION
from veco_fairseq.checkpoints.reading import option_differences
from veco_fairseq.checkpoints.xlmr_files import EMBEDDINGS, HEAD_BIAS, POSITIONS, TIED_HEAD, XlmR, read_xlmr
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_


def init_from(encoder: torch.nn.Module, dictionary: Dictionary, heads: int, path: Path_) -> list[Group]:
    """Start a VECO from XLM-R: copy everything but the cross-attention, embeddings and LM head bias by token.

    Args:
        encoder: a :class:`veco_fairseq.models.veco.VecoEncoder`, newly initialised.
        dictionary: its tokens, with ``<mask>``.
        heads: the number of its attention heads, which no tensor shows.
        path: see :func:`read_xlmr`.

    Returns:
        What is copied, left out and new, for the report.

    Raises:
        UserError: see :func:`read_xlmr`; or XLM-R has another size or activation, or hardly any of the same tokens.
    """
    return copy_xlmr(read_xlmr(path), encoder, dictionary, heads)


@torch.no_grad()
def copy_xlmr(xlmr: XlmR, encoder: torch.nn.Module, dictionary: Dictionary, heads: int) -> list[Group]:
    """Do what :func:`init_from` does, with an XLM-R that has been read."""
    for flag, theirs, mine in option_differences(Namespace(activation_fn=xlmr.activation), encoder.args):
        raise UserError(f"{xlmr.path}: has {flag} {theirs}, here {mine}: give {flag} {theirs}, without which it is another model")
    ours = {name: p for name, p in encoder.named_parameters() if not CROSS_ATTENTION.match(f"encoder.{name}")}
    source = xlmr.weights
    if not any(name.startswith("lm_head.") for name in source):
        ours = {name: p for name, p in ours.items() if not name.startswith("lm_head.")}
    if TIED_HEAD in ours and EMBEDDINGS in source:  # a parameter only where somebody's own head is not tied to the embeddings
        source[TIED_HEAD] = source[EMBEDDINGS]
    _check_sizes(xlmr, ours, heads)
    row_of = {symbol: row for row, symbol in enumerate(xlmr.symbols)}
    shared = [symbol for symbol in dictionary.symbols if symbol in row_of]
    if len(row_of) != (rows := len(source[EMBEDDINGS])):
        raise UserError(
            f"{xlmr.path}: has {rows:,} rows of embeddings, but the vocabulary beside it {len(row_of):,} tokens: put there the "
            "files of its own tokenizer, added tokens too (or its dict.txt)"
        )
    if len(shared) <= dictionary.nspecial + 1:
        raise UserError(
            f"{xlmr.path}: shares no token with the data's dict.txt: prepare the data with XLM-R's SentencePiece model and "
            "dictionary"
        )
    here = torch.tensor([dictionary.index(symbol) for symbol in shared])
    there = torch.tensor([row_of[symbol] for symbol in shared])
    for name, parameter in ours.items():
        if name in (EMBEDDINGS, HEAD_BIAS, TIED_HEAD):
            parameter[here] = source[name][there]
        else:
            parameter.copy_(source[name][: len(parameter)])  # as many positions as the model has
    return list(_report(xlmr, encoder, ours, shared=len(shared), tokens=len(dictionary)))


def _check_sizes(xlmr: XlmR, ours: Mapping[str, Tensor], heads: int) -> None:
    """Refuse an XLM-R whose size is not the model's."""
    problems = [] if heads == xlmr.heads else [f"{xlmr.heads} attention heads, here {heads}"]
    for name in sorted(ours.keys() | xlmr.weights.keys()):
        mine, theirs = (tuple(t[name].shape) if name in t else None for t in (ours, xlmr.weights))
        if mine is None or theirs is None:
            problems.append(f"{name} is {'there' if theirs else 'here'} alone")
        elif len(mine) != len(theirs):
            problems.append(f"{name} {theirs}, here {mine}")
        elif name == POSITIONS and theirs[0] < mine[0]:
            problems.append(f"{theirs[0]} positions, here {mine[0]} (lower --max-positions)")
        elif mine[1:] != theirs[1:] or (name not in (EMBEDDINGS, POSITIONS, HEAD_BIAS, TIED_HEAD) and mine != theirs):
            problems.append(f"{name} {theirs}, here {mine}")
    if problems:
        more = f"; and {len(problems) - 3} more differences" if len(problems) > 3 else ""
        raise UserError(
            f"{xlmr.path}: has another size: {'; '.join(problems[:3])}{more}: choose the --arch of its size "
            "(veco_base for XLM-R base, veco_large for large)"
        )


def _report(xlmr: XlmR, encoder, ours: Mapping[str, Tensor], *, shared: int, tokens: int) -> Iterable[Group]:
    dim = ours[EMBEDDINGS].size(1)
    yield Group("copied", "token embeddings", f"{shared:,} of {tokens:,} tokens, matched by token", 0, shared * dim)
    for what, pattern in (
        ("position table and embedding LayerNorm", r"sentence_encoder\.(embed_positions|layernorm_embedding)\."),
        ("self-attention, FFN and their LayerNorms", r"sentence_encoder\.layers\."),
        ("LM head's dense, norm and bias", r"lm_head\."),
    ):
        tensors = [tensor for name, tensor in ours.items() if re.match(pattern, name)]
        if tensors:
            yield Group.of("copied", what, str(xlmr.path), tensors)
    if xlmr.left_out:
        some = ", ".join(list(xlmr.left_out)[:2]) + (", ..." if len(xlmr.left_out) > 2 else "")
        yield Group("dropped", some, "no place in pre-training", len(xlmr.left_out), sum(xlmr.left_out.values()))
    unused = len(xlmr.symbols) - shared
    if unused:
        yield Group("dropped", "rows of the token embeddings", "tokens that the data's dict.txt lacks", 0, unused * dim)
    if tokens > shared:
        yield Group("new", "rows of the token embeddings", "tokens that XLM-R lacks", 0, (tokens - shared) * dim)
    new = [p for name, p in encoder.named_parameters() if name not in ours]
    yield Group.of("new", "cross-attention" if HEAD_BIAS in ours else "cross-attention and LM head", "random", new)
