# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The page of all results: the situation, the gain, the cost, all figures, and the pictures of them."""

import math
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path

from figures import ARMS, RIVALS, Scores, cell, costs, lines_of_table, of_kind, of_set, scores, table, understood
from pictures import Pictures, draw

from veco_fairseq.errors import UserError
from veco_fairseq.files import write_text

GRID_PAIRS = 2000  # of captions, of the first grid, which is also that of fewer pairs
COMPARED = (*RIVALS, "veco", "no-stop", "veco-mono", "xlm-mono")
# With large batches, or begun with one of these.
LARGE = ("nmt-8", "xlm-8", "mbart-8", "veco-8", "veco-nmt", "from-xlm", "veco-nmt-8", "nmt-more-8", "no-stop-8",
         "xlm-updates-8")  # fmt: skip
HALF = ("nmt-half", "xlm-half", "mbart-half", "veco-half")
FEW = ("nmt-few", "nmt-half-few", "xlm-few", "veco-few")
LITTLE = ("nmt", "xlm", "veco")
ABLATIONS = ("no-bitext-s", "no-mono-s", "no-tlm", "no-stop", "mask-0.15", "mask-0.25", "mask-0.5")
# VECO, Table 5: XNLI, and IWSLT14 German to English, of the paper's small models; of its two mBARTs, the one that sees no pairs.
PAPER = {"xlm-mono": (59.8, 33.7), "mbart": (57.3, 32.9), "veco-mono": (60.6, 34.0), "xlm": (64.5, 33.9), "veco": (67.7, 36.0)}


def gain(these: list[float], others: list[float]) -> str:
    """The difference of the means, and with several runs of both its standard error."""
    if not these or not others:
        return ""
    difference = f"{statistics.mean(these) - statistics.mean(others):+.1f}"
    if min(len(these), len(others)) < 2:
        return difference
    error = math.sqrt(sum(statistics.variance(runs) / len(runs) for runs in (these, others)))
    return f"{difference} ± {error:.1f}"


def situations(found: Scores) -> list[str]:
    """VECO's BLEU and its gain over each rival: a direction and number of pairs a row."""
    rivals = [arm for arm in RIVALS if any(arm in of for by_size in found.values() for of in by_size.values())]
    rows = []
    for direction, by_size in found.items():
        for size, of in sorted(by_size.items()):
            if "veco" in of:
                gains = [gain(of["veco"], of.get(arm, [])) for arm in rivals]
                rows.append([f"{direction}, {size:,} pairs", cell(of["veco"]), *gains])
    return lines_of_table(["", "VECO", *(f"over {RIVALS[arm]}" for arm in rivals)], rows)


def of_little_dropout(runs: list[dict]) -> str:
    """A sentence with the arms that have the lower dropout of the grid, where they have more pairs than the grid's first data has."""
    arms: dict[int, set[str]] = defaultdict(set)
    for run in of_kind(runs, "translation"):
        if (size := int(run["data"].rpartition(".")[2])) > GRID_PAIRS and run.get("dropout") == "0.1":
            arms[size].add(run["arm"])
    names = {arm: ARMS[arm] for arm in (*RIVALS, "veco")} | {"random": "random weights"}
    parts = [
        f"{size:,} pairs ({', '.join(name for arm, name in names.items() if arm in arms[size])})"
        for size in sorted(arms)
        if not arms[size].isdisjoint(names)
    ]
    advice = "[more can be better](evidence.md#more-pairs-of-captions)"
    return f" Dropout is 0.1 with {' and '.join(parts)}, and {advice}." if parts else ""


def all_directions(found: Scores) -> list[str]:
    """A table for each direction, with a blank line between two."""
    return [line for direction, by_size in found.items() for line in (*table(by_size, direction), "")][:-1]


def beside_random(runs: list[dict], chosen: tuple[str, ...], what: str = "sacrebleu") -> list[str]:
    """BLEU of these arms, and of random weights, or another figure: a direction and number of pairs a row."""
    found = scores(runs, what)
    arms = [arm for arm in ("random", *chosen) if any(arm in of for by_size in found.values() for of in by_size.values())]
    rows = [
        [f"{direction}, {size:,} pairs", *(cell(of.get(arm, [])) for arm in arms)]
        for direction, by_size in found.items()
        for size, of in sorted(by_size.items())
        if any(arm in of for arm in chosen)
    ]
    return lines_of_table(["", *(ARMS[arm] for arm in arms)], rows)


def little_text(verses: list[dict]) -> list[str]:
    """BLEU of the languages with little text, and chrF below it."""
    bleu, chrf = (beside_random(verses, LITTLE, what) for what in ("sacrebleu", "chrf"))
    return [*bleu, "", *chrf] if bleu else []


def usual_size(runs: list[dict], arms: Collection[str]) -> int:
    """The number of pairs of en-de with which most of these arms were fine-tuned; of equal ones the highest. 0: there is none."""
    sizes = scores(of_kind(runs, "translation"), "sacrebleu").get("en-de", {})
    return max(sizes, key=lambda size: (len(sizes[size].keys() & set(arms)), size), default=0)


def spent(updates: float, operations: float | None) -> str:
    """Updates and, where they were counted, operations."""
    return f"{updates:,.0f}" + (f", {operations:.1e}".replace("e+", "e") if operations else "")


def cost(runs: list[dict]) -> list[str]:
    """What pre-training cost, and fine-tuning until validation was best, by arm."""
    pretraining, size = costs(runs), usual_size(runs, COMPARED)
    rows = []
    for arm in COMPARED:
        mine = [entry for entry in of_kind(runs, "translation") if (entry["arm"], entry["data"]) == (arm, f"en-de.{size}")]
        if not mine:
            continue
        before, minutes = "none" if arm == "random" else "", ""
        if arm in pretraining:
            figures = pretraining[arm]
            before = spent(figures["updates"], figures["operations"])
            minutes = f"{figures['seconds'] / 60:.0f}" if figures["seconds"] else ""
        updates = statistics.median(entry["updates"] for entry in mine)
        of_one = [entry["operations"] / entry["updates"] for entry in mine if entry.get("operations")]
        after = spent(updates, updates * statistics.median(of_one) if of_one else None)
        rows.append([ARMS[arm], before, minutes, after])
    after = f"fine-tuning, en-de, {size:,} pairs: updates to the best, operations"
    return lines_of_table(["", "pre-training: updates, operations", "minutes", after], rows)


def beside_the_paper(runs: list[dict]) -> list[str]:
    """The paper's Table 5, and what stands for it here: XNLI, and en-de with the number of pairs that most models have."""
    xnli: dict[str, list[float]] = {}
    for entry in of_kind(runs, "understanding"):
        if entry["task"] == "xnli":
            xnli.setdefault(f"{entry['arm']}.{entry['plug']}", []).append(entry["score"])
    arms = {name: PAPER[arm] for arm in PAPER for name in (arm, f"{arm}-8")}
    size = usual_size(runs, arms)
    found = scores(of_kind(runs, "translation"), "sacrebleu").get("en-de", {}).get(size, {})
    rows = []
    for arm, figures in arms.items():
        plugs = [f"{words}{cell(xnli[key])}" for key, words in ((f"{arm}.out", ""), (f"{arm}.in", "plugged in ")) if key in xnli]
        if plugs or arm in found:
            rows.append([ARMS[arm], "; ".join(plugs), str(figures[0]), cell(found.get(arm, [])), str(figures[1])])
    bleu = f"BLEU, en-de, {size:,} pairs" if size else "BLEU"
    return lines_of_table(["", "XNLI", "the paper's", bleu, "the paper's, IWSLT14"], rows)


def ingredients(runs: list[dict]) -> list[str]:
    """What each ingredient brings: VECO beside it with the same seeds alone."""
    columns: dict[str, Callable[[dict], bool]] = {
        "BLEU, en-de": lambda entry: entry["kind"] == "translation",
        "Tatoeba": lambda entry: entry.get("task") == "tatoeba",
        "FLORES": lambda entry: entry.get("task") == "flores",
    }
    seeds = {(entry["data"], entry["pretraining"], entry["seed"]) for entry in of_kind(runs, "translation")
             if entry["arm"] in ABLATIONS and entry["arm"] != "no-stop"}  # fmt: skip
    pretrainings = {pretraining for _, pretraining, _ in seeds}
    rows = []
    for arm in ("veco", *ABLATIONS) if seeds else ():
        mine = [
            entry for entry in runs
            if entry["arm"] == arm and (entry["kind"] == "retrieval" and entry["pretraining"] in pretrainings
                                        or entry["kind"] == "translation" and (entry["data"], entry["pretraining"], entry["seed"]) in seeds)
        ]  # fmt: skip
        figures = [[entry.get("sacrebleu", entry.get("score")) for entry in mine if of(entry)] for of in columns.values()]
        if mine:
            rows.append([ARMS[arm], *map(cell, figures)])
    return lines_of_table(["", *columns], rows)


def depth(runs: list[dict]) -> list[str]:
    """BLEU and the highest speed of each decoder."""
    rows = []
    for arm in (arm for arm in ARMS if arm.startswith("deep-")):
        mine = [entry for entry in of_kind(runs, "translation") if entry["arm"] == arm]
        if mine:
            speeds = [entry["sentences_per_second"] for entry in mine if entry.get("sentences_per_second")]
            rows.append([ARMS[arm], cell([entry["sacrebleu"] for entry in mine]), f"{max(speeds):.0f}" if speeds else ""])
    return lines_of_table(["decoder", "BLEU", "sentences a second"], rows)


def side_by_side(pictures: list[tuple[str, str]]) -> list[str]:
    """A table with a picture in each column, below what it is over."""
    return lines_of_table(
        [over for over, _ in pictures], [[f"![over {over}]({file})" for over, file in pictures]] if pictures else []
    )


def wrapped(words: str) -> str:
    """A paragraph."""
    return textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def page(runs: list[dict], *, source: str, measured: str, pictures: Pictures) -> str:
    """The page as Markdown; what has no results is left out.

    Args:
        source: the file of results, as a reader gives it to table.py.
        measured: the machine and the date.
        pictures: what :func:`draw` has drawn.
    """
    verses, runs = (of_set(runs, texts) for texts in ("bible", "captions"))
    compared = [entry for entry in runs if entry["arm"] in COMPARED]
    found = scores(compared, "sacrebleu")
    if not situations(found):
        raise UserError(f"{source}: has no translation by VECO, of which the page is made: run compare.sh first")
    command = f"python data-bin-recipes/evidence/table.py {source} --page MD --measured TEXT"
    parts: list[tuple[str, str, list[str]]] = [
        ("The situation, and the gain", "sacreBLEU of VECO, and how much more it is than each rival's: means over the runs, and the "
         "standard error of the difference, which takes all runs for independent. With one run of either there is none."
         + (" With [half the learning rate](#with-half-the-learning-rate) of pre-training a rival can be better."
                        if beside_random(runs, HALF) else "")
         + of_little_dropout(compared), situations(found)),
        ("The cost", "Operations are those of matrix products, forward and backward. Fine-tuning has the median of the updates, and their "
         "operations where an update's were counted. Other work on "
         "the machine makes minutes longer.", cost(runs)),
        ("Learning curves", "Validation in fine-tuning with the first seeds, until it has become no better for some time: over the "
         "updates, and over all operations, with those of pre-training before the first update. The second picture leaves out what has "
         "no count of operations.",
         side_by_side(pictures.get("learning", []))),
        ("All directions", "sacreBLEU: mean, standard deviation and number of runs.", all_directions(found)),
        ("All directions, in chrF", "chrF2: mean, standard deviation and number of runs.", all_directions(scores(compared, "chrf"))),
        ("With half the learning rate", "sacreBLEU after pre-training with a learning rate of 1e-3, where the same arm has 2e-3 above. "
         "Mean, standard deviation and number of runs.", beside_random(runs, HALF)),
        ("With five times the operations", "sacreBLEU after pre-training in batches eight times as large, on a GPU. What goes on as NMT "
         "first has the operations of both. Mean, standard deviation and number of runs.", beside_random(runs, LARGE)),
        ("With few pairs, and much text in one language", "sacreBLEU after pre-training with 2,000 pairs of each language pair beside "
         "all of the monolingual text, in large batches. Mean, standard deviation and number of runs.", beside_random(runs, FEW)),
        ("Languages with little text", "Pre-training has books of the Bible in eleven languages, and their pairs with English. "
         "Fine-tuning has the pairs of one language, and translates verses of other books: sacreBLEU, and chrF2 below. Mean, standard "
         "deviation and number of runs.", little_text(verses)),
        ("Understanding and retrieval", "Accuracy, F1 of parts of speech, and the share of sentences whose translation is the "
         "nearest, in per cent; the mean over languages.", understood([entry for entry in runs if entry["arm"] in (*COMPARED, "xlme", *LARGE, *FEW)])),
        ("Beside the paper's Table 5", "The paper's models are larger and have seen more text, and its translation is German to "
         "English of talks. So compare the order of the rows, and not the figures. mBART sees no pairs in either.", beside_the_paper(runs)),
        ("What each ingredient brings", "Each with VECO's settings and as many updates, by the same seeds, or the first of them.", ingredients(runs)),
        ("The decoder's depth", "The fastest of the runs counts for the speed.",
         depth(runs) + [f"\n![BLEU over {over}]({file})" for over, file in pictures.get("depth", [])]),
    ]  # fmt: skip
    text = [
        "# When does pre-training pay?\n",
        wrapped(
            "This page compares VECO with random weights, XLM, mBART, and NMT first: a translation model of all pairs of "
            "pre-training. Each is fine-tuned to translate image captions, which pre-training has not seen. [In "
            "short](evidence.md#in-short) says what to take in which situation. In the tables, the number of runs stands in brackets."
        ),
    ]
    text += [f"![VECO's lead over each rival, by the {over}]({file})\n" for over, file in pictures.get("gain", [])]
    for title, words, lines in parts:
        if lines:
            text += [f"## {title}\n", wrapped(words), "\n".join(lines) + "\n"]
    text += [
        "## How it was made\n",
        wrapped(
            f"Measured on {measured}. [The recipe](../../data-bin-recipes/evidence/README.md) says how each model is pre-trained. Its "
            f"file `settings` was fixed before a test set was read. These came later: the updates of `nmt`, `mbart` and `xlme`, the "
            f"grid of 8,000 pairs, the trainings with large batches, with few pairs, those that begin with another one, those with half the "
            f"learning rate, and `xlm-updates` with the settings of `xlm`. This command makes the page, so please do not edit it:"
        ),
        f"    {command}\n",
    ]
    return "\n".join(text)


def write_page(runs: list[dict], output: Path, *, source: str, measured: str) -> None:
    """Write the page, and its pictures beside it."""
    page(runs, source=source, measured=measured, pictures={})  # first, so that nothing is left when there is nothing
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, page(runs, source=source, measured=measured, pictures=draw(runs, output.parent)))
