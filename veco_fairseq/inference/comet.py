# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Runs COMET (Rei et al., 2020), a neural metric, in its own environment, since it needs other versions than fairseq."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veco_fairseq.errors import UserError

VERSION = "2.2.7"
# Its torchmetrics imports pkg_resources, which setuptools no longer has.
PACKAGES = (f"unbabel-comet=={VERSION}", "setuptools<81")
MODEL = "Unbabel/wmt22-comet-da"
_SCORE = re.compile(r"score: (-?\d+\.\d+)\s*$")


def make_environment(folder: Path) -> Path:
    """Install COMET into a virtual environment, unless it is there, and return the path of ``comet-score``.

    Raises:
        UserError: COMET cannot be installed, or the folder holds something else, which would be removed.
    """
    program, done, packages = folder / "bin/comet-score", folder / "comet.version", " ".join(PACKAGES)
    if done.is_file() and done.read_text() == packages and program.is_file():
        return program
    if folder.is_dir() and any(folder.iterdir()) and not done.is_file():
        raise UserError(f"--environment {folder}: holds other files, which would be removed: choose a new folder, or remove it")
    print(f"{folder}: installing COMET there, once; this takes some minutes and 6 GB", file=sys.stderr)
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", "--clear", folder],
        [folder / "bin/pip", "install", *PACKAGES],
    ]
    for command in commands:
        result = subprocess.run(command, stdout=sys.stderr, check=False)
        if folder.is_dir():
            done.write_text("")  # not done, but made here: it may be emptied
        if result.returncode:
            words = " ".join(map(str, command))
            raise UserError(f"{folder}: COMET cannot be installed: {words} ended with exit code {result.returncode}; see above")
    done.write_text(packages)
    return program


def _require_model(model: str) -> None:
    """Raise UserError for a checkpoint that COMET would not find, before minutes of installation."""
    if model.endswith(".ckpt"):
        if not Path(model).is_file():
            raise UserError(f"--model {model}: no such checkpoint")
    elif model.startswith((".", "/")) or model.count("/") > 1:  # COMET would ask Hugging Face for it
        raise UserError(
            f"--model {model}: is no checkpoint, whose name ends in .ckpt, and no name at Hugging Face, such as {MODEL}"
        )


def comet_score(
    environment: Path,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    model: str = MODEL,
    gpus: int = 0,
    batch_size: int = 16,
) -> dict[str, Any]:
    """Return the system's score, and the model and version that computed it.

    Args:
        environment: the folder of COMET's environment, which is made if it does not exist.
        sources, hypotheses, references: the same number of lines each.
        model: its name at Hugging Face, or a checkpoint.
        gpus: the number of GPUs to use.
        batch_size: sentences of a batch.

    Raises:
        UserError: the numbers of lines differ, the texts are empty, the checkpoint is missing, or COMET fails or cannot be installed.
    """
    if not len(sources) == len(hypotheses) == len(references):
        raise UserError(
            f"{len(sources):,} sources, {len(hypotheses):,} hypotheses and {len(references):,} references: "
            "there must be one of each for every line"
        )
    if not sources:
        raise UserError("the texts are empty: there is nothing to score")
    _require_model(model)
    program = make_environment(environment)
    with tempfile.TemporaryDirectory() as folder:
        texts = {"source": sources, "hypothesis": hypotheses, "reference": references}
        for name, lines in texts.items():
            # comet-score ends a line at a carriage return, too, and pairs what is left of the texts by number
            text = "".join(f"{line}\n" for line in lines).replace("\r", " ")
            Path(folder, name).write_text(text, encoding="utf-8", newline="\n")
        source, hypothesis, reference = (Path(folder, name) for name in texts)
        command: list[str | Path] = [program, "-s", source, "-t", hypothesis, "-r", reference, "--model", model, "--gpus", str(gpus),
                   "--batch_size", str(batch_size), "--only_system", "--quiet"]  # fmt: skip
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = _SCORE.search(result.stdout)
    if result.returncode or found is None:
        raise UserError(f"{program}: ended with exit code {result.returncode} and no score; its messages are above")
    return {"comet": {"score": float(found[1]), "signature": f"{model}|comet:{VERSION}"}, "lines": len(sources)}
