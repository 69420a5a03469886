# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The pictures of the page: the gain over the pairs, learning curves, and the quality of decoders over their speed."""

import statistics
from pathlib import Path
from typing import Any

from figures import ARMS, RIVALS, Scores, costs, of_kind, of_set, scores

LARGE = ", large batches"
# The models that gain, and over whom.
PICTURED = {"veco": ("", {**{arm: name for arm, name in RIVALS.items() if arm != "nmt-more"}, "nmt-half": ARMS["nmt-half"]}),
            "veco-8": (LARGE, {"random": RIVALS["random"], **{f"{arm}-8": RIVALS[arm] for arm in ("nmt", "xlm", "mbart")}})}  # fmt: skip
Curves = dict[str, list[tuple[float, float]]]
CURVES = ("random", "nmt", "xlm", "mbart", "veco")  # whose learning curves are drawn
LAYERS = (6, 3, 2, 1)
Pictures = dict[str, list[tuple[str, str]]]  # by section of the page, what each picture is over, and the name of its file


def gains(found: Scores) -> Curves:
    """VECO's gain over the pairs, a line for each rival and direction with two numbers of pairs."""
    curves: Curves = {}
    for direction, by_size in found.items():
        for mine, (words, rivals) in PICTURED.items():
            for arm, name in rivals.items():
                points: list[tuple[float, float]] = [
                    (size, statistics.mean(of[mine]) - statistics.mean(of[arm]))
                    for size, of in sorted(by_size.items())
                    if mine in of and arm in of
                ]
                if len(points) > 1:
                    curves[f"{direction}: over {name}{words}"] = points
    return curves


def learning_curves(runs: list[dict]) -> tuple[str, Curves, Curves]:
    """The validation losses of fine-tuning, of the data that most of :data:`CURVES` have, each arm with its first seeds.

    Returns:
        The data; by arm, the bits a token over updates; and the same over 10^14 operations, those of pre-training included.
    """
    first = [entry for entry in of_kind(runs, "translation") if (entry["pretraining"], entry["seed"]) == ("1", "1")]
    by_data: dict[str, dict[str, dict]] = {}
    for entry in first:
        if entry["arm"] in CURVES and entry.get("curve"):
            by_data.setdefault(entry["data"], {})[entry["arm"]] = entry
    if not by_data:
        return "", {}, {}
    data = max(by_data, key=lambda name: len(by_data[name]))
    before = {"random": 0.0, **{arm: entry["operations"] for arm, entry in costs(runs).items()}}
    of_updates: Curves = {}
    of_operations: Curves = {}
    for arm in CURVES:
        entry = by_data[data].get(arm)
        if entry is None:
            continue
        of_updates[ARMS[arm]] = entry["curve"]
        if entry.get("operations") and arm in before:
            an_update = entry["operations"] / entry["updates"]
            of_operations[ARMS[arm]] = [((before[arm] + updates * an_update) / 1e14, bits) for updates, bits in entry["curve"]]
    return data, of_updates, of_operations


def in_words(data: str) -> str:
    """Such as "2,000 pairs of en-de" for en-de.2000."""
    direction, _, pairs = data.rpartition(".")
    return f"{int(pairs):,} pairs of {direction}"


def depths(runs: list[dict]) -> Curves:
    """The mean BLEU of decoders over the highest speed of each, in sentences a second; by which of the layers they have."""
    curves: Curves = {}
    for which in ("last", "spread", "first", "random"):
        for layers in LAYERS:
            arm = "deep-all-6" if (which, layers) == ("last", 6) else f"deep-{which}-{layers}"
            mine = [entry for entry in of_kind(runs, "translation") if entry["arm"] == arm]
            if speeds := [entry["sentences_per_second"] for entry in mine if entry.get("sentences_per_second")]:
                bleu = statistics.mean(entry["sacrebleu"] for entry in mine)
                curves.setdefault(f"the {which} layers" if which in ("last", "first") else which, []).append((max(speeds), bleu))
    return curves


def draw(runs: list[dict], folder: Path) -> Pictures:
    """Draw what there are results for, of image captions."""
    from veco_fairseq.plots import plot_curves

    runs = of_set(runs, "captions")
    data, of_updates, of_operations = learning_curves(runs)
    fine_tuning, bits = f"Fine-tuning on {in_words(data)}" if data else "", "validation loss (bits a token)"
    drawn: Pictures = {}
    for section, name, curves, xlabel, ylabel, title in (
        ("gain", "gain", gains(scores(runs, "sacrebleu")), "pairs of fine-tuning", "BLEU more", "What VECO gains"),
        ("learning", "learning-updates", of_updates, "updates of fine-tuning", bits, fine_tuning),
        ("learning", "learning-operations", of_operations, "10^14 operations, pre-training included", bits, fine_tuning),
        (
            "depth",
            "depth",
            depths(runs),
            "sentences a second",
            "sacreBLEU",
            "Decoders of 1 to 6 of VECO's 6 layers: fewer are faster",
        ),
    ):
        if curves:
            file = f"evidence-{name}.png"
            variants = {name: name.removesuffix(LARGE) for name in curves if name.endswith(LARGE)}
            how: dict[str, Any] = {"log_x": section == "gain", "variants": variants}
            plot_curves(curves, xlabel=xlabel, ylabel=ylabel, title=title, output=folder / file, **how)
            drawn.setdefault(section, []).append((xlabel, file))
    return drawn
