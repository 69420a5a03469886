# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Finds the files of a task in a folder, and reads their examples."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from veco_fairseq.errors import UserError
from veco_fairseq.understanding.examples import Example
from veco_fairseq.understanding.pairs import read_sentence_pairs
from veco_fairseq.understanding.questions import read_questions
from veco_fairseq.understanding.tagged import read_conllu, read_tagged_lines

READERS: dict[str, dict[str, Callable[[Path, str], Iterator[Example]]]] = {
    "classification": {"tsv": read_sentence_pairs},
    "tagging": {"conllu": read_conllu, "tsv": read_tagged_lines},
    "span": {"json": read_questions},
}
NLU_TASKS = tuple(READERS)
SPLITS = {"valid": ("valid", "dev")}  # other names of a split


def find_files(folder: Path, split: str, nlu_task: str) -> dict[str, Path]:
    """Return language -> file for the files ``SPLIT-LANG.tsv`` (or .conllu, .json; plain, .gz or .xz) in a folder."""
    names = "|".join(map(re.escape, SPLITS.get(split, (split,))))
    suffixes = "|".join(READERS[nlu_task])
    pattern = re.compile(rf"(?:{names})-([\w-]+)\.(?:{suffixes})(?:\.[gx]z)?")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = pattern.fullmatch(path.name)
        if match:
            if match[1] in found:
                raise UserError(f"{path}: and {found[match[1]].name} are both the {split} set of {match[1]}: keep one")
            found[match[1]] = path
    return found


def read_examples(path: Path, lang: str, nlu_task: str) -> list[Example]:
    """Read all examples of a file.

    Raises:
        UserError: the file is bad (see the readers), or empty.
    """
    suffix = path.name.removesuffix(".gz").removesuffix(".xz").rpartition(".")[2]
    if suffix not in READERS[nlu_task]:
        raise UserError(f"{path}: is not a file of --nlu-task {nlu_task}: *.{', *.'.join(READERS[nlu_task])}, plain, .gz or .xz")
    examples = list(READERS[nlu_task][suffix](path, lang))
    if not examples:
        raise UserError(f"{path}: has no examples")
    return examples
