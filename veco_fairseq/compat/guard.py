# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets fairseq evaluate only literals, so that no file and no option runs code.

fairseq calls ``eval`` on strings of a checkpoint's options (``xformers_att_config``, ``adaptive_softmax_cutoff``,
wav2vec's ``conv_feature_layers``, ...) and on the lines of some data sets. :func:`install` replaces ``eval`` by
:func:`evaluate` in every module of fairseq, and :func:`veco_fairseq.options.literals.refuse_code` refuses a checkpoint as soon
as it is read. This module also closes the one place where fairseq puts a file's name into a command line of the shell.
"""

import importlib.machinery
import linecache
import sys
from importlib.abc import MetaPathFinder
from types import FrameType, ModuleType
from typing import Any, NoReturn

from fairseq.data import FastaDataset

from veco_fairseq.errors import UserError
from veco_fairseq.options.literals import NO_LITERAL, literal, shown

PACKAGES = ("fairseq", "fairseq_cli")


def evaluate(text: str, *_) -> Any:
    """Evaluate a literal, in place of fairseq's ``eval``.

    Raises:
        UserError: the text is no literal; names fairseq's line that evaluates it.
        TypeError: it is no string, an error that fairseq relies on.
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


def _wanted_by(frame: FrameType | None) -> str:
    """Return the line of fairseq that evaluates a string, above helpers such as ``eval_str_list``."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in PACKAGES and not module.endswith(".utils"):
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            return f"{module}, line {frame.f_lineno} ({source})"
        frame = frame.f_back
    return "an option"


class _Guarded(importlib.machinery.SourceFileLoader):
    """Loads a module whose ``eval`` is :func:`evaluate` from its first line on."""

    def exec_module(self, module: ModuleType) -> None:
        module.eval = evaluate  # type: ignore[attr-defined]
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
    """Refuse protein sequences; fairseq reads them by running ``cat PATH | ...`` in a shell.

    Raises:
        UserError: always.
    """
    raise UserError(f"{path}.fasta: FASTA is not read here, as fairseq gives the file's name to a shell: make the data "
                    "with fairseq-preprocess")  # fmt: skip


def install() -> None:
    """Replace ``eval`` by :func:`evaluate` in all modules of fairseq, imported now or later."""
    FastaDataset._build_index = refuse_fasta
    main = sys.modules["__main__"]
    running = getattr(main.__spec__, "name", None) or ""  # python -m fairseq_cli.validate
    for name, module in [*sys.modules.items(), (running, main)]:
        if name.partition(".")[0] in PACKAGES:
            module.eval = evaluate  # type: ignore[attr-defined]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
