# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The mean of several checkpoints of one training (VECO, section 6.1: the last 10)."""

import logging
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from veco_fairseq.checkpoints.integrity import place_of
from veco_fairseq.checkpoints.reading import option_differences, options_of, read_checkpoint, require_other_file
from veco_fairseq.checkpoints.writing import write_checkpoint
from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import Path_

# fairseq's names for checkpoints of epochs, and of updates within them.
EPOCH = re.compile(r"checkpoint(\d+)\.pt")
UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
KINDS = {EPOCH: "epoch", UPDATE: "update"}
ADVICE = {  # where there are too few
    EPOCH: "train for {} epochs, without --no-epoch-checkpoints or a smaller --keep-last-epochs",
    UPDATE: "train with --save-interval-updates and --keep-interval-updates {} (fairseq saves none of them at an epoch's end)",
}
# In a checkpoint's task_state; what a criterion or a task of somebody else's keeps there may differ in each, as neighbours do.
VOCABULARY = ("symbols", "source_symbols", "labels", "languages", "lang_pairs", "word_pooling", "task")
TASK_WITHOUT_SHAPE = ("word_pooling",)  # of a task, as reading.WITHOUT_SHAPE of a model
OF_ONE = ("ema", "ema_fp32_params", "best", "val_loss")  # in a checkpoint's extra_state: not true of the mean

logger = logging.getLogger(__name__)


def last_checkpoints(folder: Path_, count: int, name: "re.Pattern[str]", upper_bound: int | None = None) -> list[Path]:
    """Return the last ``count`` checkpoints of a save folder, the newest first.

    Args:
        folder: of ``--save-dir``.
        count: how many.
        name: :data:`UPDATE` or :data:`EPOCH`.
        upper_bound: the last update or epoch to take.

    Raises:
        UserError: there is no such folder, or it has fewer checkpoints, or two of one update.
    """
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: no such folder: give --inputs the --save-dir of a training")
    numbers: dict[int, Path] = {}
    for path in sorted(Path(folder).iterdir()):
        if match := name.fullmatch(path.name):
            other = numbers.setdefault(int(match.group(1)), path)
            if other != path:
                raise UserError(f"{folder}: {other.name} and {path.name} are of two trainings: remove one, or give the files")
    chosen = sorted((n for n in numbers if upper_bound is None or n <= upper_bound), reverse=True)[:count]
    if len(chosen) < count:
        rest = EPOCH if name is UPDATE else UPDATE
        kind, advice = f"{KINDS[name]}s", ADVICE[name].format(count)
        below, fewer = "", "ask for fewer, or " if chosen else ""
        if upper_bound is not None:
            below = f" up to --checkpoint-upper-bound {upper_bound}"
            advice = f"raise that bound, of {len(numbers)} in all" if len(numbers) >= count else advice
        others = sum(map(bool, (rest.fullmatch(path.name) for path in Path(folder).iterdir())))
        if others and not numbers:
            fewer = f"ask for those of {KINDS[rest]}s, of which it has {others} (--num-{KINDS[rest]}-checkpoints), or "
        raise UserError(f"{folder}: has {len(chosen)} checkpoints of {kind}{below}, not {count}: {fewer}{advice}")
    return [numbers[number] for number in chosen]


def average(paths: Sequence[Path_], trust: bool = False) -> dict[str, Any]:
    """Return the mean of the models in ``paths``, with the options and the dictionary of the first one.

    One tensor at a time is read from all files and summed up in fp64. So memory holds one model, however many files there
    are. Tensors that are one in every file (tied weights) are one in the result. Of what a training has saved in 16 bits the
    mean is in fp32, as that of fairseq's own script (for fp16): the last checkpoints differ by a few of the steps that 16 bits
    have, so that rounding would bring back much of the noise that a mean removes.

    Args:
        paths: checkpoints of one training; everything that is not averaged comes from the first.
        trust: as in :func:`read_checkpoint`.

    Returns:
        A checkpoint without the state of the optimizer, and without the mean of ``--store-ema`` and the figures of the validations,
        which are the first one's.

    Raises:
        UserError: there is no file, or one is missing or damaged, or its tensors, dictionary, languages or computation are
            not those of the first.
    """
    require_list(paths, "checkpoints", some=True)
    states = [read_checkpoint(path, trust, mapped=True) for path in paths]
    models = [state["model"] for state in states]
    shapes = [{name: (tensor.shape, tensor.dtype) for name, tensor in model.items()} for model in models]
    for path, state, shape in zip(paths, states, shapes):
        if _vocabulary(state) != _vocabulary(states[0]):
            what = "has another dictionary, or other languages or labels, than"
            raise UserError(f"{path}: {what} {paths[0]}: average checkpoints of one training")
        differing = sorted(name for name in shapes[0].keys() | shape.keys() if shape.get(name) != shapes[0].get(name))
        if differing:
            raise UserError(
                f"{path}: has another model than {paths[0]}: {len(differing)} tensors differ in name, shape or type "
                f"({differing[0]}): average checkpoints of one training"
            )
        for flag, first, other in _other_options(states[0], state):
            raise UserError(f"{path}: has {flag} {other}, and {paths[0]} {first}: average checkpoints of one training")
    for (path, model), (other_path, other_model) in combinations(zip(paths, models), 2):
        if _same_weights(model, other_model):
            logger.warning(f"{path} and {other_path} have the same weights, which count twice in the mean: leave out one of them")
    means: dict[Any, torch.Tensor] = {}
    result = {}
    for name in models[0]:
        same = [model[name] for model in models]
        place = tuple(map(place_of, same))
        if place not in means:
            means[place] = _mean(same)
        result[name] = means[place]
    kept = {key: value for key, value in states[0].items() if key not in ("model", "last_optimizer_state")}
    if kept.get("extra_state"):
        kept["extra_state"] = {key: value for key, value in kept["extra_state"].items() if key not in OF_ONE}
    task_state = {key: value for key, value in (states[0].get("task_state") or {}).items() if key != "neighbours"}
    return {**kept, "task_state": task_state, "model": result}


def _vocabulary(state: dict[str, Any]) -> dict[str, Any]:
    """Return of the task's state what makes another model of the same tensors."""
    return {key: value for key, value in (state.get("task_state") or {}).items() if key in VOCABULARY}


def _other_options(first: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the options that make something else of the same tensors, as (flag, value of the first, value of the other)."""
    of_model = option_differences(options_of(first, "model"), options_of(other, "model"))
    return of_model + option_differences(options_of(first, "task"), options_of(other, "task"), TASK_WITHOUT_SHAPE)


def _same_weights(one: dict[Any, torch.Tensor], other: dict[Any, torch.Tensor]) -> bool:
    """Return whether two models are the same; small tensors, which differ after any update, are compared first."""
    return all(torch.equal(one[name], other[name]) for name in sorted(one, key=lambda name: one[name].numel()))


def _mean(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if not tensors[0].is_floating_point():
        return tensors[0].clone()
    total = torch.zeros(tensors[0].shape, dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(torch.promote_types(tensors[0].dtype, torch.float32))


def average_checkpoints(paths: Sequence[Path_], output: Path_, trust: bool = False) -> None:
    """Write :func:`average` of ``paths`` to ``output``.

    Raises:
        UserError: as in :func:`average`; or the output is one of ``paths``.
    """
    require_list(paths, "checkpoints", some=True)
    for path in paths:
        require_other_file(output, path)
    write_checkpoint(output, average(paths, trust))
