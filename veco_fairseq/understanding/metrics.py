# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The tasks' figures, as sums over examples, so that batches, workers and languages can be added up."""

import re
import string
import unicodedata
from collections import Counter
from typing import Callable, Dict, List, Sequence, Set, Tuple

Sums = Dict[str, float]

# What is summed for each kind of task, and the figure that a task is judged by: XTREME's.
SUMS = {"classification": ("correct", "count"), "tagging": ("correct", "predicted", "gold"),
        "span": ("f1", "exact", "count")}  # fmt: skip


def figures(sums: Sums) -> Dict[str, float]:
    """Per cent: "accuracy"; or "f1" (of tags or spans of tags); or "f1" and "exact" (of answers).

    Args:
        sums: of :data:`SUMS`' kinds; zero if nothing was counted.
    """
    if "gold" in sums:
        return {"f1": 200 * sums["correct"] / max(1, sums["predicted"] + sums["gold"])}
    count = max(1, sums["count"])
    if "exact" in sums:
        return {name: 100 * sums[name] / count for name in ("f1", "exact")}
    return {"accuracy": 100 * sums["correct"] / count}


def score(sums: Sums) -> float:
    """One number: accuracy or F1, of answers the mean of F1 and exact match, as XTREME's averages have it."""
    found = figures(sums)
    return sum(found.values()) / len(found)


def of_label(predicted: str, gold: str) -> Sums:
    """A sentence pair."""
    return {"correct": float(predicted == gold), "count": 1.0}


def of_tags(predicted: Sequence[str], gold: Sequence[str]) -> Sums:
    """A sentence: the spans of B- and I- tags, or where the tags are of another kind each word's."""
    if all(tag == "O" or tag[:2] in ("B-", "I-") for tag in gold):
        mine, right = spans(predicted), spans(gold)
    else:
        mine, right = set(enumerate(predicted)), set(enumerate(gold))
    return {"correct": float(len(mine & right)), "predicted": float(len(mine)), "gold": float(len(right))}


def spans(tags: Sequence[str]) -> Set[Tuple[str, int, int]]:
    """(type, first word, last word) of what is tagged B-TYPE I-TYPE ..., as conlleval and seqeval count them.

    An I- after a word of another type begins a span, too.
    """
    found = set()
    first, previous = 0, "O"
    for place, tag in enumerate([*tags, "O"]):
        goes_on = tag[:2] == "I-" and tag[2:] == previous[2:]
        if not goes_on:
            if previous != "O":
                found.add((previous[2:], first, place - 1))
            first = place
        previous = tag
    return found


def of_answer(predicted: str, gold: Sequence[str], metric: str = "squad", lang: str = "en") -> Sums:
    """A question: against the gold answer that fits best; no gold answer is right when nothing is predicted.

    Args:
        predicted: the answer, or empty for none.
        gold: the answers that are right.
        metric: "squad" (Rajpurkar et al. 2016: also of XQuAD and TyDiQA) or "mlqa" (Lewis et al. 2020), which has each
            language's articles, all of Unicode's punctuation, and takes each Chinese character for a word.
        lang: the language, for "mlqa".
    """
    words: Callable[[str], List[str]] = squad_words if metric == "squad" else lambda text: mlqa_words(text, lang)
    mine = words(predicted)
    rights = [words(answer) for answer in gold] or [[]]
    exact = max(mine == right for right in rights)
    return {"f1": max(_overlap(mine, right) for right in rights), "exact": float(exact), "count": 1.0}


def _overlap(mine: Sequence[str], right: Sequence[str]) -> float:
    """The F1 of two bags of words."""
    if not mine or not right:
        return float(mine == right)
    return 2 * sum((Counter(mine) & Counter(right)).values()) / (len(mine) + len(right))


def squad_words(text: str) -> List[str]:
    """The words that SQuAD compares: lower case, without ASCII punctuation and English articles."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "ar": r"\sال^|ال",
}


def mlqa_words(text: str, lang: str) -> List[str]:
    """The words that MLQA compares in a language."""
    text = "".join(
        char for char in text.lower() if char not in string.punctuation and unicodedata.category(char)[0] != "P"
    )
    if lang in ARTICLES:
        text = re.sub(ARTICLES[lang], " ", text)
    if lang == "zh":
        text = re.sub(r"([\u4e00-\u9fa5])", r" \1 ", text)
    return text.split()
