# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which model the options of a training or of a checkpoint name."""

from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY


def arch_of(options: Any) -> str | None:
    """Return the ``--arch`` of a model's options; None if they name none, or there are none."""
    return getattr(options, "_name", None) or getattr(options, "arch", None)


def model_class(options: Any) -> type | None:
    """Return the class of the model that its options name; None if they name none that is registered."""
    arch = arch_of(options)
    return ARCH_MODEL_REGISTRY.get(arch) or MODEL_REGISTRY.get(arch)
