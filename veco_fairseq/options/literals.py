# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes sure that no option runs code: strings that fairseq evaluates must be literals."""

import ast
import re
from argparse import Namespace
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from veco_fairseq.errors import UserError

# The most items that "*" may make: fairseq's own options repeat a layer some 20 times, but "[0] * 10**12" is refused.
LONGEST = 10_000

# The options that fairseq gives to eval, in the modules that importing fairseq imports (a test looks for others).
EVALUATED = frozenset((
    # any transformer
    "adaptive_input_cutoff", "adaptive_softmax_cutoff", "character_filters", "xformers_att_config",
    "decoder_xformers_att_config", "encoder_xformers_att_config",
    # convolutions over text
    "decoder_attention", "decoder_layers", "downsample", "encoder_attention", "encoder_layers", "gated_attention",
    "pretrained", "project_input", "self_attention",
    # speech
    "conv_aggregator_layers", "conv_feature_layers", "feature_encoder_spec", "wer_args",
    # optimizers, tasks, workers
    "adafactor_eps", "adam_betas", "adamax_betas", "lamb_betas", "left_pad_source", "left_pad_target",
    "model_overrides", "pipeline_balance", "pipeline_decoder_balance", "pipeline_decoder_devices", "pipeline_devices",
    "pipeline_encoder_balance", "pipeline_encoder_devices",
))  # fmt: skip

# OmegaConf's ${resolver:arguments}, unlike ${another.option}, which fairseq's own options have. The resolver's name may come from
# another option, ${oc.${another.option}:arguments}.
RESOLVER = re.compile(r"\$\{[^{}]*[:{]")

# Errors of literal, also for texts that are too long or too deep.
NO_LITERAL = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def literal(text: str) -> Any:
    """Return the value of a Python literal, or of sums and repetitions of literals, as in ``[(512, 3)] * 20 + [(512, 2)]``.

    Raises:
        ValueError, SyntaxError, ... (NO_LITERAL): the text is something else, such as a name or a call.
    """
    return _value(ast.parse(text.strip(), mode="eval").body)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        sizes = [len(side) if hasattr(side, "__len__") else side for side in (left, right)]
        if sizes != [left, right] and sizes[0] * sizes[1] > LONGEST:
            raise ValueError(f"more than {LONGEST:,} items")
        return left * right
    return ast.literal_eval(node)


def shown(text: str) -> str:
    """Return the start of a text of unknown length and content, in one line."""
    return repr(text[:60]) + ("..." if len(text) > 60 else "")


def leaves(held: Any) -> Iterator[tuple[str, Any]]:
    """Yield what nested dicts, lists and options hold, in their order, each with its path, as ``cfg.model.dropout``."""
    seen = set()
    left = [("", held)]
    while left:
        place, value = left.pop()
        inner = vars(value) if isinstance(value, Namespace) else value
        if not isinstance(inner, (dict, list, tuple)):
            yield place, value
        elif id(inner) not in seen:
            seen.add(id(inner))
            items = inner.items() if isinstance(inner, dict) else enumerate(inner)
            left += reversed([(f"{place}.{key}" if place else str(key), item) for key, item in items])


def refuse_code(path: str | Path, state: dict[str, Any], own: Collection[str] = ()) -> None:
    """Refuse a checkpoint with code in an option that fairseq evaluates, or with an interpolation that calls a resolver.

    Args:
        path: its file.
        state: its content.
        own: the names of options that are not fairseq's, whatever they are called: they may be any text.

    Raises:
        UserError: an option of :data:`EVALUATED` is a string but no literal, or any option is one like
            ``${oc.env:HOME}``, for which OmegaConf would read the environment; names the option.
    """
    for place, value in leaves({name: state.get(name) for name in ("cfg", "args")}):
        if isinstance(value, str) and RESOLVER.search(value):
            raise UserError(
                f"{path}: refused: its option {place} is {shown(value)}, for which OmegaConf may call a resolver: "
                "do not use this file, or mend the option"
            )
        if isinstance(value, str) and place.rpartition(".")[2] in EVALUATED.difference(own):
            try:
                literal(value)
            except NO_LITERAL as error:
                raise UserError(
                    f"{path}: refused: its option {place} is {shown(value)}, which fairseq would evaluate, but only a "
                    "literal may be evaluated (numbers, strings, lists, ...): do not use this file, or mend the option"
                ) from error
