# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every command on the good files as they are, which must end well: or a refusal of damaged ones would mean nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from malformed import Case, commands

TEXT = "raw/test.aa"  # for standard input
COMMANDS = {
    "pretrain": (commands.pretrain(), ("root",)),
    "inspect": (commands.inspect(), ("root",)),
    "translation": (commands.translation(), ("bin",)),
    "generate": (commands.generate(), ("bin", "mt")),
    "validate": (commands.validate(), ("bin", "mt")),
    "interactive": (commands.interactive(), ("bin", "mt", "raw")),
    "translate": (commands.translate(), ("bin", "mt", "raw")),
    "preprocess": (commands.preprocess(), ("pieces",)),
    "prepare": (commands.prepare(), ("raw",)),
    "prepare with": (commands.prepare_with_vocabulary(), ("raw", "root")),
    "encode": (commands.encode(), ("raw", "root")),
    "clean": (commands.clean(), ("raw", "root")),
    "binarize": (commands.binarize(), ("raw", "root")),
    **{f"nlu {kind}": (commands.nlu(kind), (kind, "camlm")) for kind in ("classification", "tagging", "span")},
    **{f"evaluate {kind}": (commands.evaluate(kind), (kind, f"{kind}-model"))
       for kind in ("classification", "tagging", "span")},
    "label": (commands.label(), ("raw", "tagging-model")),
    "align": (commands.align("--gold", "links/gold"), ("raw", "camlm", "links")),
    "tatoeba": (commands.tatoeba(), ("raw", "camlm")),
    "bucc": (commands.bucc(), ("bucc", "camlm")),
    "score": (commands.score(), ("raw",)),
    "score generated": (commands.score_generated(), ("raw", "scores")),
    "trim": (commands.trim(), ("raw", "root")),
    "vocap": (commands.vocap(), ("raw",)),
    "alp": (commands.measure_alp(), ("raw", "root")),
    "attention": (commands.attention(), ("camlm",)),
    "convert": (commands.convert(), ("camlm",)),
    "init": (commands.pretrain("--init-from", "hf"), ("root", "hf")),
    "table": (commands.table(), ("results",)),
    "layers": (commands.layers(), ("results",)),
    "curves": (commands.curves("logs/simple.log", "logs/json.log"), ("logs",)),
    "bars": (commands.bars(), ("scores",)),
    "export": (commands.export_translation("--scores", "test=scores/score.json"), ("mt", "root", "scores")),
}  # fmt: skip


def cases(rng: random.Random, good: Path) -> Iterator[Case]:
    for name, (command, needs) in COMMANDS.items():
        stdin = TEXT if name in ("interactive", "translate") else None
        yield Case("good files", name, command, needs, accepted=True, stdin=stdin)
