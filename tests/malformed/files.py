# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Cases of damaged files: every kind of file that a command reads."""

from __future__ import annotations

import random
from collections.abc import Iterator

from malformed import Case, commands


def cases(rng: random.Random) -> Iterator[Case]:
    for name in ("camlm", "inspect"):
        pass
    yield Case("good", "pretrain", commands.pretrain(), ("root",), accepted=True)
    yield Case("good", "inspect", commands.inspect(), ("root",), accepted=True)
    yield Case("good", "translation", commands.translation(), ("bin",), accepted=True)
    yield Case("good", "generate", commands.generate(), ("bin", "mt"), accepted=True)
    yield Case("good", "validate", commands.validate(), ("bin", "mt"), accepted=True)
    yield Case("good", "interactive", commands.interactive(), ("bin", "mt", "raw"), accepted=True, stdin="raw/test.aa")
    yield Case("good", "translate", commands.translate(), ("bin", "mt", "raw"), accepted=True, stdin="raw/test.aa")
    yield Case("good", "preprocess", commands.preprocess(), ("pieces",), accepted=True)
    yield Case("good", "prepare", commands.prepare(), ("raw",), accepted=True)
    yield Case("good", "prepare with", commands.prepare_with_vocabulary(), ("raw", "root"), accepted=True)
    yield Case("good", "encode", commands.encode(), ("raw", "root"), accepted=True)
    for kind in ("classification", "tagging", "span"):
        yield Case("good", f"nlu {kind}", commands.nlu(kind), (kind, "camlm"), accepted=True)
        yield Case("good", f"evaluate {kind}", commands.evaluate(kind), (kind, f"{kind}-model"), accepted=True)
    yield Case("good", "label", commands.label(), ("raw", "tagging-model"), accepted=True)
    yield Case("good", "align", commands.align("--gold", "links/gold"), ("raw", "camlm", "links"), accepted=True)
    yield Case("good", "tatoeba", commands.tatoeba(), ("raw", "camlm"), accepted=True)
    yield Case("good", "bucc", commands.bucc(), ("bucc", "camlm"), accepted=True)
    yield Case("good", "score", commands.score(), ("raw",), accepted=True)
    yield Case("good", "score generated", commands.score_generated(), ("raw", "scores"), accepted=True)
    yield Case("good", "trim", commands.trim(), ("raw", "root"), accepted=True)
    yield Case("good", "vocap", commands.vocap(), ("raw",), accepted=True)
    yield Case("good", "alp", commands.measure_alp(), ("raw", "root"), accepted=True)
    yield Case("good", "attention", commands.attention(), ("camlm",), accepted=True)
    yield Case("good", "convert", commands.convert(), ("camlm",), accepted=True)
