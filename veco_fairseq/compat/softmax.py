# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets models with an adaptive softmax load their own checkpoints."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def without_projection(upgrade: Callable) -> Callable:
    """Make a decoder's ``upgrade_state_dict_named`` that adds no projection to one that ends in an adaptive softmax."""

    @wraps(upgrade)
    def upgrade_as_it_is(decoder, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        upgraded = upgrade(decoder, state_dict, name)
        if decoder.output_projection is None:
            state_dict.pop(f"{name}.output_projection.weight", None)
        return upgraded

    return upgrade_as_it_is
