# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--criterion camlm``: CA-MLM and TLM, or only MLM and TLM (VECO, equation 1)."""

from dataclasses import dataclass, field

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from torch import Tensor

from veco_fairseq.criterions.base import PretrainingCriterion, counts
from veco_fairseq.data.plan import KINDS
from veco_fairseq.errors import UserError
from veco_fairseq.modules.prediction import Subset

# The terms of the loss: "h" is P(x|x^) and P(y|y^), "s" is P(x|y^,x^) and P(y|x^,y^).
TERMS = ("mono_h", "mono_s", "bitext_h", "bitext_s", "bitext_tlm")


@dataclass
class CamlmCriterionConfig(FairseqDataclass):
    """The criterion's options."""

    objective: ChoiceEnum(["camlm", "mlm"]) = field(  # type: ignore[valid-type]  # fairseq makes the type
        default="camlm",
        metadata={"help": "camlm: VECO; mlm: XLM, the baseline, which is the same without the S terms"},
    )
    s_terms: ChoiceEnum(["both", "mono", "bitext"]) = field(  # type: ignore[valid-type]
        default="both",
        metadata={"help": "the batches that have S terms: monolingual ones, bitext, or both (paper: both)"},
    )
    no_stop_gradient: bool = field(
        default=False,
        metadata={"help": "let the gradient of the S terms flow into the H that they attend to (paper: it does not)"},
    )


class CamlmCriterion(PretrainingCriterion):
    """Sums up the terms of one kind of batch; ``sample_size`` is the masked tokens of x and y, each counted once.

    The log has for every term, in training and validation, ``loss`` (bits a masked token), ``ppl``, and ``acc`` (share of
    masked tokens whose likeliest prediction is right). Validation also has them by language and pair, or only each
    one's ``loss`` if there are more than :data:`~veco_fairseq.criterions.base.SOURCES_IN_DETAIL`.

    ``--criterion camlm`` is this class with the options of :mod:`veco_fairseq.criterions.knn`.
    """

    loss_is = (
        "a sum of terms, in bits a masked token: by H, by S, and on bitext by TLM, as far as they are trained; each term has its "
        "own figure beside it"
    )
    terms = {term: ["nll", "correct", "count"] for term in TERMS}

    def __init__(self, cfg: CamlmCriterionConfig, task):
        super().__init__(task)
        if str(cfg.objective) == "mlm":
            if str(cfg.s_terms) != "both":
                raise UserError(f"--s-terms {cfg.s_terms}: --objective mlm has no S terms: leave out one of the two")
            self.plugged_in: tuple[str, ...] = ()
        else:
            self.plugged_in = KINDS if str(cfg.s_terms) == "both" else (str(cfg.s_terms),)
            self.needs = None if str(cfg.s_terms) == "both" else (f"--s-terms {cfg.s_terms}", str(cfg.s_terms))
        self.stop_gradient = not cfg.no_stop_gradient

    def vocabulary(self, model, sample: dict) -> Subset | None:
        """Return the tokens that the softmax is over; None for all."""
        return None

    def forward(self, model, sample, reduce: bool = True) -> tuple[Tensor, int, dict]:
        """Return the loss of one batch of a sample (nats, summed), its sample size, and the figures to log.

        Args:
            model: a :class:`veco_fairseq.models.veco.VecoModel`.
            sample: a batch of one kind, from :class:`veco_fairseq.data.dataset.PretrainingDataset`.
        """
        predictions = model(
            **sample["net_input"],
            plug_in=sample["kind"] in self.plugged_in,
            stop_gradient=self.stop_gradient,
            vocabulary=self.vocabulary(model, sample),
            places=sample.get("places"),
        )

        def nll(branch: str, of_x: bool) -> Tensor:
            prediction = predictions.get(branch)
            return torch.zeros(()) if prediction is None else prediction.nll.masked_fill(prediction.from_x.ne(of_x), 0).sum()

        loss = (
            nll("h", of_x=True)  # -log P(x | x^)
            + nll("s", of_x=True)  # -log P(x | y^, x^)
            + nll("h", of_x=False)  # -log P(y | y^)
            + nll("s", of_x=False)  # -log P(y | x^, y^)
        )
        if "tlm" in predictions:
            loss = loss + predictions["tlm"].nll.sum()  # -log P(x, y | x^, y^) of the concatenation
        sample_size = len(predictions["h"].nll)
        sums = {f"{sample['kind']}_{branch}": counts(of.nll, of.correct) for branch, of in predictions.items()}
        return loss, sample_size, self.logging_output(sample, sums, loss, sample_size)
