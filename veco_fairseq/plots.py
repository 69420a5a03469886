# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Pictures as PNG: learning curves, bars and attention maps."""

import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

# fairseq sets the root logger to DEBUG, and matplotlib would log every font that it looks at.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
os.environ["MPLBACKEND"] = "Agg"  # a notebook's ends its import with an error where the notebook's packages are missing
import matplotlib  # noqa: E402

matplotlib.use("Agg")  # also where it was imported before
matplotlib.rcParams["text.parse_math"] = False  # names and tokens are no formulas: two dollar signs would be an error
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.font_manager import fontManager  # noqa: E402
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter  # noqa: E402

from veco_fairseq.files import atomic_output  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor


# matplotlib's own font lacks these scripts. Of these fonts, those that are installed have what it lacks.
SCRIPTS = (
    "CJK SC, CJK JP, CJK KR, Bengali, Devanagari, Ethiopic, Gujarati, Kannada, Khmer, Malayalam, Myanmar, Tamil, Telugu, Thai"
)
INSTALLED = {font.name for font in fontManager.ttflist}
FONTS = ["DejaVu Sans", *(f"Noto Sans {script}" for script in SCRIPTS.split(", ") if f"Noto Sans {script}" in INSTALLED)]
matplotlib.rcParams["font.family"] = FONTS

logger = logging.getLogger(__name__)

BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}  # where a legend hides nothing


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]], *, ylabel: str, title: str, output: Path, log: bool = False,
    xlabel: str = "updates", log_x: bool = False, variants: Mapping[str, str] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Draw one line for each name over updates, or over what ``xlabel`` says, and a line at zero if some points lie below it.

    Args:
        log, log_x: make an axis logarithmic.
        variants: by the name of a curve, that of an earlier one whose colour it has; it is dashed.
    """
    many = len(curves) > 5  # their legend would lie over some of them
    figure, axes = plt.subplots(figsize=(9.6 if many else 6.4, 4.0))
    colours: dict[str, str] = {}
    for name, curve in curves.items():
        (line,) = axes.plot(
            *zip(*curve), marker="o" if len(curve) < 50 else None, markersize=3, label=name,
            linestyle="--" if name in variants else "-", color=colours.get(variants.get(name, "")),
        )  # fmt: skip
        colours[name] = line.get_color()
    if any(height < 0 for curve in curves.values() for _, height in curve):
        axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if log_x:
        places = sorted({place for curve in curves.values() for place, _ in curve})
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.xaxis.set_minor_formatter(NullFormatter())
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend(**BESIDE if many else {})
    _save(figure, output)


def plot_bars(bars: dict[str, dict[str, float]], ylabel: str, title: str, output: Path) -> None:
    """Draw groups of bars with their values on top, one colour for each name.

    Args:
        bars: name -> group -> value; a name may be missing in a group.
    """
    groups = list(dict.fromkeys(group for values in bars.values() for group in values))
    width = 0.8 / len(bars)
    figure, axes = plt.subplots(figsize=(2 + max(4.4, 0.55 * len(groups) * len(bars)), 4.0))
    for number, (name, values) in enumerate(bars.items()):
        places = [groups.index(group) + (number - (len(bars) - 1) / 2) * width for group in values]
        axes.bar_label(axes.bar(places, list(values.values()), width, label=name), fmt="%.1f", fontsize=8)
    axes.set_xticks(range(len(groups)), groups)
    axes.set(ylabel=ylabel, title=title)
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    axes.legend(**BESIDE)
    _save(figure, output)


def plot_attention(
    weights: "Tensor",
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    output: Path,
    names: Sequence[str] = "xy",
) -> None:
    """Draw a heat map of attention weights, (rows, columns): each row's token attends to the columns' tokens.

    Args:
        weights: a tensor of any type on any device, or an array.
        names: of the rows' and the columns' sentence, for the axes.
    """
    import torch  # here, since the other pictures do without

    figure, axes = plt.subplots(figsize=(2 + 0.35 * len(columns), 1.5 + 0.35 * len(rows)))
    image = axes.imshow(torch.as_tensor(weights).detach().float().cpu().numpy(), cmap="Greys", vmin=0)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(f"attends to ({names[1]})")
    axes.set_ylabel(f"attends from ({names[0]})")
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, fraction=0.046, label="attention weight")
    _save(figure, output)


def _save(figure, output: Path) -> None:
    """Write a picture in the format that its name ends in, such as .pdf; as PNG if that is none."""
    kind = output.suffix.lower().removeprefix(".")
    kind = kind if kind in figure.canvas.get_supported_filetypes() else "png"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        figure.tight_layout()
        with atomic_output(output) as temporary:
            figure.savefig(temporary, dpi=150, format=kind)
    plt.close(figure)
    glyphs = set()
    for each in told:
        if match := re.match(r"Glyph (\d+) .* missing from", str(each.message)):
            glyphs.add(match[1])
        else:
            warnings.warn(each.message, each.category, stacklevel=2)
    if glyphs:
        letters = "".join(map(chr, sorted(map(int, glyphs))))
        logger.warning(
            f"{output}: has boxes for {letters}: no font here has them: install one, such as Noto Sans CJK for Chinese"
        )
