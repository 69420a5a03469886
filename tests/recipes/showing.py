# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Commands of the table as a README shows them."""

import re
import shlex


def show(told: str, names: dict[str, str]) -> list[str]:
    """The trainings of a part of the table, or what it retrieves by, as a README shows them: wrapped, below each other."""
    blocks = []
    for line in told.splitlines():
        for name, instead in names.items():
            line = re.sub(rf"\b{name}" if name.isupper() else name, lambda _, instead=instead: instead, line)
        words = ["$model" if word == "$model" else shlex.quote(word) for word in shlex.split(line)]
        if words[0] != "fairseq-train" and "scripts/retrieve.py" not in words:
            continue
        rows = ["    "]
        for group in grouped(words):
            if len(rows[-1]) + len(group) > 110:
                rows[-1] += "\\"
                rows.append(" " * 8)
            rows[-1] += f"{group} "
        blocks.append("\n".join(row.rstrip() for row in rows) + "\n")
    return blocks


def grouped(words: list[str]) -> list[str]:
    """Options with their values."""
    groups = [words[0]]
    for word in words[1:]:
        if word.startswith("--") or not groups[-1].startswith("--"):
            groups.append(word)
        else:
            groups[-1] += f" {word}"
    return groups
