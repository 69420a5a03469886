# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Commands and recipes whose Python programs start at once: each is a fork, made by forks.py, of a process that waits for them."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from conftest import REPOSITORY

# What stands on the PATH for a program: it hands over its folder, environment, words and standard input, and waits.
PROGRAM = f"""#!/usr/bin/env bash
set -euo pipefail
program=${{0##*/}}
if [[ $program == python ]]; then
    [[ ${{1:-}} == *.py ]] || exec {sys.executable} "$@"
else
    set -- "$program" "$@"
fi
folder=$(mktemp -d "$HANDED/XXXXXX")
cat >"$folder/in"
env -0 >"$folder/environment"
printf '%s\\0' "$PWD" "$@" >"$folder/command"
mkfifo "$folder/answer"
echo "$folder" >"$HANDED/asked"
read -r code <"$folder/answer"
cat "$folder/out"
cat "$folder/err" >&2
exit "$code"
"""
PROGRAMS = (
    "python",
    "veco",
    "torchrun",
    *(f"fairseq-{name}" for name in ("train", "preprocess", "generate", "interactive", "validate")),
)


class Forks:
    """A process that makes forks, and the programs that ask it for one. A signal to such a program does not reach its fork.

    Attributes:
        programs: their folder.
        added: what the environment of a shell has beyond this process's.
    """

    def __init__(self, folder: Path):
        self.programs, handed = folder / "programs", folder / "handed"
        self.programs.mkdir()
        handed.mkdir()
        for name in PROGRAMS:
            (self.programs / name).write_text(PROGRAM)
            (self.programs / name).chmod(0o755)
        os.mkfifo(handed / "asked")
        imported = os.pathsep.join((str(REPOSITORY / "tests/site"), str(REPOSITORY)))
        self.added = {"PYTHONPATH": imported, "OMP_NUM_THREADS": "1", "VECO_SKIP_SETUP": "1", "HANDED": str(handed)}
        forks, environment = (
            [sys.executable, REPOSITORY / "tests/support/forks.py", handed / "asked"],
            {**os.environ, **self.added},
        )
        self.process = subprocess.Popen(forks, stdin=subprocess.PIPE, env=environment, cwd=folder)

    def bash(self, *words, path=(), **options) -> subprocess.CompletedProcess:
        """Run bash with these arguments; ``path`` comes before all else on the PATH."""
        folders = (*path, self.programs, Path(sys.executable).parent, os.environ["PATH"])
        environment = {**os.environ, **self.added, "PATH": os.pathsep.join(map(str, folders))}
        return subprocess.run(["bash", *map(str, words)], env=environment, stdin=subprocess.DEVNULL, text=True,
                              timeout=600, **options)  # fmt: skip

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@cache
def all_tests() -> tuple[Forks, Path]:
    """Those of all tests of this process, and a repository without .venv, whose programs would come first."""
    folder = Path(tempfile.mkdtemp(prefix="veco-tests-"))
    (folder / "veco_fairseq").symlink_to(REPOSITORY / "veco_fairseq")
    for name in ("scripts", "data-bin-recipes"):
        shutil.copytree(REPOSITORY / name, folder / name)
    forks = Forks(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(forks.close)
    return forks, folder


def recipe(script: str, *arguments, code: int = 0, recipes: Path | None = None, path=()) -> str:
    """What a script of a recipe (``toy/prepare``) prints; if it is to end with another code than 0, on standard error.

    Args:
        recipes: a folder of recipes in place of the project's.
        path: folders of programs that stand for others.
    """
    forks, repository = all_tests()
    result = forks.bash((recipes or repository / "data-bin-recipes") / f"{script}.sh", *arguments, path=path, capture_output=True)
    assert result.returncode == code, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout if code == 0 else result.stderr
