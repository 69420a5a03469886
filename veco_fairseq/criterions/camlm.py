# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--criterion camlm``: CA-MLM and TLM, or MLM and TLM alone (VECO, equation 1)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from veco_fairseq.criterions.base import PretrainingCriterion
from veco_fairseq.criterions.knn import KnnTargetSampler
from veco_fairseq.errors import UserError

# The terms of the loss: "h" is P(x|x^) and P(y|y^), "s" is P(x|y^,x^) and P(y|x^,y^).
TERMS = ("mono_h", "mono_s", "bitext_h", "bitext_s", "bitext_tlm")


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
            "help": "in training, softmax over the batch's targets, the K nearest neighbours of each in the embeddings, and "
            "--knn-rest others (VoCap's k-NN target sampling; 50 there); in validation over all tokens (default: always)"
        },
    )
    knn_refresh: int = field(
        default=1000, metadata={"help": "look a target's neighbours up again after so many updates"}
    )
    knn_rest: int = field(
        default=8192,
        metadata={
            "help": "tokens drawn at random for each batch to stand for all others, so that the softmax's sum is in "
            "expectation that over all tokens (paper: 0, with which nothing keeps rare tokens' logits down)"
        },
    )


@register_criterion("camlm", dataclass=CamlmCriterionConfig)
class CamlmCriterion(PretrainingCriterion):
    """Sums up the terms of one kind of batch; ``sample_size`` is the masked tokens of x and y, each counted once.

    Logged for every term, in training and validation: ``loss`` (bits a masked token), ``ppl`` and ``acc`` (share of
    masked tokens whose likeliest prediction is right); in validation also by language and pair, or of each its ``loss``
    alone if there are more than :data:`~veco_fairseq.criterions.base.SOURCES_IN_DETAIL`. With k-NN target sampling, in
    training: ``knn_vocabulary`` (tokens of a batch's softmax), ``knn_looked_up`` (tokens whose neighbours were),
    ``knn_ms`` (what that took), and ``knn_age`` (updates since the batch's targets were looked up); loss, ppl and acc
    of training are then of a choice among these tokens, and not to be compared with validation's.
    """

    terms = {term: ["nll", "correct", "count"] for term in TERMS}

    def __init__(self, cfg: CamlmCriterionConfig, task):
        super().__init__(task)
        self.plug_in = str(cfg.objective) == "camlm"
        self.stop_gradient = not cfg.no_stop_gradient
        for option in ("knn_targets", "knn_refresh"):
            if getattr(cfg, option) is not None and getattr(cfg, option) < 1:
                raise UserError(f"--{option.replace('_', '-')} {getattr(cfg, option)}: must be 1 at least")
        if cfg.knn_rest < 0:
            raise UserError(f"--knn-rest {cfg.knn_rest}: must be 0 at least")
        self.sampler = None
        if cfg.knn_targets is not None:
            self.sampler = KnnTargetSampler(cfg.knn_targets, cfg.knn_refresh, cfg.knn_rest)

    def prepare(self, model, sample: dict[str, dict]) -> None:
        """Look up the neighbours of all batches' targets in one go."""
        if self.sampler is not None:
            targets = torch.cat([self._targets(batch) for batch in sample.values()])
            self._with_embeddings(self.sampler.look_up, model, targets)

    @staticmethod
    def _with_embeddings(function: Callable, model, targets: Tensor):
        with model.autocast(targets.device):
            return function(targets, model.encoder.sentence_encoder.embed_tokens)

    def _targets(self, batch: dict) -> Tensor:
        targets = batch["net_input"]["targets"]
        return targets[targets.ne(self.padding_idx)]

    def forward(self, model, sample, reduce: bool = True) -> tuple[Tensor, int, dict]:
        """The loss of one half of a composite sample (nats, summed), its sample size and what to log.

        Args:
            model: a :class:`veco_fairseq.models.veco.VecoModel`.
            sample: a batch of one kind, from :class:`veco_fairseq.data.dataset.CompositeDataset`.
        """
        sampled = None
        if self.sampler is not None and self.training:
            sampled = self._with_embeddings(self.sampler, model, self._targets(sample))
        predictions = model(
            **sample["net_input"],
            plug_in=self.plug_in,
            stop_gradient=self.stop_gradient,
            vocabulary=sampled and sampled.vocabulary,
        )

        def nll(branch: str, of_x: bool) -> Tensor:
            prediction = predictions.get(branch)
            return 0.0 if prediction is None else prediction.nll.masked_fill(prediction.from_x.ne(of_x), 0).sum()

        loss = (
            nll("h", of_x=True)  # -log P(x | x^)
            + nll("s", of_x=True)  # -log P(x | y^, x^)
            + nll("h", of_x=False)  # -log P(y | y^)
            + nll("s", of_x=False)  # -log P(y | x^, y^)
        )
        if "tlm" in predictions:
            loss = loss + predictions["tlm"].nll.sum()  # -log P(x, y | x^, y^) of the concatenation
        sample_size = len(predictions["h"].nll)
        sums = {
            f"{sample['kind']}_{branch}": {
                "nll": of.nll.detach().sum(), "correct": of.correct.sum(), "count": len(of.nll)
            }  # fmt: skip
            for branch, of in predictions.items()
        }
        log = self.logging_output(sample, sums, loss, sample_size)
        if sampled is not None:
            log.update({"knn_vocabulary": len(sampled.vocabulary.tokens), "knn_targets": sampled.targets, "knn_batches": 1})
            log.update({"knn_looked_up": sampled.looked_up, "knn_age": sampled.age, "knn_ms": 1000 * sampled.seconds})
        return loss, sample_size, log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict]) -> dict:
        """Log the total, every term, and k-NN target sampling."""
        total = super().reduce_metrics(logging_outputs)
        if total.get("knn_batches"):
            batches, targets = total["knn_batches"], max(1, total["knn_targets"])
            for name in ("knn_vocabulary", "knn_looked_up", "knn_ms"):
                metrics.log_scalar(name, total[name] / batches, batches, priority=180, round=1)
            metrics.log_scalar("knn_age", total["knn_age"] / targets, targets, priority=181, round=1)
        return total
