# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which options are those of somebody's own code: what they mean, and their borders, only that code knows; and its errors."""

import argparse
import traceback
from collections.abc import Mapping
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.tasks import TASK_REGISTRY

# By the option that names a class. A model is named by its architecture.
REGISTRIES: dict[str, Mapping[str, Any]] = {
    "task": TASK_REGISTRY, "arch": ARCH_MODEL_REGISTRY, "model": MODEL_REGISTRY, "criterion": CRITERION_REGISTRY,
    "optimizer": OPTIMIZER_REGISTRY, "lr_scheduler": LR_SCHEDULER_REGISTRY,
}  # fmt: skip
PACKAGES = ("fairseq", "veco_fairseq")


def is_own(kind: type) -> bool:
    """Return whether a class is neither fairseq's nor this project's."""
    return _package(kind.__module__) not in PACKAGES


def raised_by_own_code(error: BaseException, cfg: Any) -> bool:
    """Return whether an error comes from the code of a class of somebody else's: its traceback tells the line, and no other text does.

    Args:
        error: was raised.
        cfg: all options of a training, in groups.
    """
    names = {option: getattr(getattr(cfg, option, None), "_name", None) for option in REGISTRIES}
    packages = {_package(kind.__module__) for kind in _classes({**names, "arch": names["model"]}) if is_own(kind)}
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return _package(frame.f_globals.get("__name__", "")) in packages


def own_options(chosen: Mapping[str, Any]) -> set[str]:
    """Return the names of the options that only classes of somebody's own have.

    Args:
        chosen: the names of the classes, by the keys of :data:`REGISTRIES`; others, and those that nothing registers, are
            passed over.
    """
    kinds = _classes(chosen)
    own: set[str] = set()
    if any(map(is_own, kinds)):
        for kind in kinds:
            own |= _options(kind)
        for kind in kinds:
            own -= _options(next(base for base in kind.__mro__ if not is_own(base) or base is object))
            config = getattr(kind, "__dataclass", None) or object  # may extend another one than the class does
            for base in config.__mro__:
                own -= set() if is_own(base) else set(getattr(base, "__dataclass_fields__", ()))
    return own


def own_options_in(state: Mapping[str, Any]) -> set[str]:
    """Return :func:`own_options` of the classes that a checkpoint names, whose parts may still be of any type."""
    config = _as_dict(state.get("cfg"))
    names = {option: _as_dict(config[option]).get("_name") for option in REGISTRIES if option in config}
    return own_options({"arch": names.get("model"), **_as_dict(state.get("args")), **names})


def _as_dict(group: Any) -> dict[Any, Any]:
    return vars(group) if isinstance(group, argparse.Namespace) else group if isinstance(group, dict) else {}


def _package(module: str) -> str:
    return module.partition(".")[0]


def _classes(chosen: Mapping[str, Any]) -> list[type]:
    found = [registry.get(name) for option, registry in REGISTRIES.items() if isinstance(name := chosen.get(option), str)]
    return [kind for kind in found if isinstance(kind, type)]


def _options(kind: Any) -> set[str]:
    parser = argparse.ArgumentParser(add_help=False)
    if hasattr(kind, "add_args"):
        kind.add_args(parser)
    return {action.dest for action in parser._actions}
