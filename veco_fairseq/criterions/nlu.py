# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--criterion veco_nlu``: cross-entropy, and the task's own figures in validation."""

import math
from functools import partial
from typing import Any

import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from veco_fairseq.understanding.metrics import score
from veco_fairseq.understanding.windows import IGNORE


def mean_score(meters: dict[str, Any], langs: dict[str, list[str]]) -> float:
    """Return the mean of the scores of all languages that have labels; 0 if none has.

    Args:
        meters: fairseq's.
        langs: language -> the names of its sums.
    """
    sums = [{name: meters[f"_{lang}/{name}"].sum for name in names} for lang, names in langs.items()]
    scores = [score(of_lang) for of_lang in sums if any(of_lang.values())]
    return round(sum(scores) / max(1, len(scores)), 2)


@register_criterion("veco_nlu", dataclass=FairseqDataclass)
class NluCriterion(FairseqCriterion):
    """The NLL of the labels, the tags, or the answers' first and last tokens.

    The log has ``loss`` (bits a prediction) and ``acc`` (share of right ones). Validation also has each language's
    ``LANG_score`` in per cent (accuracy, F1 of spans of tags, or the mean of F1 and exact match), and ``score``, their
    mean. Choose a checkpoint by it with ``--best-checkpoint-metric score --maximize-best-checkpoint-metric``.
    """

    def forward(self, model, sample, reduce: bool = True) -> tuple[Tensor, int, dict]:
        """Return the loss of a batch (nats, summed), the number of its predictions, and the figures to log."""
        logits = model(**sample["net_input"])
        target = sample["target"]
        if logits.dim() == 3:  # questions: over the positions in the window, for the first and for the last token
            padding = sample["net_input"]["tokens"].eq(self.task.source_dictionary.pad())
            logits = logits.masked_fill(padding.unsqueeze(-1), -math.inf).transpose(1, 2)
        flat, gold = logits.flatten(0, -2), target.flatten()
        loss = F.cross_entropy(flat, gold, ignore_index=IGNORE, reduction="sum")
        sample_size = int(gold.ne(IGNORE).sum())
        log = {
            "loss": loss.detach(),
            "correct": flat.argmax(-1).eq(gold).sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": sample_size,
        }
        if not self.training:
            logits = logits.transpose(1, 2) if logits.dim() == 3 else logits
            log.update(self.task.validation_sums(sample, logits))
        return loss, sample_size, log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the loss, and the scores of validation."""
        total = {key: sum(utils.item(log[key]) for log in logging_outputs) for key in logging_outputs[0]}
        count = total["sample_size"]  # 0 where nothing has a label, which is no part of the means
        metrics.log_scalar("loss", total["loss"] / max(1, count) / math.log(2), count, priority=10, round=3)
        metrics.log_scalar("acc", total["correct"] / max(1, count), count, priority=20, round=4)
        langs: dict[str, list[str]] = {}
        for key, value in total.items():
            if "/" in key:  # fairseq prints no name that begins with "_"
                metrics.log_scalar_sum(f"_{key}", value)
                langs.setdefault(key.split("/")[0], []).append(key.split("/")[1])
        # From the sums over all batches so far: an F1 is not the mean of the batches' F1.
        for lang, names in langs.items():
            metrics.log_derived(f"{lang}_score", partial(mean_score, langs={lang: names}), priority=30)
        if langs:
            metrics.log_derived("score", partial(mean_score, langs=langs), priority=25)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
