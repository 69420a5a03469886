# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the tests of XTREME's recipes share."""

from conftest import REPOSITORY
from support import starting

from veco_fairseq.understanding.reading import find_files, read_examples

RECIPES = REPOSITORY / "data-bin-recipes"


WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmn"]


def recipe(task, script, *arguments, **options):
    return starting.recipe(f"xtreme/{task}/{script}", *arguments, **options)


def ids(folder, split, nlu_task):
    return {lang: [example.id for example in read_examples(path, lang, nlu_task)]
            for lang, path in find_files(folder / "data", split, nlu_task).items()}  # fmt: skip
