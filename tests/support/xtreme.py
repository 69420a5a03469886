# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the tests of XTREME's recipes share."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY

from veco_fairseq.understanding.examples import find_files, read_examples

RECIPES = REPOSITORY / "data-bin-recipes"


WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmn"]


def recipe(task, script, *arguments, code=0, recipes=RECIPES, path=()):
    environment = {**os.environ, "VECO_SKIP_SETUP": "1", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = os.pathsep.join([*map(str, path), str(Path(sys.executable).parent), environment["PATH"]])
    command = ["bash", str(recipes / "xtreme" / task / f"{script}.sh"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == code, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout if code == 0 else result.stderr


def ids(folder, split, nlu_task):
    return {lang: [example.id for example in read_examples(path, lang, nlu_task)]
            for lang, path in find_files(folder / "data", split, nlu_task).items()}  # fmt: skip
