# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Turns logits into labels, tags and answers, and these into figures."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from unicodedata import category

import torch
from torch import Tensor

from veco_fairseq.understanding import metrics
from veco_fairseq.understanding.dataset import Side
from veco_fairseq.understanding.examples import Question, SentencePair, TaggedSentence
from veco_fairseq.understanding.metrics import Sums

LONGEST_ANSWER = 30  # tokens, as in SQuAD's and XTREME's baselines


class Prediction(NamedTuple):
    """The model's prediction for an example: a label, its words' tags, or an answer (empty if there is none)."""

    side: Side
    value: str | list[str]


def predictions(
    batch: dict[str, Any], logits: Tensor, *, nlu_task: str, labels: Sequence[str], no_answer: bool = False
) -> Iterator[Prediction]:
    """Yield the predictions for a batch of :class:`veco_fairseq.understanding.dataset.UnderstandingDataset`.

    Args:
        logits: from :class:`veco_fairseq.models.nlu.VecoNluModel`.
        labels: the classes or tags, in the order of the model's outputs.
        no_answer: whether a question may have no answer.
    """
    logits = logits.float().cpu()
    if nlu_task != "span":
        named = [labels[number] for number in logits.argmax(-1).tolist()]
    if nlu_task == "tagging":
        words = batch["net_input"]["words"].cpu()
    for side, rows in batch["rows"]:
        if nlu_task == "classification":
            yield Prediction(side, named[rows[0]])
        elif nlu_task == "tagging":
            here = words[rows[0] : rows[-1] + 1]
            yield Prediction(side, named[int(here[here.ge(0)].min()) : int(here.max()) + 1])
        else:
            yield Prediction(side, best_answer(side, logits[rows[0] : rows[-1] + 1], no_answer))


def best_answer(side: Side, logits: Tensor, no_answer: bool) -> str:
    """Return the substring of the context whose first and last token have the highest sum of logits in any window.

    Args:
        side: a question.
        logits: of its windows, (windows, length, 2).
        no_answer: return an empty text if ``<s>`` for both is higher in every window.
    """
    assert isinstance(side.example, Question)
    best, answer, nothing = -float("inf"), "", float("inf")
    for window, (start, end) in zip(side.windows, logits.transpose(1, 2)):
        offsets = torch.from_numpy(window.offsets)
        first, last = start[: len(offsets)], end[: len(offsets)]
        nothing = min(nothing, float(first[0] + last[0]))
        in_context = offsets[:, 0].ge(0)
        sums = first[:, None] + last[None, :]
        allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
        allowed &= in_context[:, None] & in_context[None, :]
        sums = sums.masked_fill(~allowed, -float("inf"))
        top = int(sums.argmax())
        value = float(sums.flatten()[top])
        if value > best:
            best = value
            answer = _cut(side.example.context, int(offsets[top // len(offsets), 0]), int(offsets[top % len(offsets), 1]))
    return "" if no_answer and nothing > best else answer


def _cut(context: str, start: int, end: int) -> str:
    """Return a part of a context, with marks of format behind it, such as U+200B.

    They belong to the word before them, as for XTREME's script, which cuts at spaces, and as in MLQA's answers.
    """
    while category(context[end : end + 1] or " ") == "Cf":
        end += 1
    return context[start:end].strip()


def sums_by_language(found: Sequence[Prediction], nlu_task: str, answer_metric: str, no_answer: bool = False) -> dict[str, Sums]:
    """Return the sums of :data:`veco_fairseq.understanding.metrics.SUMS` over the examples with a gold label.

    Args:
        no_answer: a question without an answer counts as having none, and not as unlabelled.
    """
    total: dict[str, Sums] = defaultdict(lambda: dict.fromkeys(metrics.SUMS[nlu_task], 0.0))
    for prediction in found:
        sums = _sums(prediction, answer_metric, no_answer)
        for name, value in (sums or {}).items():
            total[prediction.side.lang][name] += value
    return total


def _sums(prediction: Prediction, answer_metric: str, no_answer: bool) -> Sums | None:
    match prediction.side.example, prediction.value:
        case SentencePair(label=label), str(predicted):
            return metrics.of_label(predicted, label) if label else None
        case TaggedSentence(tags=tags), list(predicted_tags):
            return metrics.of_tags(predicted_tags, tags) if tags else None
        case Question(answers=answers), str(predicted):
            if not answers and not no_answer:
                return None
            gold = [text for _, text in answers]
            return metrics.of_answer(predicted, gold, metric=answer_metric, lang=prediction.side.lang, no_answer=no_answer)
    raise TypeError(f"{prediction.value!r} is no prediction for a {type(prediction.side.example).__name__}")
