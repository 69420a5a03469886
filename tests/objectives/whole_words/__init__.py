# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""MLM with whole words hidden, as one more objective: ``--user-dir whole_words --task camlm --criterion whole_words``."""

import numpy as np
import torch
from fairseq.criterions import register_criterion
from fairseq.models import register_model

import veco_fairseq.plugin  # noqa: F401
from veco_fairseq.criterions.base import PretrainingCriterion
from veco_fairseq.data.masking import Masker
from veco_fairseq.models.base import encoder_architecture, register
from veco_fairseq.models.veco import VecoModel
from veco_fairseq.modules.prediction import OutputLayer, predict

WORD = "\N{LOWER ONE EIGHTH BLOCK}"  # with which SentencePiece begins a word


class WholeWordMasker(Masker):
    """Hides all pieces of a word, or none."""

    def __call__(self, tokens, rng, more=0.0):
        """Mask one sequence: tokens, (length,) -> corrupted and targets, (length,) each."""
        ids = tokens.numpy()
        ordinary = (ids >= self.dictionary.nspecial) & (ids != self.mask_index)
        begins = np.array([not word or self.dictionary[i].startswith(WORD) for i, word in zip(ids, ordinary)])
        words = np.cumsum(begins)  # the number of each piece's word
        candidates = np.unique(words[ordinary])
        count = min(len(candidates), max(1, round((self.probability + more) * len(candidates))))
        hidden = ordinary & np.isin(words, rng.choice(candidates, count, replace=False)) if count else ordinary
        targets = np.where(hidden, ids, self.dictionary.pad())
        return torch.from_numpy(np.where(hidden, self.mask_index, ids)), torch.from_numpy(targets)


@register_criterion("whole_words")
class WholeWordCriterion(PretrainingCriterion):
    """-log P(x | x^) of every side of a pair by itself."""

    terms = {term: ["nll", "correct", "count"] for term in ("mono_words", "bitext_words")}
    masker = WholeWordMasker

    def forward(self, model, sample, reduce=True):
        """Loss of a batch (nats), the number of its hidden pieces, and what to log."""
        found = model(**sample["net_input"])
        loss, count = found.nll.sum(), len(found.nll)
        sums = {f"{sample['kind']}_words": {"nll": loss.detach(), "correct": found.correct.sum(), "count": count}}
        return loss, count, self.logging_output(sample, sums, loss, count)


@register_model("whole_words")
class WholeWordModel(VecoModel):
    """VECO's encoder, unplugged."""

    criterion = "whole_words"

    def forward(self, tokens, targets, **_):
        """The predictions of the hidden pieces."""
        with self.autocast(tokens.device):
            both = tokens.flatten(0, 1)
            table, (embeddings,) = self.encoder.sentence_encoder.embed_tokens.with_table(both)
            states = self.unplugged(both, embeddings).view(*tokens.shape, -1)
            output = OutputLayer(self.encoder.lm_head, table)
            return predict({"h": (states, targets)}, output, self.encoder.dictionary.pad())["h"]


register("whole_words", "whole_words_tiny", encoder_architecture, "3 layers, 192/768, 4 heads.")
