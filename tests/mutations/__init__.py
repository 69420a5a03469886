# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How much the tests notice: small changes are made to the code one at a time, and the tests that reach each are run.

``python -m mutations --out DIR`` (in tests/, with PYTHONPATH=..:.) does it, after
``pip install "cosmic-ray>=8.4" "coverage>=7.13"``.
Half of the changes is drawn by a seed from all that cosmic-ray can make (:mod:`mutations.by_tool`). The other half,
by_hand.jsonl, was written from the code without a look at the tests. reasons.json has those that make no difference.
"""

import difflib
import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FOLDER = Path(__file__).resolve().parent

# Areas, and where their code is; the first pattern that a file matches counts.
AREAS: dict[str, tuple[str, ...]] = {
    "criterions": ("veco_fairseq/criterions/*.py",),
    "modules": ("veco_fairseq/modules/*.py", "veco_fairseq/optim/*.py"),
    "models": ("veco_fairseq/models/*.py",),
    "data": ("veco_fairseq/data/*.py", "veco_fairseq/data/prepare/*.py", "veco_fairseq/data/cleaning/*.py"),
    "tasks": ("veco_fairseq/tasks/*.py", "veco_fairseq/cost/*.py"),
    "checkpoints": ("veco_fairseq/checkpoints/*.py",),
    "vocabulary": ("veco_fairseq/vocab/*.py",),
    "understanding": ("veco_fairseq/understanding/*.py",),
    "retrieval and alignment": ("veco_fairseq/retrieval/*.py", "veco_fairseq/alignment/*.py", "veco_fairseq/inference/*.py"),
    "fairseq": ("veco_fairseq/compat/*.py", "veco_fairseq/options/*.py"),
    "commands": ("veco_fairseq/commands/*.py", "scripts/*", "veco_fairseq/*.py"),
    "recipes": ("data-bin-recipes/**/*.sh", "data-bin-recipes/**/*.py"),
}


class Change(NamedTuple):
    """A change to one file.

    Attributes:
        area: one of :data:`AREAS`.
        file: relative to the repository.
        code: the file's new text.
        lines: those that change, from 1 on, in the file as it is.
        what: what a user would get wrong, or the tool's name for the change.
        origin: "hand" or "tool".
    """

    area: str
    file: str
    code: str
    lines: tuple[int, ...]
    what: str
    origin: str

    @property
    def diff(self) -> list[str]:
        """The lines that change, as ``- old`` and ``+ new``."""
        old = (REPOSITORY / self.file).read_text(encoding="utf-8").splitlines()
        changed = difflib.unified_diff(old, self.code.splitlines(), n=0, lineterm="")
        return [line for line in list(changed)[2:] if not line.startswith("@@")]

    @property
    def key(self) -> str:
        """Of the file and the lines that change, wherever they stand."""
        return hashlib.sha256("\n".join([self.file, *self.diff]).encode()).hexdigest()[:12]


def by_hand() -> Iterator[Change]:
    """The changes of by_hand.jsonl; those whose text is not in the code any more are left out, with a warning."""
    for number, line in enumerate((FOLDER / "by_hand.jsonl").read_text(encoding="utf-8").splitlines(), 1):
        change = json.loads(line)
        file = REPOSITORY / change["file"]
        code = file.read_text(encoding="utf-8") if file.exists() else ""
        if code.count(change["old"]) != 1:
            warnings.warn(f"by_hand.jsonl, line {number}: {change['file']} does not have {change['old']!r} once: mend the line")
            continue
        first = code[: code.index(change["old"])].count("\n") + 1
        lines = tuple(range(first, first + change["old"].count("\n") + 1))
        code = code.replace(change["old"], change["new"])
        yield Change(change["area"], change["file"], code, lines, change["what"], "hand")


def reasons() -> dict[str, str]:
    """Key -> why the change makes no difference to a user."""
    return {entry["key"]: entry["why"] for entry in json.loads((FOLDER / "reasons.json").read_text(encoding="utf-8"))}
