# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The tasks' figures, computed from sums over examples, which can be added up over batches, workers and languages."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import eq

from veco_fairseq.data.languages import known_as

Sums = dict[str, float]

# The sums of each kind of task; for tags, of spans and of words.
SUMS = {"classification": ("correct", "count"), "tagging": ("correct", "predicted", "gold", "right", "words"),
        "span": ("f1", "exact", "count")}  # fmt: skip


def figures(sums: Sums) -> dict[str, float]:
    """Return figures in per cent: "accuracy" of labels; "f1" (of spans) and "accuracy" of tags; "f1" and "exact" of answers.

    Args:
        sums: of :data:`SUMS`; without any counts the figures are 0.
    """
    if "gold" in sums:
        f1 = 200 * sums["correct"] / max(1, sums["predicted"] + sums["gold"])
        return {"f1": f1, "accuracy": 100 * sums["right"] / max(1, sums["words"])}
    count = max(1, sums["count"])
    if "exact" in sums:
        return {name: 100 * sums[name] / count for name in ("f1", "exact")}
    return {"accuracy": 100 * sums["correct"] / count}


def judged_by(names: Collection[str]) -> list[str]:
    """Return the figures whose mean is a task's score in XTREME: for tags only F1, not the accuracy.

    Args:
        names: of the figures from :func:`figures`.
    """
    return [name for name in names if name != "accuracy" or "f1" not in names]


def score(sums: Sums) -> float:
    """Return one number, as in XTREME's averages: accuracy or F1, for answers the mean of F1 and exact match."""
    found = figures(sums)
    names = judged_by(found)
    return sum(found[name] for name in names) / len(names)


def of_label(predicted: str, gold: str) -> Sums:
    """Return the sums for a sentence pair."""
    return {"correct": float(predicted == gold), "count": 1.0}


def of_tags(predicted: Sequence[str], gold: Sequence[str]) -> Sums:
    """Return the sums for a sentence: its words, and its spans (see :func:`spans`) for XTREME's F1 of both tagging tasks.

    A word whose gold tag is empty does not count, and is in no span of either side.
    """
    mine, right = spans([tag if of_gold else "O" for tag, of_gold in zip(predicted, gold)]), spans([tag or "O" for tag in gold])
    return {
        "correct": len(mine & right),
        "predicted": len(mine),
        "gold": len(right),
        "right": sum(map(eq, predicted, gold)),
        "words": sum(map(bool, gold)),
    }


def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return (type, first word, last word) of each span, as conlleval and XTREME's seqeval 0.0.12 count them.

    The first letter of a tag gives the word's position in a span (B: first, I: inside, E: last, S: the only word, O: in no
    span). The text after the last hyphen is the type. XTREME gives parts of speech to the same script. Then a run of equal
    tags is a span, except that each SYM and each SCONJ is its own span because of its S. Later versions of seqeval drop
    the first letter of such tags, so that they confuse CCONJ and SCONJ. XTREME's test of its script has the numbers of
    0.0.12.
    """
    found = set()
    first, before, kind_before = 0, "O", ""
    for place, tag in enumerate([*tags, "O"]):
        letter, kind = tag[:1], tag.rpartition("-")[2]
        of_another = kind != kind_before
        if (
            before in ("E", "S")
            or (before in ("B", "I") and letter in ("B", "S", "O"))
            or (before not in ("O", ".") and of_another)
        ):
            found.add((kind_before, first, place - 1))
        if (
            letter in ("B", "S")
            or (before in ("E", "S", "O") and letter in ("E", "I"))
            or (letter not in ("O", ".") and of_another)
        ):
            first = place
        before, kind_before = letter, kind
    return found


def of_answer(predicted: str, gold: Sequence[str], *, metric: str = "squad", lang: str = "en", no_answer: bool = False) -> Sums:
    """Return the sums for a question, against the gold answer that fits best.

    Args:
        predicted: the answer; empty for none.
        gold: the right answers, at least one without ``no_answer``.
        metric: "squad" (Rajpurkar et al. 2016; also for XQuAD and TyDiQA) or "mlqa" (Lewis et al. 2020). MLQA knows each
            language's articles and all of Unicode's punctuation, and counts each Chinese character as a word.
        lang: the language, for "mlqa".
        no_answer: questions may have no answer, as in SQuAD 2.0. Its script gives full marks if neither side has a word.
            The scripts of SQuAD 1.1 and MLQA then give F1 0, since no word is shared, and exact match 1.
    """
    words: Callable[[str], list[str]] = squad_words if metric == "squad" else lambda text: mlqa_words(text, lang)
    mine = words(predicted)
    rights = [words(answer) for answer in gold]
    if no_answer:
        rights = [right for right in rights if right] or [[]]
    f1 = max(float(mine == right) if no_answer and not right else _overlap(mine, right) for right in rights)
    return {"f1": f1, "exact": float(mine in rights), "count": 1.0}


def _overlap(mine: Sequence[str], right: Sequence[str]) -> float:
    """Return the F1 of two bags of words."""
    return 2 * sum((Counter(mine) & Counter(right)).values()) / max(1, len(mine) + len(right))


def squad_words(text: str) -> list[str]:
    """Return the words that SQuAD compares: lower-cased, without ASCII punctuation and English articles."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "ar": r"\sال^|ال",
}


def mlqa_words(text: str, lang: str) -> list[str]:
    """Return the words that MLQA compares in a language, such as zh, zh-Hans or zho."""
    lang = known_as(lang)
    text = "".join(char for char in text.lower() if char not in string.punctuation and unicodedata.category(char)[0] != "P")
    if lang in ARTICLES:
        text = re.sub(ARTICLES[lang], " ", text)
    if lang == "zh":
        text = re.sub(r"([\u4e00-\u9fa5])", r" \1 ", text)
    return text.split()
