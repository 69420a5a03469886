# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A property test: whatever a command is given, it ends well or in one line, and destroys nothing.

``python -m malformed`` (with ``tests`` on PYTHONPATH; ``--help``) makes a set of good files (:mod:`malformed.good`),
damages a copy of them for each :class:`Case`, runs one command in it, and looks at what comes of it
(:mod:`malformed.running`). It prints how many cases of each kind ended with exit code 0, in one line, or failed.

A case passes if its command

- ends with exit code 0, its ``check`` has nothing to say against the result, and no temporary file is left; or
- ends with another exit code within a minute, with one line on standard error (the usage of argparse, lines of logs
  and warnings aside) in which one of ``names`` stands, and without a new file;
- and in both cases every file that was there before is byte for byte what it was.

To add cases, write a module of this package with a function ``cases(rng, good)`` that yields them, and name it in
``malformed.__main__.SOURCES``. ``rng`` is a ``random.Random`` of a seed: draw everything from it. ``good`` is the folder
of good files, to be looked at alone. The cases of a source must not depend on each other, and ``kind`` and ``name``
say what was tried::

    def cases(rng, good):
        for value in ("0", "-1", "nan"):
            yield Case("options", f"camlm --dropout {value}", commands.pretrain("--dropout", value), ("root",),
                       refused=True)

:mod:`malformed.commands` has the command lines of all commands on the good files; :mod:`malformed.damage` the ways to
damage bytes and texts, and :func:`malformed.damage.each`, which makes cases of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# fairseq's commands, before any module here brings the plug-in: as where --user-dir does
for program in ("train", "generate", "interactive", "validate", "preprocess"):
    importlib.import_module(f"fairseq_cli.{program}")


@dataclass
class Result:
    """What a command left: its exit code, what it printed, and the folder that it ran in."""

    code: int
    out: str
    err: str
    folder: Path


@dataclass
class Case:
    """One command on damaged files, or with a damaged option.

    Attributes:
        kind: its row in the table, such as "dict.txt".
        name: what was damaged, and how; unique within the kind.
        command: the program (``fairseq-train``, ``scripts/score.py``) and its arguments; it runs in a folder of its own
            that holds what ``needs`` names, so that all paths are relative.
        needs: folders of the good files (:data:`malformed.good.RECIPES`) to be copied there.
        damage: makes the change in the folder, before the command runs.
        refused: exit code 0 is a failure.
        accepted: any other exit code is a failure.
        check: what is wrong with a result of exit code 0, or None.
        names: the error line must hold one of these; none: any line will do.
        leaves: patterns (of :meth:`pathlib.PurePath.match`) of files that may be new after an error, such as what a
            training saved before it came to the damage.
        changes: patterns of files that the command may change, such as a checkpoint that a training goes on from.
        stdin: a file of the folder for standard input.
        environment: variables for the command.
    """

    kind: str
    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    damage: Callable[[Path], None] = lambda folder: None
    refused: bool = False
    accepted: bool = False
    check: Callable[[Result], str | None] = lambda result: None
    names: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    stdin: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
