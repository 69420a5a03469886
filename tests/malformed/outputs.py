# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Outputs that are inputs, or that there is no room for."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from malformed import Case, commands

LAST = commands.LAST
SPM = "root/sentencepiece.bpe.model"
AVERAGE = ("scripts/average_checkpoints.py", "--inputs", f"mt/{LAST}", "--output", "mean.pt")
EXPORT = ("scripts/export_hf.py", "--checkpoint", f"camlm/{LAST}", "--output", "hf")
TRANSLATION = commands.export_translation("--scores", "test=scores/score.json")
CURVES = ("scripts/plot_curves.py", "a=logs/simple.log", "--output", "new.png")
LAYERS = ("scripts/plot_layers.py", "a=results/tatoeba.json", "--output", "new.png")
SCORES = ("scripts/plot_scores.py", "a/b=scores/score.json", "--output", "new.png")
TABLE = ("scripts/evaluate_xtreme.py", "table", "xnli=results/xnli.json", "--json", "new.json")
TAGGED = tuple(part.replace("raw/test.aa", "raw/words.conllu") for part in commands.label())

# Of a command: what it needs, the option of a file to write, and the files that it reads.
FILES = (
    (commands.encode(), ("raw", "root"), "--outputs", ("raw/test.aa", SPM)),
    (commands.clean(), ("raw", "root"), "--report", ("raw/train.aa", "raw/train.bb", "raw/test.bb", SPM, "clean.aa")),
    (TAGGED, ("tagging-model", "raw"), "--output", ("raw/words.conllu",)),
    (commands.bucc(), ("camlm", "bucc"), "--output", ("bucc/aa.tsv", "bucc/bb.tsv", "bucc/gold.tsv", f"camlm/{LAST}")),
    (commands.bucc(), ("camlm", "bucc"), "--json", ("bucc/aa.tsv", "bucc/gold.tsv", "pairs.tsv")),
    (commands.tatoeba(), ("camlm", "raw"), "--json", ("raw/test.aa", "raw/test.bb", f"camlm/{LAST}")),
    (commands.align(), ("camlm", "raw"), "--output", ("raw/test.aa", "raw/test.bb", f"camlm/{LAST}")),
    (commands.score(), ("raw",), "--json", ("raw/test.bb", "raw/valid.bb")),
    (commands.score_generated(), ("raw", "scores"), "--json", ("raw/test.bb", "scores/generated.out")),
    (commands.attention(), ("camlm",), "--output", (f"camlm/{LAST}",)),
    (commands.convert(), ("camlm", "root"), "--output", (f"camlm/{LAST}",)),
    (commands.convert("--dict", "root/dict.txt"), ("camlm", "root"), "--output", ("root/dict.txt",)),
    (AVERAGE, ("mt",), "--output", (f"mt/{LAST}",)),
    (CURVES, ("logs",), "--output", ("logs/simple.log",)),
    (LAYERS, ("results",), "--output", ("results/tatoeba.json",)),
    (SCORES, ("scores",), "--output", ("scores/score.json",)),
    (TABLE, ("results",), "--json", ("results/xnli.json",)),
    (TABLE, ("results",), "--plot", ("results/xnli.json", "new.json")),
    (commands.evaluate("classification"), ("classification-model", "classification"), "--json",
     ("classification/dev-aa.tsv", f"classification-model/{LAST}")),
)  # fmt: skip
# Likewise, of a folder to write: folders that hold what is read under a name that is written.
FOLDERS = (
    (commands.trim(), ("raw", "root"), "--output", ("root",)),
    (commands.prepare_with_vocabulary(), ("raw", "root"), "--output", ("root",)),
    (commands.binarize("--dict", "bin/dict.aa.txt"), ("raw", "root", "bin"), "--destdir", ("bin",)),
    (EXPORT, ("camlm",), "--output", ("camlm", "."),),
    (TRANSLATION, ("mt", "root", "scores"), "--output", ("mt", "root", "scores", ".")),
    (commands.evaluate("classification"), ("classification-model", "classification"), "--predictions",
     ("classification", ".")),
    (commands.vocap(), ("raw", "root"), "--output", ("root",)),
)  # fmt: skip
EMPTY = (*((command, needs, option) for command, needs, option, _ in (*FILES, *FOLDERS)),
         (commands.prepare(), ("raw",), "--output"), (commands.encode(), ("raw", "root"), "--inputs"),
         (commands.encode(), ("raw", "root"), "--sentencepiece"), (commands.translate(), ("mt", "bin"), "--data"),
         (commands.prepare(), ("raw",), "--mono"), (commands.tatoeba(), ("camlm", "raw"), "--pairs"))  # fmt: skip
# What writes, and how many bytes it writes about, so that it is stopped at the start, in the middle and near the end.
WRITERS = (
    (commands.encode(), ("raw", "root"), 1_000),
    (commands.trim(), ("raw", "root"), 240_000),
    (commands.prepare(), ("raw",), 240_000),
    (commands.prepare_with_vocabulary(), ("raw", "root"), 20_000),
    (commands.binarize(), ("raw", "root"), 5_000),
    (commands.clean(), ("raw", "root"), 8_000),
    (commands.vocap(), ("raw",), 240_000),
    (TAGGED, ("tagging-model", "raw"), 2_000),
    (commands.bucc(), ("camlm", "bucc"), 300),
    (commands.tatoeba(), ("camlm", "raw"), 200),
    (commands.align(), ("camlm", "raw"), 400),
    (commands.score(), ("raw",), 500),
    (commands.attention(), ("camlm", "raw"), 10_000),
    (commands.convert(), ("camlm", "root"), 40_000),
    (AVERAGE, ("mt",), 40_000),
    (EXPORT, ("camlm", "raw"), 40_000),
    (TRANSLATION, ("mt", "root", "scores"), 60_000),
    (CURVES, ("logs",), 20_000),
    (LAYERS, ("results",), 20_000),
    (SCORES, ("scores",), 20_000),
    (TABLE, ("results",), 300),
    (commands.evaluate("classification"), ("classification-model", "classification"), 300),
    (commands.evaluate("tagging"), ("tagging-model", "tagging"), 300),
    (commands.pretrain(), ("root",), 60_000),
    (commands.translation(), ("bin",), 60_000),
    (commands.nlu("classification"), ("classification", "camlm"), 60_000),
)  # fmt: skip


def with_value(command: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    """The command, with this value of an option instead of its own."""
    if option not in command:
        return (*command, option, value)
    place = command.index(option)
    return (*command[: place + 1], value, *command[place + 2 :])


def alias(how: str, path: str) -> Callable[[Path], None]:
    """Another name of a file or folder, ``alias``."""

    def damage(folder: Path) -> None:
        words = folder / "raw/words.conllu"
        if "words" in path:
            (folder / "raw/test.aa").rename(words)
        if how == "a hard link":
            os.link(folder / path, folder / "alias.conllu")
        elif how == "a symbolic link":
            (folder / "alias.conllu").symlink_to(folder / path)
        elif how == "a link of a link":
            (folder / "other").symlink_to(path)
            (folder / "alias.conllu").symlink_to("other")

    return damage


def overwriting(rng: random.Random) -> Iterator[Case]:
    """An output that is an input, by its name or another one."""
    names = {"itself": "{}", "another path": "./root/../{}", "a symbolic link": "alias.conllu", "a hard link": "alias.conllu",
             "a link of a link": "alias.conllu"}  # fmt: skip
    for command, needs, option, inputs in FILES:
        for path in inputs:
            for how, form in names.items():
                there = path.split("/")[0] in needs
                if not there and how not in ("itself", "another path"):  # another output, which is not there yet
                    continue
                where = form.format(path).replace("./root/..", f"./{needs[0]}/..")
                name = f"{' '.join(command[:2]).removeprefix('scripts/')} {option} {path}: {how}"
                yield Case("output is input", name, with_value(command, option, where), needs, alias(how, path), refused=True)
    for command, needs, option, folders in FOLDERS:
        for folder in folders:
            for how in ("itself", "a symbolic link", "another path"):
                where = {"itself": folder, "another path": f"./{needs[0]}/../{folder}"}.get(how, "alias.conllu")
                name = f"{command[0].removeprefix('scripts/')} {option} {folder}/: {how}"
                yield Case("output is input", name, with_value(command, option, where), needs, alias(how, folder), refused=True)


def misplaced() -> Iterator[Case]:
    """An output that is empty, a folder instead of a file, a file instead of a folder, or below a file."""
    for command, needs, option in EMPTY:
        name = f"{' '.join(command[:2]).removeprefix('scripts/')} {option}"
        yield Case("path is empty", name, with_value(command, option, ""), needs, alias("", command[2] if command is TAGGED else ""),
                   refused=True)  # fmt: skip
    for command, needs, option, inputs in FILES:
        for what, where in (("a folder", needs[0]), ("below a file", f"{inputs[0]}/new.conllu"), ("a device", "/dev/null")):
            name = f"{' '.join(command[:2]).removeprefix('scripts/')} {option} {inputs[0]}: {what}"
            damage = alias("", "words" if command is TAGGED else "")
            yield Case("output is of another kind", name, with_value(command, option, where), needs, damage, refused=True)


def full() -> Iterator[Case]:
    """A disk that is full after so many bytes of a file, and standard output that leads to a full one."""
    for command, needs, size in WRITERS:
        for limit in (0, size // 10, size // 2):
            name = f"{' '.join(command[:2]).removeprefix('scripts/')}: after {limit} bytes"
            damage = alias("", "words" if command is TAGGED else "")
            yield Case("full disk", name, ("tests/malformed/on_full_disk.py", str(limit), *command), needs, damage,
                       leaves=("ckpt/*", "pairs.tsv", "predicted/*", "new/**", "new/*/*/*", "new/*/*", "new/*", ".clean.*"))  # fmt: skip


def cases(rng: random.Random, good: Path) -> Iterator[Case]:
    """All of them."""
    yield from overwriting(rng)
    yield from misplaced()
    yield from full()
