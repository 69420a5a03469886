# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--criterion camlm``: CA-MLM and TLM, or MLM and TLM alone (VECO, equation 1)."""

import math
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from veco_fairseq.data.plan import KINDS
from veco_fairseq.errors import UserError
from veco_fairseq.modules.knn_target_sampler import KnnTargetSampler

# The terms of the loss: "h" is P(x|x^) and P(y|y^), "s" is P(x|y^,x^) and P(y|x^,y^).
TERMS = ("mono_h", "mono_s", "bitext_h", "bitext_s", "bitext_tlm")
# Of more languages and pairs than these, validation logs the loss alone, not every term's loss, ppl and acc.
SOURCES_IN_DETAIL = 20


@dataclass
class CamlmCriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    objective: ChoiceEnum(["camlm", "mlm"]) = field(
        default="camlm",
        metadata={"help": "camlm: VECO; mlm: the same without the S terms, that is XLM (the baseline)"},
    )
    no_stop_gradient: bool = field(
        default=False,
        metadata={"help": "let the S terms' gradient flow into the H that is attended to (paper: it does not)"},
    )
    knn_targets: Optional[int] = field(
        default=None,
        metadata={
            "help": "in training, softmax over the batch's targets and the K nearest neighbours of each in the embeddings "
            "alone (VoCap's k-NN target sampling; 50 there); validation is over the whole vocabulary (default: it is, too)"
        },
    )
    knn_refresh: int = field(
        default=1000, metadata={"help": "look a target's neighbours up again after so many updates"}
    )


@register_criterion("camlm", dataclass=CamlmCriterionConfig)
class CamlmCriterion(FairseqCriterion):
    """Sums up the terms of one kind of batch; ``sample_size`` is the masked tokens of x and y, each counted once.

    Logged for every term, in training and validation: ``loss`` (bits a masked token), ``ppl`` and ``acc`` (share of
    masked tokens whose likeliest prediction is right); in validation also by language and pair, or of each its ``loss``
    alone if there are more than :data:`SOURCES_IN_DETAIL`. With k-NN target sampling, in training: ``knn_vocabulary``
    (tokens of V' in a batch), ``knn_looked_up`` (tokens whose neighbours were), ``knn_ms`` (what that took), and
    ``knn_age`` (updates since the batch's targets were looked up); loss, ppl and acc of training are then of a choice
    among V', and lower than validation's.
    """

    def __init__(self, cfg: CamlmCriterionConfig, task):
        super().__init__(task)
        self.plug_in = str(cfg.objective) == "camlm"
        self.stop_gradient = not cfg.no_stop_gradient
        for option in ("knn_targets", "knn_refresh"):
            if getattr(cfg, option) is not None and getattr(cfg, option) < 1:
                raise UserError(f"--{option.replace('_', '-')} {getattr(cfg, option)}: must be 1 at least")
        self.sampler = None if cfg.knn_targets is None else KnnTargetSampler(cfg.knn_targets, cfg.knn_refresh)

    def forward(self, model, sample, reduce: bool = True) -> Tuple[Tensor, int, Dict]:
        """The loss of one half of a composite sample (nats, summed), its sample size and what to log.

        Args:
            model: a :class:`veco_fairseq.models.veco.VecoModel`.
            sample: a batch of one kind, from :class:`veco_fairseq.data.composite.CompositeDataset`.
        """
        sampled = None
        if self.sampler is not None and self.training:
            targets = sample["net_input"]["targets"]
            sampled = self.sampler(targets[targets.ne(self.padding_idx)], model.encoder.sentence_encoder.embed_tokens)
        predictions = model(
            **sample["net_input"],
            plug_in=self.plug_in,
            stop_gradient=self.stop_gradient,
            vocabulary=sampled and sampled.vocabulary,
        )

        def nll(branch: str, of_x: bool) -> Tensor:
            prediction = predictions.get(branch)
            return 0.0 if prediction is None else prediction.nll[prediction.from_x.eq(of_x)].sum()

        loss = (
            nll("h", of_x=True)  # -log P(x | x^)
            + nll("s", of_x=True)  # -log P(x | y^, x^)
            + nll("h", of_x=False)  # -log P(y | y^)
            + nll("s", of_x=False)  # -log P(y | x^, y^)
        )
        if "tlm" in predictions:
            loss = loss + predictions["tlm"].nll.sum()  # -log P(x, y | x^, y^) of the concatenation
        sample_size = len(predictions["h"].nll)
        log = self._logging_output(sample, predictions, loss, sample_size)
        if sampled is not None:
            log.update({"knn_vocabulary": len(sampled.vocabulary), "knn_targets": sampled.targets, "knn_batches": 1})
            log.update({"knn_looked_up": sampled.looked_up, "knn_age": sampled.age, "knn_ms": 1000 * sampled.seconds})
        return loss, sample_size, log

    def _logging_output(self, sample, predictions, loss: Tensor, sample_size: int) -> Dict:
        """Sums, under the same keys on every worker, so that they can be added up."""
        log = {"loss": loss.detach(), "ntokens": sample["ntokens"], "nsentences": sample["nsentences"]}
        log["sample_size"] = sample_size
        for kind in KINDS:
            log[f"{kind}_pairs"] = sample["nsentences"] * (kind == sample["kind"])
            log[f"{kind}_tokens"] = sample["ntokens"] * (kind == sample["kind"])
        zero = torch.zeros_like(log["loss"])
        sums = {}
        for term in TERMS:
            kind, branch = term.split("_")
            of_term = predictions.get(branch) if kind == sample["kind"] else None
            sums[term] = (zero, zero, 0)
            if of_term is not None:
                sums[term] = (of_term.nll.detach().sum(), of_term.correct.sum(), len(of_term.nll))
        nothing = dict.fromkeys(TERMS, (zero, zero, 0))
        names = [] if self.training else self.task.validation_names
        for name in [None, *names]:
            here = name in (None, sample["name"])
            if name is None or len(names) <= SOURCES_IN_DETAIL:
                for term, (nll, correct, count) in (sums if here else nothing).items():
                    key = term if name is None else f"{name}_{term}"
                    log.update({f"{key}_nll": nll, f"{key}_correct": correct, f"{key}_count": count})
            else:
                log.update({f"{name}_nll": log["loss"] if here else zero, f"{name}_count": sample_size if here else 0})
        return log

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict]) -> None:
        """Log the total and every term that has masked tokens."""
        total = {key: sum(utils.item(log[key]) for log in logging_outputs) for key in logging_outputs[0]}
        size = max(1, total["sample_size"])
        metrics.log_scalar("loss", total["loss"] / size / math.log(2), size, priority=10, round=3)
        for key in sorted(key for key in total if key.endswith("_count")):
            term, count = key[: -len("_count")], total[key]
            if count == 0:
                continue
            metrics.log_scalar(f"{term}_loss", total[f"{term}_nll"] / count / math.log(2), count, priority=20, round=3)
            if f"{term}_correct" not in total:
                continue
            metrics.log_derived(f"{term}_ppl", lambda m, t=term: utils.get_perplexity(m[f"{t}_loss"].avg), priority=21)
            metrics.log_scalar(f"{term}_acc", total[f"{term}_correct"] / count, count, priority=22, round=4)
        if total.get("knn_batches"):
            batches, targets = total["knn_batches"], max(1, total["knn_targets"])
            for name in ("knn_vocabulary", "knn_looked_up", "knn_ms"):
                metrics.log_scalar(name, total[name] / batches, batches, priority=180, round=1)
            metrics.log_scalar("knn_age", total["knn_age"] / targets, targets, priority=181, round=1)
        for kind in KINDS:
            metrics.log_scalar(f"{kind}_pairs", total[f"{kind}_pairs"], priority=185, round=1)
            if 0 < total[f"{kind}_tokens"] < total["ntokens"]:
                share = total[f"{kind}_tokens"] / total["ntokens"]
                metrics.log_scalar(f"{kind}_share", share, total["ntokens"], priority=186, round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
