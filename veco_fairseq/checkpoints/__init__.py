# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checkpoints: read, convert, average, import and export them; see docs/api.md."""

from importlib import import_module
from typing import Any

# Loaded when first used, since reading a checkpoint needs no model.
_MODULES = {
    "reading": ("read_checkpoint",),
    "seq2seq": ("convert_to_seq2seq", "report_lines"),
    "averaging": ("EPOCH", "UPDATE", "average_checkpoints", "last_checkpoints"),
    "release": ("back_to_pretraining", "import_release"),
    "huggingface": ("export_hf",),
    "translation": ("read_translation",),
    "bart": ("export_translation", "largest_translation_difference"),
    "ct2": ("export_ct2", "largest_ct2_difference"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
