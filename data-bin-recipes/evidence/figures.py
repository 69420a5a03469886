# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The results of the comparisons, by arm, and Markdown tables of them."""

import json
from collections import defaultdict
from itertools import chain
from pathlib import Path
from statistics import mean

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines
from veco_fairseq.understanding.xtreme import spread

ARMS = {
    "random": "random",
    "nmt": "NMT first",
    "nmt-more": "NMT first, 1.4 times the operations",
    "xlm": "XLM",
    "mbart": "mBART",
    "veco": "VECO",
    "no-stop": "VECO, gradient into the memory",
    "xlm-updates": "XLM, as many updates as VECO",
    "veco-mono": "VECO, monolingual text alone",
    "xlm-mono": "XLM, monolingual text alone",
    "xlme": "XLM-E",
    "nmt-half": "NMT first, half the learning rate",
    "xlm-half": "XLM, half the learning rate",
    "mbart-half": "mBART, half the learning rate",
    "veco-half": "VECO, half the learning rate",
    "nmt-8": "NMT first, large batches",
    "xlm-8": "XLM, large batches",
    "mbart-8": "mBART, large batches",
    "veco-8": "VECO, large batches",
    "veco-nmt": "VECO, large batches, then NMT first: six times the operations",
    "from-xlm": "XLM, large batches, then VECO: five and a half times the operations",
    "veco-nmt-8": "VECO, then NMT first, both in large batches: ten times the operations",
    "nmt-more-8": "NMT first, large batches: ten times the operations",
    "no-stop-8": "VECO, gradient into the memory, large batches",
    "xlm-updates-8": "XLM, as many updates as VECO, large batches",
    "nmt-few": "NMT first, few pairs",
    "nmt-half-few": "NMT first, few pairs, half the learning rate",
    "xlm-few": "XLM, few pairs",
    "veco-few": "VECO, few pairs",
    **{
        f"{arm}-long": f"{name}, 27 times the operations"
        for arm, name in (("nmt", "NMT first"), ("xlm", "XLM"), ("veco", "VECO"))
    },
    "no-bitext-s": "VECO without S on bitext",
    "no-mono-s": "VECO without S on monolingual segments",
    "no-tlm": "VECO without TLM",
    "mask-0.15": "VECO, 15% of bitext hidden",
    "mask-0.25": "VECO, 25% of bitext hidden",
    "mask-0.5": "VECO, 50% of each side of bitext hidden",
    "deep-all-6": "VECO of 6 layers, all",
    **{f"deep-{which}-{layers}": f"VECO of 6 layers, {which} {layers}" for layers in (3, 2, 1) for which in ("last", "first")},
    "deep-spread-3": "VECO of 6 layers, 3 spread",
    "deep-spread-2": "VECO of 6 layers, 2 spread",
    **{f"deep-random-{layers}": f"VECO of 6 layers, {layers} at random" for layers in (3, 2, 1)},
}
# What VECO is compared with, where it was run.
RIVALS = {"random": "random weights", "nmt": "NMT first", "nmt-more": "NMT first, 1.4 times the operations",
          "xlm": "XLM, equal operations", "mbart": "mBART",
          "xlm-updates": "XLM, equal updates"}  # fmt: skip
TASKS = {
    "xnli": "XNLI",
    "udpos": "parts of speech, from English",
    "pud": "parts of speech",
    "tatoeba": "Tatoeba",
    "flores": "FLORES",
}

Scores = dict[str, dict[int, dict[str, list[float]]]]  # direction -> pairs -> arm -> a figure of each run


# What tells a run from all others of its set, machine and settings, by its kind; the first lines that were written have no kind.
# A machine is written into a line by hand, where the same seeds were run on two.
KEYS = {
    "translation": ("arm", "data", "pretraining", "seed"),
    "understanding": ("task", "arm", "plug", "pretraining", "seed"),
    "retrieval": ("task", "arm", "pretraining"),
    "cost": ("arm", "seed"),
}


def set_of(line: dict) -> str:
    """The texts that a line of results tells of, as ``--set`` names them."""
    return line.get("set", "captions")


def settings_of(line: dict) -> tuple:
    """The learning rate and dropout of a fine-tuning."""
    return line.get("lr"), line.get("dropout")


def read_results(path: Path) -> list[dict]:
    """The runs in a file of results, each with its kind; of a run that is there twice from one machine, the last."""
    runs = {}
    for number, line in enumerate(read_lines(path), 1):
        try:
            entry = {"kind": "translation", **json.loads(line)}
            if entry["arm"] not in ARMS:
                raise ValueError(f"no arm is called {entry['arm']}")
            same = ("kind", *KEYS[entry["kind"]])
            runs[(set_of(entry), entry.get("machine"), settings_of(entry), *(entry[name] for name in same))] = entry
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}, line {number}: is not a line of results: remove it ({error})") from error
    if not runs:
        raise UserError(f"{path}: has no results: run compare.sh first")
    return list(runs.values())


def of_kind(runs: list[dict], *kinds: str) -> list[dict]:
    """The runs of these kinds."""
    return [entry for entry in runs if entry["kind"] in kinds]


def of_best_settings(runs: list[dict]) -> list[dict]:
    """The runs. Of the fine-tunings of an arm on the same text, only those whose settings validation prefers (by their mean)."""
    tried: dict[tuple, dict[tuple, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for entry in of_kind(runs, "translation"):
        tried[set_of(entry), entry["arm"], entry["data"]][settings_of(entry)].append(entry)
    worse: list[dict] = []
    for by_settings in tried.values():
        if len(by_settings) > 1:
            ranked = sorted(by_settings.values(), key=lambda entries: mean(entry["valid_loss"] for entry in entries))
            worse += chain.from_iterable(ranked[1:])
    return [entry for entry in runs if not any(entry is other for other in worse)]


def of_set(runs: list[dict], texts: str) -> list[dict]:
    """The runs with these texts."""
    return [entry for entry in runs if set_of(entry) == texts]


def costs(runs: list[dict]) -> dict[str, dict]:
    """What each arm's pre-training cost; of several seeds the first counts, as for the learning curves."""
    return {entry["arm"]: entry for entry in sorted(of_kind(runs, "cost"), key=lambda entry: -int(entry["seed"]))}


def lines_of_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table; none without rows."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(row)} |" for row in lines] if rows else []


def scores(runs: list[dict], what: str) -> Scores:
    """The runs' figures of this name, by direction, number of pairs and arm."""
    found: Scores = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for entry in of_kind(runs, "translation"):
        direction, _, pairs = entry["data"].rpartition(".")
        if entry.get(what) is not None:  # the first lines have no speed
            found[direction][int(pairs)][entry["arm"]].append(entry[what])
    return found


def cell(values: list[float], digits: int = 1) -> str:
    """The mean of the runs, and with several the standard deviation and their number."""
    return f"{spread(values, digits)} ({len(values)})" if values else ""


def table(of_direction: dict[int, dict[str, list[float]]], direction: str, digits: int = 1) -> list[str]:
    """The lines of a direction's table: an arm a row, a number of pairs a column."""
    sizes = sorted(of_direction)
    rows = [
        [ARMS[arm], *(cell(of_direction[size].get(arm, []), digits) for size in sizes)]
        for arm in ARMS
        if any(arm in of_size for of_size in of_direction.values())
    ]
    return lines_of_table([direction, *(f"{size:,} pairs" for size in sizes)], rows)


def understood(runs: list[dict]) -> list[str]:
    """The lines of the table of understanding and retrieval: a model a row, a task a column."""
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in of_kind(runs, "understanding", "retrieval"):
        found[entry["arm"], entry["plug"]][entry["task"]].append(entry["score"])
    tasks = [task for task in TASKS if any(task in of_model for of_model in found.values())]
    lines = [f"| | {' | '.join(TASKS[task] for task in tasks)} |", f"| --- |{' --- |' * len(tasks)}"]
    for arm, plug in ((arm, plug) for arm in ARMS for plug in ("out", "in") if (arm, plug) in found):
        name = ARMS[arm] + ", plugged in" * (plug == "in")
        lines.append(f"| {name} | {' | '.join(cell(found[arm, plug].get(task, [])) for task in tasks)} |")
    return lines if tasks else []
