# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Commands of the table as a README shows them."""

import re
import shlex
from collections.abc import Iterator

from recipes.cases import TRANSLATION, UNDERSTANDING


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


def shown() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Of each README the call whose commands it shows, and what stands there in place of the test's folders."""
    names = {"REPO/": "", "MODEL": "$model"}
    for recipe, step in (("toy", "train"), ("toy", "finetune"), ("multi30k", "train"), ("multi30k", "finetune"),
                         ("many-to-many", "train"), ("many-to-many", "finetune"), ("multilingual", "train")):  # fmt: skip
        folder = {"multi30k": "multi30k.en-de"}.get(recipe, recipe)
        yield recipe, f"{recipe}/{step} --out OUT", {**names, "OUT": f"data-bin/{folder}"}
    shapes = {"iwslt14.de-en": "--task translation --arch veco_mt_small --decoder-layers 6"}
    large = "--task translation --arch veco_mt_large --decoder-layers 6"
    for task in TRANSLATION.split():
        case = f"GPUS=1 SHAPE={shlex.quote(shapes.get(task, large))} {task}/finetune --out OUT --pretrained MODEL"
        yield task, case, {**names, "OUT": f"data-bin/{task}"}
    for task in UNDERSTANDING.split():
        case = f"GPUS=1 xtreme/{task}/finetune --out OUT --pretrained MODEL --lrs 1e-5 --epochs 3 --batches 32"
        yield f"xtreme/{task}", case, {**names, "OUT": f"data-bin/xtreme/{task}"}
    for task in ("bucc", "tatoeba"):
        yield (
            f"xtreme/{task}",
            f"xtreme/{task}/evaluate --out OUT --pretrained MODEL",
            {**names, "OUT": f"data-bin/xtreme/{task}"},
        )
