# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How a change to fairseq is made, and taken back."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import getattr_static
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, NamedTuple


class Patch(NamedTuple):
    """One change.

    Attributes:
        target: the name in fairseq, "module:attribute". Among the modules of commands (``fairseq_cli``), only that of
            the running command is changed.
        replacement: "module:attribute", below ``veco_fairseq`` if it begins with a dot.
        reason: what fairseq does without it.
        wraps: whether the replacement is called with the original, and returns the new function.
    """

    target: str
    replacement: str
    reason: str
    wraps: bool = False


_originals: dict[str, Any] = {}


def undo(patches: Iterable[Patch]) -> None:
    """Give fairseq its own functions back."""
    for patch in patches:
        *owners, name = patch.target.replace(":", ".").split(".")
        setattr(resolve_name(".".join(owners)), name, _originals[patch.target])


@contextmanager
def without(patches: Sequence[Patch]) -> Iterator[None]:
    """Let fairseq have its own functions back for some time."""
    undo(patches)
    try:
        yield
    finally:
        for patch in patches:
            make(patch, replacement_of(patch))


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put a value in the place of an attribute of a module, class or object, in this block alone.

    All threads see it, and those that replace the same attribute must take turns: of two blocks that overlap, the one that ends
    last would leave the other's value there.
    """
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def replacement_of(patch: Patch) -> Any:
    """Return what a change puts in the place of its target."""
    return resolve_name(f"veco_fairseq{patch.replacement}" if patch.replacement.startswith(".") else patch.replacement)


def make(patch: Patch, replacement: Any) -> None:
    """Replace the target of a change."""
    module, path = patch.target.split(":")
    *owners, name = path.split(".")
    for owner in running(module) if module.startswith("fairseq_cli.") else [resolve_name(module)]:
        for part in owners:
            owner = getattr(owner, part)
        _originals.setdefault(patch.target, getattr_static(owner, name))
        new = replacement(getattr(owner, name)) if patch.wraps else replacement
        is_static = isinstance(getattr_static(owner, name), staticmethod)
        setattr(owner, name, staticmethod(new) if is_static else new)


def running(command: str) -> Iterator[ModuleType]:
    """Yield the module of a command where it was imported, under its name or as ``__main__`` (``python -m``)."""
    if command in sys.modules:
        yield sys.modules[command]
    main = sys.modules["__main__"]
    if getattr(main.__spec__, "name", None) == command:
        yield main
