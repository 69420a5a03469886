# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""No file and no option runs code: where fairseq evaluates a string, only a literal may stand.

fairseq calls ``eval`` on strings of a checkpoint's options (``xformers_att_config``, ``adaptive_softmax_cutoff``,
wav2vec's ``conv_feature_layers``, ...) and on the lines of some data sets. :func:`install` puts :func:`evaluate` in the
place of that name in every module of fairseq, and :func:`check_options` refuses a checkpoint as soon as it is read.
It also closes the one place where fairseq puts a file's name into a command line of the shell.
"""

import ast
import importlib.machinery
import linecache
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from fairseq.data import FastaDataset

from veco_fairseq.errors import UserError

PACKAGES = ("fairseq", "fairseq_cli")
# What a literal may grow to by "*": fairseq's own options repeat a layer some 20 times, and "[0] * 10**12" must not.
LONGEST = 10_000

# The options that fairseq hands to eval, in the modules that importing fairseq imports (a test looks for others).
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

# OmegaConf's ${resolver:arguments}, as against ${another.option}, which fairseq's own options have.
RESOLVER = re.compile(r"\$\{[^{}]*:")

# What literal raises, on texts that are too long or too deep as well.
NO_LITERAL = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def literal(text: str) -> Any:
    """The value of a Python literal; of sums and repetitions of such, too, as in ``[(512, 3)] * 20 + [(512, 2)]``.

    Raises:
        ValueError, SyntaxError, ... (NO_LITERAL): it is something else, such as a name or a call.
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


def evaluate(text: str, *_) -> Any:
    """``eval`` for fairseq: of literals alone.

    Raises:
        UserError: it is no literal; the message names fairseq's line that wants it.
        TypeError: it is no string, which fairseq counts on.
    """
    if not isinstance(text, str):
        raise TypeError("eval() arg 1 must be a string")
    try:
        return literal(text)
    except NO_LITERAL as error:
        raise UserError(
            f"{_wanted_by(sys._getframe(1))}: {shown(text)} is no literal (numbers, strings, lists, ...), and nothing "
            "else is evaluated: give one"
        ) from error


def shown(text: str) -> str:
    """The start of a text of unknown length and contents, in one line."""
    return repr(text[:60]) + ("..." if len(text) > 60 else "")


def _wanted_by(frame: FrameType | None) -> str:
    """The line of fairseq for which a string is evaluated, past its helpers (``eval_str_list`` and such)."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in PACKAGES and not module.endswith(".utils"):
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            return f"{module}, line {frame.f_lineno} ({source})"
        frame = frame.f_back
    return "an option"


class _Guarded(importlib.machinery.SourceFileLoader):
    """The loader of a module whose ``eval`` is :func:`evaluate` from its first line on."""

    def exec_module(self, module: ModuleType) -> None:
        module.eval = evaluate
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Guards the modules of fairseq that are imported later."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Guarded(spec.loader.name, spec.loader.path)
        return spec


def refuse_fasta(dataset: FastaDataset, path: str) -> NoReturn:
    """In place of fairseq's reading of protein sequences, which runs ``cat PATH | ...`` in a shell.

    Raises:
        UserError: always.
    """
    raise UserError(f"{path}.fasta: FASTA is not read here, as fairseq gives the file's name to a shell: make the data "
                    "with fairseq-preprocess")  # fmt: skip


def install() -> None:
    """Put :func:`evaluate` in the place of ``eval`` in all of fairseq: in what is imported, and what will be."""
    FastaDataset._build_index = refuse_fasta
    main = sys.modules["__main__"]
    running = getattr(main.__spec__, "name", None) or ""  # python -m fairseq_cli.validate
    for name, module in [*sys.modules.items(), (running, main)]:
        if name.partition(".")[0] in PACKAGES:
            module.eval = evaluate
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def options_of(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The options in a checkpoint's ``cfg`` and ``args``, each with its place, as ``cfg.model.dropout``."""
    left = [(name, state.get(name)) for name in ("args", "cfg")]
    seen = set()
    while left:
        place, value = left.pop()
        inner = vars(value) if isinstance(value, Namespace) else value
        if not isinstance(inner, (dict, list, tuple)):
            yield place, value
        elif id(inner) not in seen:
            seen.add(id(inner))
            items = inner.items() if isinstance(inner, dict) else enumerate(inner)
            left += [(f"{place}.{key}", item) for key, item in items]


def check_options(path: str | Path, state: dict[str, Any]) -> None:
    """Refuse a checkpoint with code where fairseq evaluates an option, or with an interpolation that calls a resolver.

    Raises:
        UserError: an option of :data:`EVALUATED` holds a string that is no literal, or any option one such as
            ``${oc.env:HOME}``, for which OmegaConf would read the environment; it is named.
    """
    for place, value in options_of(state):
        if isinstance(value, str) and RESOLVER.search(value):
            raise UserError(
                f"{path}: refused: its option {place} is {shown(value)}, for which OmegaConf would call a resolver: "
                "do not use this file, or mend the option"
            )
        if isinstance(value, str) and place.rpartition(".")[2] in EVALUATED:
            try:
                literal(value)
            except NO_LITERAL as error:
                raise UserError(
                    f"{path}: refused: its option {place} is {shown(value)}, which fairseq would evaluate, and only "
                    "a literal may be evaluated (numbers, strings, lists, ...): do not use this file, or mend the option"
                ) from error
