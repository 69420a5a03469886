# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""XTREME's tables: a task by language, and the average over tasks (Hu et al. 2020; VECO, table 2)."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json
from veco_fairseq.tables import aligned
from veco_fairseq.understanding.metrics import judged_by

# The nine tasks in the papers' order, and their figures.
LABELS, TAGS, ANSWERS = ("accuracy",), ("f1", "accuracy"), ("f1", "exact")
TASKS = {"xnli": LABELS, "pawsx": LABELS, "udpos": TAGS, "panx": TAGS, "xquad": ANSWERS, "mlqa": ANSWERS, "tydiqa": ANSWERS,
         "bucc": ("f1",), "tatoeba": LABELS}  # fmt: skip

Figures = dict[str, dict[str, float]]  # language -> name of the figure -> per cent


class Result(NamedTuple):
    """A task's figures.

    Attributes:
        seeds: the figures by language, of each model (seed).
        note: what else the figures depend on: for retrieval the layer, the score and the direction.
    """

    seeds: list[Figures]
    note: str = ""

    @property
    def names(self) -> list[str]:
        """Return the names of the figures."""
        return list(next(iter(self.seeds[0].values())))

    @property
    def langs(self) -> list[str]:
        """Return the languages that every model was evaluated on."""
        return [lang for lang in self.seeds[0] if all(lang in seed for seed in self.seeds)]

    def of(self, name: str, lang: str) -> list[float]:
        """Return one figure of each seed; for lang "mean", its mean over the languages."""
        if lang == "mean":
            return [mean(seed[each][name] for each in self.langs) for seed in self.seeds]
        return [seed[lang][name] for seed in self.seeds]

    def average(self) -> float:
        """Return the task's part of XTREME's average: for answers the mean of F1 and exact match, for tags only F1."""
        return mean(mean(self.of(name, "mean")) for name in judged_by(self.names))


def read_task(task: str, paths: Sequence[Path], layer: int = -1) -> Result:
    """Read the files of one of XTREME's tasks by :func:`read_results`.

    Raises:
        UserError: the files have other figures than this task has.
    """
    result = read_results(paths, layer)
    if set(result.names) != set(TASKS[task]):
        has, needs = (" and ".join(names) for names in (result.names, TASKS[task]))
        raise UserError(f"{paths[0]}: has {has}, but {task} has {needs}: give the file of this task")
    return result


def read_results(paths: Sequence[Path], layer: int = -1) -> Result:
    """Read one file by :func:`read_result`, or join several files with a language each.

    Raises:
        UserError: a language is there twice, or the files have different numbers of seeds, or other figures.
    """
    together, *others = (_checked(path, layer) for path in paths)
    for path, result in zip(paths[1:], others):
        if len(result.seeds) != len(together.seeds):
            raise UserError(f"{path}: has {len(result.seeds)} models, but {paths[0]} has {len(together.seeds)}")
        if set(result.names) != set(together.names):
            there, here = (", ".join(each.names) for each in (together, result))
            raise UserError(f"{path}: has {here}, but {paths[0]} has {there}: give the files of one task")
        for seed, more in zip(together.seeds, result.seeds):
            if seed.keys() & more.keys():
                twice = ", ".join(sorted(seed.keys() & more.keys()))
                advice = "give each language once (veco retrieve bucc --lang LANG names it)"
                raise UserError(f"{path}: has {twice}, as an earlier file does: {advice}")
            seed.update(more)
    notes = dict.fromkeys(result.note for result in (together, *others))
    return together._replace(note="; ".join(filter(None, notes)))


def _checked(path: Path, layer: int) -> Result:
    """Read one file by :func:`read_result`; check that it has the same figures, in per cent, for each language."""
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
        raise UserError(f"{path}: is not from veco evaluate run or veco retrieve with --json, or is damaged") from error


def read_result(path: Path, layer: int = -1) -> Result:
    """Read the JSON of ``veco evaluate run`` or ``veco retrieve``.

    Args:
        layer: of Tatoeba's accuracies; by default the last.

    Raises:
        UserError: the file is from neither.
    """
    found = read_json(path)
    if not isinstance(found, dict):
        found = {}
    if "seeds" in found:
        result = Result(found["seeds"])
        if not all(result.seeds) or not result.langs:
            raise UserError(f"{path}: has no figures: the test set had no labels, or no language is common to all seeds")
        return result
    score = f", by {found['score']}" if "score" in found else ""
    if "f1" in found:
        tuned = ", with the threshold that is best for this same set" if found.get("tuned_here") else ""
        note = f"layer {found['layer']}{score}{tuned}" if "layer" in found else ""
        return Result([{found.get("lang", "all"): {"f1": 100 * found["f1"]}}], note)
    if "accuracy" in found:
        figures, chosen = _tatoeba(path, found["accuracy"], layer)
        note = f"layer {chosen}{score}: the target of a pair, English, looks for its source, as in XTREME"
        return Result([figures], note)
    raise UserError(f"{path}: is not from veco evaluate run or veco retrieve with --json")


def _tatoeba(path: Path, accuracies: dict[str, dict[str, Sequence[float]]], layer: int) -> tuple[Figures, str]:
    """Return the accuracy to the source of each pair, in per cent, and the layer.

    In XTREME's third_party/evaluate_retrieval.py, the language is x and English is y of ``similarity_search(x, y)``, which
    searches each y among the xs. The pairs of ``veco retrieve`` are SRC,TGT with English as TGT.
    """
    figures, layers = {}, {}
    for pair, by_layer in accuracies.items():
        if pair == "mean":
            continue
        chosen = str(layer) if layer >= 0 else max(by_layer, key=int)
        if chosen not in by_layer:
            raise UserError(f"{path}: has no layer {layer}; there is {', '.join(by_layer)}")
        _, to_source = by_layer[chosen]
        figures[pair], layers[chosen] = {"accuracy": 100 * to_source}, True
    return figures, ", ".join(layers)


def table(result: Result) -> str:
    """Return a table with languages as columns, and at the end the mean over them; over seeds with standard deviation."""
    columns = [*result.langs, "mean"]
    rows = [["", *columns]]
    for name in result.names:
        rows.append([name, *(spread(result.of(name, lang)) for lang in columns)])
    return "\n".join(aligned(rows))


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return the mean, with the standard deviation if there are several values, to so many decimals."""
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def summary(results: dict[str, Result]) -> dict[str, float]:
    """Return each task's average and, under "average", the mean over these tasks."""
    averages = {task: result.average() for task, result in results.items()}
    return {**averages, "average": mean(averages.values())}
