# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Learning curves, from what fairseq-train printed."""

import json
import math
import re
from pathlib import Path
from typing import Any

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines


def read_curve(log: Path, metric: str, training: bool = False) -> list[tuple[int, float]]:
    """Read (updates, value) of a metric from what fairseq-train printed, in ``simple`` or ``json`` lines.

    Where training validates on several sets, those of the first count, by which it chooses checkpoints. Where the updates go back,
    a training was resumed or another one begun behind it: what the file has of later updates is not of this one.

    Args:
        log: a file with the command's output, as from ``| tee FILE``. A ``--log-file`` lacks these lines.
        metric: such as "loss", "ppl" or "bitext_s_loss".
        training: read the lines of training, one every ``--log-interval`` updates, instead of those of validation.

    Raises:
        UserError: the file is no such output; or it has no such metric, and the line names those that it has.
    """
    seen: set[str] = set()
    curve: dict[int, float] = {}
    first, last = None, 0
    for line in read_lines(log):
        if subset := _validated_on(line):
            first = first or subset
            if subset != first:
                continue
        values = _training_values(line) if training else _validation_values(line)
        seen.update(values)
        if "num_updates" not in values:
            continue
        update = int(values["num_updates"])
        if update < last:
            curve = {before: value for before, value in curve.items() if before < update}
        last = update
        if metric in values:
            curve[update] = values[metric]
    if not curve:
        kind = "training line" if training else "validation"
        if not seen:
            other = "" if training else ", or --train for the lines of training"
            raise UserError(f"{log}: has no {kind} in it: give what fairseq-train printed, as by | tee FILE{other}")
        raise UserError(f"{log}: no {kind} in it has {metric}: give one that is there ({', '.join(sorted(seen))})")
    return list(curve.items())


def _training_values(line: str) -> dict[str, float]:
    """Return the metrics of a line of training, by name; for other lines nothing."""
    _, found, values = line.partition("| train_inner | ")
    if not found:
        return {}
    return _numbers(_object(values) if values.startswith("{") else dict(re.findall(r"(\w+)=([^\s,]+)", values)))


def _validation_values(line: str) -> dict[str, float]:
    """Return the metrics of a line of validation, by name; for other lines nothing."""
    subset = _validated_on(line)
    if subset and "| valid on '" not in line:
        found = {key.removeprefix(f"{subset}_"): value for key, value in _object(line[line.index("{") :]).items()}
    elif "| valid on '" in line:
        found = dict(part.split() for part in line.split(" | ") if len(part.split()) == 2)
    else:
        return {}
    return _numbers(found)


def _validated_on(line: str) -> str | None:
    """Return the name of the set that a line of validation is of, such as "valid", or None for other lines."""
    if found := re.search(r"\| valid on '([^']*)' subset", line):
        return found[1]
    # In json, the figures' names begin with that of the set; so do those of an epoch of training, with "train".
    found = re.search(r'\{"epoch": .*"([^"]+)_num_updates"', line)
    return found[1] if found and found[1] != "train" else None


def _object(text: str) -> dict[str, Any]:
    """Return a JSON object; nothing for a line that is cut off, as the last one of a killed training."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    number = re.compile(r"-?(\d{1,300}(\.\d*)?|\.\d+)(e[-+]?\d{1,3})?", re.ASCII)
    found = {key: float(value) for key, value in values.items() if number.fullmatch(str(value))}
    return {key: value for key, value in found.items() if math.isfinite(value)}
