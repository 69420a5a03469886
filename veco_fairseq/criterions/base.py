# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the criterions of pre-training log alike: every term of the loss, by kind of batch, language and pair."""

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

# Of more languages and pairs than these, validation logs the loss alone, not every term's figures.
SOURCES_IN_DETAIL = 20


class PretrainingCriterion(FairseqCriterion):
    """A loss of several terms, whose sums add up over batches and workers.

    Attributes:
        terms: what is summed of each term, by its name: "nll" (nats), "count" (of what it is a sum over), "correct"
            (whose likeliest prediction is right), and what the criterion knows to log besides.
        masker: what makes a :class:`veco_fairseq.data.masking.Masker`, of the dictionary, the id of ``<mask>``, and the share
            of the tokens to predict: how this objective hides them.
        loss_is: what the log's ``loss`` is, in a sentence for a reader who sees it for the first time.
    """

    terms: dict[str, list[str]] = {}
    masker: Callable[..., Masker] = Masker
    loss_is = ""

    def begin_update(self, update: int, model, sample: dict[str, dict]) -> None:
        """What the batches of a sample need together, before they are trained with in turn; here nothing.

        Args:
            update: its number.
            model: to be trained.
            sample: kind -> batch.
        """

    def task_state(self) -> dict[str, Any]:
        """What checkpoints keep of the criterion, in the task's state; here nothing."""
        return {}

    def load_task_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`task_state` gave."""

    def logging_output(self, sample: dict, sums: dict[str, dict], loss: Tensor, sample_size: int) -> dict:
        """Sums, under the same keys on every worker, so that they can be added up.

        Args:
            sample: a batch of one kind, from :class:`veco_fairseq.data.dataset.PretrainingDataset`.
            sums: of the terms that the batch has, by name.
            loss: of the batch, nats.
            sample_size: what fairseq divides its sum by.
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
        """Log the total and every term that there is something of; gives the sums."""
        total = {key: sum(log[key] for log in logging_outputs) for key in logging_outputs[0]}
        tensors = {key: value.double() for key, value in total.items() if torch.is_tensor(value)}
        if tensors:  # from a GPU in one go
            total.update(zip(tensors, torch.stack(list(tensors.values())).tolist()))
        size = max(1, total["sample_size"])
        metrics.log_scalar("loss", total["loss"] / size / math.log(2), size, priority=10, round=3)
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
        """Log of a term, which may begin with a language's or pair's name, what is its own: its perplexity."""
        metrics.log_derived(f"{term}_ppl", lambda meters: utils.get_perplexity(meters[f"{term}_loss"].avg), priority=21)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
