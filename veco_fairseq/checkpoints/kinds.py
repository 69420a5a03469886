# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which model the options of a training or of a checkpoint name."""

from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_

USER_DIR = "give --user-dir DIR, the folder of the code that registers it (veco --user-dir DIR COMMAND)"


def arch_of(options: Any) -> str | None:
    """Return the ``--arch`` of a model's options; None if they name none, or there are none."""
    return getattr(options, "_name", None) or getattr(options, "arch", None)


def model_class(options: Any) -> type | None:
    """Return the class of the model that its options name; None if they name none that is registered."""
    arch = arch_of(options)
    return ARCH_MODEL_REGISTRY.get(arch) or MODEL_REGISTRY.get(arch)


def require_registered(path: Path_, options: Any) -> None:
    """Refuse a model of an architecture that no code here has registered, such as one of another --user-dir.

    Args:
        path: its checkpoint.
        options: of the model; None where they are not known.

    Raises:
        UserError: names the architecture.
    """
    if arch_of(options) is not None and model_class(options) is None:
        raise UserError(f"{path}: has a model of --arch {arch_of(options)}, which nothing here registers: {USER_DIR}")


def notes_on_own_code(options: Any) -> list[str]:
    """Return a line for the user where a model's class is not of this project, or not known: its tensors do not tell what it computes."""
    arch, kind = arch_of(options), model_class(options)
    if arch is None or kind is not None and kind.__module__.startswith("veco_fairseq."):
        return []
    return [f"--arch {arch} is not of this project: what its own code computes in another way is not taken over"]
