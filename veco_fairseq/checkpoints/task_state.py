# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the ``task_state`` of a translation model's checkpoint says of its training."""

from collections.abc import Mapping
from typing import Any

NOT_FINE_TUNED = (
    "was converted and not fine-tuned: its translations will be bad; fine-tune it first (fairseq-train --finetune-from-model)"
)


def has_directions(known: Mapping[str, Any]) -> bool:
    """Return whether a ``task_state`` is of a training that translates."""
    return bool(known.get("languages") or known.get("lang_pairs"))


def is_only_converted(known: Mapping[str, Any]) -> bool:
    """Return whether a ``task_state`` is that of ``veco convert``, which has a dictionary alone; fairseq's own is empty."""
    return bool(known.get("symbols")) and not has_directions(known)
