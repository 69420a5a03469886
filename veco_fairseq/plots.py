# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Pictures: learning curves and attention maps, as PNG."""

import json
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import torch  # noqa: E402

from veco_fairseq.cli import read_lines  # noqa: E402
from veco_fairseq.errors import UserError  # noqa: E402
from veco_fairseq.files import atomic_output  # noqa: E402


def read_curve(log: Path, metric: str) -> List[Tuple[int, float]]:
    """(updates, value) of a metric from the JSON lines of a ``--log-format json --log-file``.

    Args:
        metric: with its prefix, as "valid_loss" or "train_loss".

    Raises:
        UserError: the file has no such metric (and which ones it has).
    """
    curve, seen = {}, set()
    updates = metric.split("_")[0] + "_num_updates"
    for line in read_lines(log):
        start = line.find("{")
        try:
            values = json.loads(line[start:]) if start >= 0 else {}
        except json.JSONDecodeError:
            continue  # the log's other lines
        seen.update(values)
        if metric in values and updates in values:
            curve[int(values[updates])] = float(values[metric])
    if not curve:
        there = ", ".join(sorted(key for key in seen if key.startswith(("train_", "valid_")))) or "none"
        raise UserError(f"{log}: has no {metric} (there is: {there}); train with --log-format json --log-file {log}")
    return sorted(curve.items())


def plot_curves(curves: Dict[str, List[Tuple[int, float]]], ylabel: str, title: str, output: Path) -> None:
    """One line a run over its updates."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    for name, curve in curves.items():
        axes.plot(*zip(*curve), marker="o", markersize=3, label=name)
    axes.set(xlabel="updates", ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, output)


def plot_attention(weights: torch.Tensor, rows: Sequence[str], columns: Sequence[str], title: str, output: Path) -> None:
    """A heat map of attention weights, (rows, columns): each row's token looks at the columns' tokens."""
    figure, axes = plt.subplots(figsize=(2 + 0.35 * len(columns), 1.5 + 0.35 * len(rows)))
    image = axes.imshow(weights, cmap="Greys", vmin=0)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, fraction=0.046, label="attention weight")
    _save(figure, output)


def _save(figure, output: Path) -> None:
    figure.tight_layout()
    with atomic_output(output) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    plt.close(figure)
