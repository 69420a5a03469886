# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The log that the criterions of pre-training share: every term of the loss, by kind of batch, language and pair."""

import math
from collections.abc import Callable
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from torch import Tensor

from veco_fairseq.data.masking import Masker
from veco_fairseq.data.plan import KINDS

# With more languages and pairs than this, validation logs only each one's loss, not the figures of all terms.
SOURCES_IN_DETAIL = 20


class PretrainingCriterion(FairseqCriterion):
    """A loss of several terms, whose sums add up over batches and workers.

    Attributes:
        terms: the sums of each term, by its name: "nll" (nats), "count" (of summands), "correct" (right predictions), and
            others that the criterion logs.
        masker: makes this objective's :class:`veco_fairseq.data.masking.Masker` from the dictionary, the id of
            ``<mask>``, and the share of the tokens to predict.
        loss_is: explains the log's ``loss`` in one sentence, for a reader who sees it for the first time.
        needs: an option that was given, and the kind of batch without which a part of the model would learn nothing; or None.
        chooses_operations_by_values: whether those of an update depend on the weights, and not on the batch alone.
    """

    terms: dict[str, list[str]] = {}
    masker: Callable[..., Masker] = Masker
    loss_is = ""
    needs: tuple[str, str] | None = None
    chooses_operations_by_values = False

    def begin_update(self, update: int, model, sample: dict[str, dict]) -> None:
        """Prepare what the batches of a sample need together, before each is trained on; here nothing.

        Args:
            update: the number of the update.
            model: the model in training.
            sample: kind -> batch.
        """

    def task_state(self) -> dict[str, Any]:
        """Return what checkpoints keep of the criterion, in the task's state; here nothing."""
        return {}

    def load_task_state(self, state: dict[str, Any]) -> None:
        """Take over a result of :meth:`task_state`."""

    def logging_output(self, sample: dict, sums: dict[str, dict], loss: Tensor, sample_size: int) -> dict:
        """Return sums with the same keys on every worker, so that they can be added up.

        Args:
            sample: a batch of one kind, from :class:`veco_fairseq.data.dataset.PretrainingDataset`.
            sums: of the terms that the batch has, by name.
            loss: of the batch, nats.
            sample_size: fairseq divides the sum of the losses by the sum of these.
        """
        log = {"loss": loss.detach(), "ntokens": sample["ntokens"], "nsentences": sample["nsentences"]}
        log["sample_size"] = sample_size
        for kind in KINDS:
            log[f"{kind}_pairs"] = sample["nsentences"] * (kind == sample["kind"])
            log[f"{kind}_tokens"] = sample["ntokens"] * (kind == sample["kind"])
        zero = torch.zeros_like(log["loss"])
        names = [] if self.training else self.task.validation_names
        for name in [None, *names]:
            here = name in (None, sample["name"])
            if name is None or len(names) <= SOURCES_IN_DETAIL:
                for term, parts in self.terms.items():
                    of_term = sums.get(term, {}) if here else {}
                    key = term if name is None else f"{name}_{term}"
                    log.update({f"{key}_{part}": of_term.get(part, 0 if part == "count" else zero) for part in parts})
            else:
                log.update({f"{name}_nll": log["loss"] if here else zero, f"{name}_count": sample_size if here else 0})
        return log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict]) -> dict:
        """Log the total and every term that occurred; return the sums."""
        total = {key: sum(log[key] for log in logging_outputs) for key in logging_outputs[0]}
        tensors = {key: value.double() for key, value in total.items() if torch.is_tensor(value)}
        if tensors:  # copy all of them from a GPU at once
            total.update(zip(tensors, torch.stack(list(tensors.values())).tolist()))
        size = total["sample_size"]  # 0 where nothing is masked, which is no part of the mean
        metrics.log_scalar("loss", total["loss"] / max(1, size) / math.log(2), size, priority=10, round=3)
        for key in sorted(key for key in total if key.endswith("_count")):
            term, count = key[: -len("_count")], total[key]
            if count == 0:
                continue
            metrics.log_scalar(f"{term}_loss", total[f"{term}_nll"] / count / math.log(2), count, priority=20, round=3)
            if f"{term}_correct" in total:
                metrics.log_scalar(f"{term}_acc", total[f"{term}_correct"] / count, count, priority=22, round=4)
                cls.log_more(term, total)
        for kind in KINDS:
            metrics.log_scalar(f"{kind}_pairs", total[f"{kind}_pairs"], priority=185, round=1)
            if 0 < total[f"{kind}_tokens"] < total["ntokens"]:
                share = total[f"{kind}_tokens"] / total["ntokens"]
                metrics.log_scalar(f"{kind}_share", share, total["ntokens"], priority=186, round=3)
        return total

    @classmethod
    def log_more(cls, term: str, total: dict) -> None:
        """Log more figures of a term, here its perplexity; a term's name may begin with a language or pair."""
        metrics.log_derived(f"{term}_ppl", lambda meters: utils.get_perplexity(meters[f"{term}_loss"].avg), priority=21)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def counts(nll: Tensor, correct: Tensor) -> dict[str, Tensor | int]:
    """Return the sums that every term has, from its summands' NLL (nats) and whether each was predicted right, (count) both."""
    return {"nll": nll.detach().sum(), "correct": correct.sum(), "count": len(nll)}
