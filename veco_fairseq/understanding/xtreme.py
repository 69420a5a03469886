# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""XTREME's tables: a task by language, and the average over tasks (Hu et al. 2020; VECO, table 2)."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json
from veco_fairseq.understanding.metrics import judged_by

# The nine tasks in the papers' order.
TASKS = ("xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa", "bucc", "tatoeba")

Figures = dict[str, dict[str, float]]  # language -> name of the figure -> per cent


class Result(NamedTuple):
    """A task's figures.

    Attributes:
        seeds: of each model (seed) the figures by language.
        note: what else the figures depend on: of retrieval the layer, the score and who looks for whom.
    """

    seeds: list[Figures]
    note: str = ""

    @property
    def names(self) -> list[str]:
        """The figures' names."""
        return list(next(iter(self.seeds[0].values())))

    @property
    def langs(self) -> list[str]:
        """Languages that every model was evaluated on."""
        return [lang for lang in self.seeds[0] if all(lang in seed for seed in self.seeds)]

    def of(self, name: str, lang: str) -> list[float]:
        """One figure of each seed; of lang "mean" its mean over the languages."""
        if lang == "mean":
            return [mean(seed[each][name] for each in self.langs) for seed in self.seeds]
        return [seed[lang][name] for seed in self.seeds]

    def average(self) -> float:
        """What counts in XTREME's average: of answers the mean of F1 and exact match, of tags F1 alone."""
        return mean(mean(self.of(name, "mean")) for name in judged_by(self.names))


def read_results(paths: Sequence[Path], layer: int = -1) -> Result:
    """What :func:`read_result` reads of several files with a language each, or of one.

    Raises:
        UserError: a language comes twice, or they are of different numbers of seeds.
    """
    together, *others = (_checked(path, layer) for path in paths)
    for path, result in zip(paths[1:], others):
        if len(result.seeds) != len(together.seeds):
            raise UserError(f"{path}: is of {len(result.seeds)} models, and {paths[0]} of {len(together.seeds)}")
        for seed, more in zip(together.seeds, result.seeds):
            if seed.keys() & more.keys():
                raise UserError(f"{path}: has {', '.join(seed.keys() & more.keys())}, as a file before it")
            seed.update(more)
    notes = dict.fromkeys(result.note for result in (together, *others))
    return together._replace(note="; ".join(filter(None, notes)))


def _checked(path: Path, layer: int) -> Result:
    """What :func:`read_result` reads, if it is figures by language in per cent, the same ones of each."""
    try:
        result = read_result(path, layer)
        if not all(isinstance(lang, str) for seed in result.seeds for lang in seed):
            raise ValueError("other languages")
        figures = [of_lang for seed in result.seeds for of_lang in seed.values()]
        numbers = [number for of_lang in figures for number in of_lang.values()]
        if not numbers or not all(0 <= number <= 100.001 for number in numbers) or len({*map(frozenset, figures)}) > 1:
            raise ValueError("other figures")
        return result
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: is not of evaluate_xtreme.py run or retrieve.py, with --json, or damaged") from error


def read_result(path: Path, layer: int = -1) -> Result:
    """What ``evaluate_xtreme.py run`` or ``retrieve.py`` wrote as JSON.

    Args:
        layer: of Tatoeba's accuracies by layer, which one; the last by default.

    Raises:
        UserError: it is neither.
    """
    found = read_json(path)
    if not isinstance(found, dict):
        found = {}
    if "seeds" in found:
        result = Result(found["seeds"])
        if not all(result.seeds) or not result.langs:
            raise UserError(f"{path}: has no figures: the test set had no labels, or the seeds no language in common")
        return result
    score = f", by {found['score']}" if "score" in found else ""
    if "f1" in found:
        tuned = ", with the threshold that is best for this very set" if found.get("tuned_here") else ""
        note = f"layer {found['layer']}{score}{tuned}" if "layer" in found else ""
        return Result([{found.get("lang", "all"): {"f1": 100 * found["f1"]}}], note)
    if "accuracy" in found:
        figures, chosen = _tatoeba(path, found["accuracy"], layer)
        note = f"layer {chosen}{score}: the target of a pair, English, looks for its source, as in XTREME"
        return Result([figures], note)
    raise UserError(f"{path}: is not of evaluate_xtreme.py run or retrieve.py, with --json")


def _tatoeba(path: Path, accuracies: dict[str, dict[str, Sequence[float]]], layer: int) -> tuple[Figures, str]:
    """Of each pair the accuracy to the source, in per cent, and the layer.

    XTREME's third_party/evaluate_retrieval.py has the language as x and English as y of ``similarity_search(x, y)``,
    which looks for each y among the xs. The pairs of ``retrieve.py`` are SRC,TGT with English for TGT.
    """
    figures, layers = {}, {}
    for pair, by_layer in accuracies.items():
        if pair == "mean":
            continue
        chosen = str(layer) if layer >= 0 else list(by_layer)[-1]
        if chosen not in by_layer:
            raise UserError(f"{path}: has no layer {layer}; there is {', '.join(by_layer)}")
        _, to_source = by_layer[chosen]
        figures[pair], layers[chosen] = {"accuracy": 100 * to_source}, True
    return figures, ", ".join(layers)


def table(result: Result) -> str:
    """Languages as columns; the mean over languages, and over seeds with its standard deviation, at the end."""
    columns = [*result.langs, "mean"]
    rows = [["", *columns]]
    for name in result.names:
        rows.append([name, *(spread(result.of(name, lang)) for lang in columns)])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation if there are several values."""
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def summary(results: dict[str, Result]) -> dict[str, float]:
    """Each task's average and, under "average", the mean over the tasks that are there."""
    averages = {task: result.average() for task, result in results.items()}
    return {**averages, "average": mean(averages.values())}
