# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every difference between a training that was stopped and resumed, and one that nobody disturbed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.errors import UserError

# What the log tells of time, which is never the same.
OF_TIME = re.compile(r"(^|_)(wps|ups|wall|train_wall|hours_left|knn_ms|gb_free)$")
# What a checkpoint has beside the training's state: the command's options (--save-dir is another), and meters of time.
NOT_COMPARED = {("args",), ("cfg",), ("extra_state", "metrics"), ("extra_state", "previous_training_time")}
MOST_TOLD = 5  # differences of one file or log

Line = tuple[str, int]  # train_inner, train or valid, and the update


def logged(text: str) -> dict[Line, list[dict[str, Any]]]:
    """The JSON lines of a log of ``--log-format json --log-interval 1``, without times, in the log's order."""
    lines: dict[Line, list[dict[str, Any]]] = {}
    for tag, content in re.findall(r"\| (train_inner|train|valid) \| (\{.*\})", text):
        values = json.loads(content)
        prefix = "" if tag == "train_inner" else f"{tag}_"
        figures = {name: value for name, value in values.items() if not OF_TIME.search(name)}
        lines.setdefault((tag, int(values[f"{prefix}num_updates"])), []).append(figures)
    return lines


def updates(text: str) -> list[int]:
    """The updates that a log tells of, in its order."""
    return [update for tag, update in logged(text) if tag == "train_inner"]


def saved_updates(text: str) -> list[int]:
    """The updates after which a log says that a checkpoint was saved: as fairseq says it, or when told to end."""
    found = re.findall(r"Saved checkpoint \S+ \(epoch \d+ @ (\d+) updates|: saved after update (\d+)", text)
    return [int(usual or told) for usual, told in found]


def log_differences(found: str, expected: str) -> Iterator[str]:
    """Each line of the log ``found`` that is not one of ``expected``, the undisturbed training's."""
    theirs = logged(expected)
    for (tag, update), ours in logged(found).items():
        for figures in ours:
            if (tag, update) not in theirs:
                yield f"log: {tag} at update {update}, where the undisturbed training has none"
            elif figures not in theirs[tag, update]:
                other = theirs[tag, update][-1]
                names = sorted(name for name in {*figures, *other} if figures.get(name) != other.get(name))
                values = ", ".join(f"{name} {figures.get(name)} for {other.get(name)}" for name in names[:MOST_TOLD])
                yield f"log: {tag} at update {update}: {values}"


def missing_lines(before: str, after: str, expected: str) -> Iterator[str]:
    """Each line that the undisturbed training has and the one that went on has not, from its first update on.

    Where it made no update, the lines after the last save are missing.

    Args:
        before: the log of the training that was stopped.
        after: the log of the one that went on.
        expected: the log of the undisturbed one.
    """
    ours, first = logged(after), min(updates(after), default=max(saved_updates(before), default=0) + 1)
    for tag, update in logged(expected):
        if update >= first and (tag, update) not in ours:
            yield f"log: no {tag} at update {update}, where the undisturbed training has one"


def value_differences(found: Any, expected: Any, place: tuple = ()) -> Iterator[str]:
    """Where two values of a checkpoint differ, to the last bit and type."""
    name = " ".join(map(str, place)) or "the file"
    if place in NOT_COMPARED:
        return
    if place == ("optimizer_history",):  # has an entry for each start: the last one is the present state
        found, expected = found[-1:], expected[-1:]
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        if found.dtype != expected.dtype or found.shape != expected.shape:
            yield f"{name}: {found.dtype} {list(found.shape)} for {expected.dtype} {list(expected.shape)}"
        elif not torch.equal(found, expected):
            largest = (found.double() - expected.double()).abs().max().item()
            yield f"{name}: {(found != expected).sum().item()} of {found.numel()} values differ, by {largest:.3g} at most"
    elif type(found) is not type(expected):
        yield f"{name}: {type(found).__name__} for {type(expected).__name__}"
    elif isinstance(expected, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            if key not in found or key not in expected:
                yield f"{name}: {key} is {'missing' if key in expected else 'too much'}"
            else:
                yield from value_differences(found[key], expected[key], (*place, key))
    elif isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            yield f"{name}: {len(found)} values for {len(expected)}"
        for number, (ours, theirs) in enumerate(zip(found, expected)):
            yield from value_differences(ours, theirs, (*place, number))
    elif found != expected:
        yield f"{name}: {found!r} for {expected!r}"


def folder_differences(found: Path, expected: Path) -> Iterator[str]:
    """What differs between two save folders: their files' names and bytes, and of checkpoints all state.

    That is the model's and the optimizer's tensors, the position in the data, the scheduler and the task's state.
    """
    ours, theirs = (
        {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} for folder in (found, expected)
    )
    for name in sorted(ours ^ theirs):
        yield f"{name}: {'is left over' if name in ours else 'is missing'}"
    for name in sorted(ours & theirs):
        if name.endswith(".pt"):
            try:
                differences = value_differences(read_checkpoint(found / name), read_checkpoint(expected / name))
                yield from (f"{name}: {difference}" for difference, _ in zip(differences, range(MOST_TOLD)))
            except UserError as error:
                yield f"{name}: cannot be read: {error}"
        elif (found / name).read_bytes() != (expected / name).read_bytes():
            yield f"{name}: other bytes"


def resume_differences(before: str, after: str) -> Iterator[str]:
    """Whether a training went on from what was saved last: a start from nothing ends alike, but loses the work.

    Args:
        before: the log of the training that was stopped.
        after: the log of the one that went on.
    """
    saved, done, again = saved_updates(before), updates(before), updates(after)
    at_least, at_most = max(saved, default=0) + 1, max([*saved, *done], default=0) + 1
    if again and not at_least <= again[0] <= at_most:
        yield f"went on with update {again[0]}; saved were {max(saved, default=0)}, done {at_most - 1}"
    told = re.search(r": saved after update (\d+)", before)
    if told and done and int(told[1]) < done[-1]:
        yield f"told to end, it saved after update {told[1]}, and had done {done[-1]}"
