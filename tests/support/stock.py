# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A small stock translation model, trained by commands with the plug-in."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY
from support.here import run_here

COMMANDS = Path(sys.executable).parent


def run(command: str, *arguments, **how) -> subprocess.CompletedProcess:
    """Run a fairseq command with the plug-in, in a folder of the test's own choice (``cwd``).

    In a fork of this process, unless it is to have an environment of its own (``env``) or another thing of a process.
    """
    words = [str(word) for word in (COMMANDS / command, *arguments, "--user-dir", REPOSITORY / "veco_fairseq", "--cpu")]
    if set(how) == {"cwd"}:
        return run_here(words, **how)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **how.pop("env", {})}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, **how)


def train(folder: Path, *arguments, arch="transformer_tiny", save_dir="ckpt", **how) -> subprocess.CompletedProcess:
    return run(
        "fairseq-train",
        folder / "data",
        "--arch",
        arch,
        "--optimizer",
        "adam",
        "--lr",
        "1e-3",
        "--max-tokens",
        "300",
        "--save-dir",
        save_dir,
        "--num-workers",
        "0",
        "--no-epoch-checkpoints",
        *arguments,
        cwd=folder,
        **how,
    )


# What importing fairseq prints with torch from 2.14 on, before this project is there to keep it quiet.
OF_THE_IMPORT = re.compile(r".*: FutureWarning: `torch\.jit\.script` is .*\n  warnings\.warn\(\n")


def after_the_import(stderr: str) -> str:
    """What a command of fairseq has on standard error, without what its import alone prints there."""
    return OF_THE_IMPORT.sub("", stderr)


def error_line(result: subprocess.CompletedProcess, program: str = "fairseq-train") -> str:
    """The one line on standard error of a run that ended with exit code 1; generate logs there, too."""
    assert result.returncode == 1, result.stdout + result.stderr
    lines = [line for line in after_the_import(result.stderr).splitlines() if not line.startswith("INFO:")]
    assert len(lines) == 1, result.stderr
    start = f"{program}: error: "
    assert lines[0].startswith(start)
    return lines[0].removeprefix(start)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data of 40 random pairs and ckpt/, three updates of transformer_tiny, validated by BLEU."""
    folder = tmp_path_factory.mktemp("trained")
    rng = random.Random(1)
    for split, count in (("train", 40), ("valid", 8), ("test", 8)):
        for lang in ("de", "en"):
            lines = [" ".join(f"w{rng.randrange(30)}" for _ in range(rng.randint(3, 8))) for _ in range(count)]
            (folder / f"{split}.{lang}").write_text("\n".join(lines) + "\n")
    prefixes = (word for split in ("train", "valid", "test") for word in (f"--{split}pref", split))
    for result in (
        run("fairseq-preprocess", "-s", "de", "-t", "en", "--joined-dictionary", "--destdir", "data", *prefixes, cwd=folder),
        train(folder, "--max-update", "3", *EVAL_BLEU),
    ):
        assert result.returncode == 0, result.stderr
    return folder


EVAL_BLEU = ("--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}')


@pytest.fixture
def copy_of(trained, tmp_path):
    """``trained``, to be changed by one test."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))
