# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--criterion replaced_token``: MLM, TLM, MRTD and TRTD (XLM-E, sections 3.1 and 3.2)."""

from dataclasses import dataclass, field
from functools import partial

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from veco_fairseq.criterions.base import PretrainingCriterion, counts
from veco_fairseq.data.masking import ALL_MASKED, Masker
from veco_fairseq.errors import UserError

# "mlm" and "mrtd" are of single sequences, "tlm" and "trtd" of concatenated pairs. With the task's --no-tlm, bitext has
# single sequences, too.
GENERATOR = ("mono_mlm", "bitext_mlm", "bitext_tlm")
DISCRIMINATOR = ("mono_mrtd", "bitext_mrtd", "bitext_trtd")


@dataclass
class ReplacedTokenCriterionConfig(FairseqDataclass):
    """The criterion's options."""

    discriminator_weight: float = field(
        default=50.0, metadata={"help": "lambda: the weight of MRTD and TRTD, where MLM and TLM have 1 (paper: 50)"}
    )
    no_trtd: bool = field(
        default=False,
        metadata={"help": "leave out TRTD: only the generator learns from concatenated pairs, by TLM (paper: TRTD is used)"},
    )


@register_criterion("replaced_token", dataclass=ReplacedTokenCriterionConfig)
class ReplacedTokenCriterion(PretrainingCriterion):
    """The generator's and the discriminator's loss of one kind of batch; ``sample_size`` is the masked tokens.

    Equations 1, 3 and 5 are sums over positions. The paper takes lambda = 50 from ELECTRA. ELECTRA divides the generator's
    sum by the number of masked tokens |M|, and the discriminator's by the number of all tokens n. This class does the
    same: a batch's loss is |M| times the sum of both means, and fairseq divides by the |M| of all batches. With the
    equations' sums, a lambda of 50 |M| / n would give the same.

    All tokens but padding are classified, also ``<s>`` and ``</s>``. A sampled token that equals the original counts as
    original.

    The log has for the generator's terms, in training and validation, ``loss`` (bits a masked token), ``ppl``, and
    ``acc`` (share of masked tokens whose likeliest prediction is right). The discriminator's terms have ``loss`` (bits a
    token), ``acc``, ``precision`` and ``recall`` of "replaced" (0 if no token is predicted as replaced, or none is), and
    ``replaced`` (the share of replaced tokens). Validation also has them by language and pair, as ``--criterion camlm``.
    """

    terms = {
        **{term: ["nll", "correct", "count"] for term in GENERATOR},
        **{term: ["nll", "correct", "count", "replaced", "called", "found"] for term in DISCRIMINATOR},
    }

    loss_is = (
        "a sum of terms: the generator's bits of a masked token, and --discriminator-weight times the discriminator's of a token; "
        "each term has its own figure beside it"
    )
    masker = staticmethod(partial(Masker, corruption=ALL_MASKED))

    def __init__(self, cfg: ReplacedTokenCriterionConfig, task):
        super().__init__(task)
        if cfg.discriminator_weight <= 0:
            raise UserError(f"--discriminator-weight {cfg.discriminator_weight}: must be above 0")
        if cfg.no_trtd and task.cfg.no_tlm:
            raise UserError("--no-trtd: there is no TRTD with --no-tlm, which does not concatenate pairs: leave out one")
        self.discriminator_weight, self.trtd = cfg.discriminator_weight, not cfg.no_trtd
        self.needs = ("--no-trtd", "mono") if cfg.no_trtd else None  # for the discriminator

    def forward(self, model, sample, reduce: bool = True) -> tuple[Tensor, int, dict]:
        """Return the loss of one batch of a sample (nats), its sample size, and the figures to log.

        Args:
            model: a :class:`veco_fairseq.models.xlme.XlmeModel`.
            sample: a batch of one kind, from :class:`veco_fairseq.data.dataset.PretrainingDataset`.
        """
        concatenated = "tlm_tokens" in sample["net_input"]
        of_generator, of_discriminator = ("tlm", "trtd") if concatenated else ("mlm", "mrtd")
        found = model(**sample["net_input"], discriminate=self.trtd or not concatenated, places=sample.get("places"))
        kind, masked = sample["kind"], len(found.nll)
        loss = found.nll.sum()  # equation 1: L_MLM(x; theta_G), or L_TLM(e, f; theta_G)
        sums = {f"{kind}_{of_generator}": counts(found.nll, found.correct)}
        if found.logits is not None:
            replaced, called = found.replaced, found.logits > 0
            nll = F.binary_cross_entropy_with_logits(found.logits, replaced.float(), reduction="none")
            # equations 3 and 5: lambda L_MRTD(x; theta_D), or lambda L_TRTD(e, f; theta_D)
            loss = loss + self.discriminator_weight * (masked * nll.mean())
            sums[f"{kind}_{of_discriminator}"] = {
                **counts(nll, called.eq(replaced)),
                "replaced": replaced.sum(),
                "called": called.sum(),
                "found": (called & replaced).sum(),
            }
        return loss, masked, self.logging_output(sample, sums, loss, masked)

    @classmethod
    def log_more(cls, term: str, total: dict) -> None:
        """Log precision, recall and the share of replaced tokens if the term is the discriminator's."""
        if f"{term}_found" not in total:
            super().log_more(term, total)
            return
        found, count = total[f"{term}_found"], total[f"{term}_count"]
        for name, of in (("precision", total[f"{term}_called"]), ("recall", total[f"{term}_replaced"])):
            metrics.log_scalar(f"{term}_{name}", found / max(1, of), of, priority=23, round=4)
        metrics.log_scalar(f"{term}_replaced", total[f"{term}_replaced"] / count, count, priority=24, round=4)
