# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes a checkpoint that a training can begin with, and writes checkpoints and configurations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from veco_fairseq.files import Path_, atomic_output


def untrained(config: Mapping[str, Any], weights: Mapping[str, Tensor], task_state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoint of a model that a training can begin with: all that fairseq's trainer looks for, after no update."""
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    return {
        "args": None,
        "cfg": config,
        "model": weights,
        "criterion": None,
        "optimizer_history": [history],
        "task_state": task_state,
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }


def write_checkpoint(path: Path_, state: Mapping[str, Any]) -> None:
    """Write a checkpoint, either all of it or nothing."""
    with atomic_output(path) as temporary, open(temporary, "wb") as stream:
        torch.save(state, stream)


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write weights as transformers reads them. Whoever may read the files beside them may read them, too.

    safetensors makes a file that its owner alone can read, whatever the umask.
    """
    path.touch()
    mode = path.stat().st_mode & 0o777
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(mode)


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a configuration as transformers lays it out."""
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
