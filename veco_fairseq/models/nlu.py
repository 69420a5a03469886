# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Understanding tasks on a pre-trained VECO or XLM-E: ``--arch veco_nlu_{tiny,small,base,large,xl}``."""

import logging
import re
from collections import OrderedDict
from typing import Any

import torch
import torch.nn as nn
from fairseq.models import FairseqEncoderModel, register_model
from fairseq.models.roberta.model import RobertaClassificationHead
from torch import Tensor

from veco_fairseq.checkpoints.names import LM_HEAD, PRETRAINING_ALONE
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import SIZES, Size, encoder_architecture, refuse_unsupported, register, set_defaults
from veco_fairseq.models.veco import THETA_C, PluggableModel, VecoEncoder
from veco_fairseq.models.xlme import Discriminator

logger = logging.getLogger(__name__)

# The parts of a pre-trained model that are not needed here, by name.
PARTS = {"LM head": re.compile("^" + re.escape(LM_HEAD)), "generator and detection head": PRETRAINING_ALONE}


def token_head(input_dim: int, classes: int, dropout: float) -> nn.Sequential:
    """Return dropout and a linear layer, for every token or word: (..., input_dim) -> (..., classes).

    Args:
        input_dim: of the features.
        classes: outputs; for answers to questions 2, for the first and the last token.
        dropout: on the features.
    """
    return nn.Sequential(OrderedDict(dropout=nn.Dropout(dropout), out_proj=nn.Linear(input_dim, classes)))


def mean_of_words(features: Tensor, words: Tensor) -> Tensor:
    """Return the mean of the features of each word's tokens.

    Args:
        features: (rows, length, dim).
        words: the word of each token, or -1, (rows, length); every word from 0 on has a token.

    Returns:
        (words, dim).
    """
    chosen = words.ge(0)
    numbers, vectors = words[chosen], features[chosen]
    count = int(numbers.max()) + 1
    sums = vectors.new_zeros(count, vectors.size(1)).index_add(0, numbers, vectors)
    return sums / torch.bincount(numbers, minlength=count).unsqueeze(1)


@register_model("veco_nlu")
class VecoNluModel(PluggableModel):
    """VECO, or XLM-E's discriminator, with a head for sentence pairs, tags or answers (VECO, section 3.1).

    Plugged out, the head sees H, and the model has no cross-attention even if the pre-trained one has. Plugged in, the
    head sees [H; S]; S attends to the last-layer H of the sequence's translation. Without a translation it sees [H; H],
    since S with every layer's cross-attention plugged out is H.
    """

    criterion = "veco_nlu"
    advice_for_others = "it was fine-tuned for a task of understanding: give the pre-trained model"
    begins_with_pretrained = True

    def __init__(self, args, encoder: VecoEncoder, *, nlu_task: str, outputs: int, plug_in: bool):
        super().__init__(args, encoder)
        del encoder.lm_head
        dim, dropout = args.encoder_embed_dim, args.head_dropout
        self.plug_in = plug_in
        features = 2 * dim if plug_in else dim
        if nlu_task == "classification":
            self.head = RobertaClassificationHead(features, dim, outputs, "tanh", dropout)
        else:
            self.head = token_head(features, outputs, dropout)

    @staticmethod
    def add_args(parser) -> None:
        """Add VECO's options and the head's."""
        PluggableModel.add_args(parser)
        parser.add_argument(
            "--attach-memory",
            action="store_true",
            help="let the gradient of S flow into the H that it attends to (pre-training does not)",
        )
        parser.add_argument("--head-dropout", type=float, metavar="P", help="dropout in the head (default: that of --dropout)")

    @classmethod
    def build_model(cls, args, task) -> "VecoNluModel":
        """Build a model for a task of understanding.

        Raises:
            UserError: another task, or an option of RoBERTa that would have no effect.
        """
        if not hasattr(task, "nlu_task"):
            raise UserError(f"--arch {args.arch}: is for understanding: give --task veco_nlu, or another --arch")
        refuse_unsupported(args)
        _architecture(args, SIZES["base"])
        outputs = 2 if task.nlu_task == "span" else len(task.labels)
        encoder = (VecoEncoder if task.plug_in else Discriminator)(args, task.source_dictionary)
        return cls(args, encoder, nlu_task=task.nlu_task, outputs=outputs, plug_in=task.plug_in)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Also accept a pre-trained model: leave out its :data:`PARTS`, and add this model's new head.

        Raises:
            UserError: this model is plugged in, but the pre-trained one has no cross-attention.
        """
        FairseqEncoderModel.upgrade_state_dict_named(self, state_dict, name)
        if self.plug_in and not any(map(THETA_C.search, state_dict)):
            raise UserError("--plug in: the checkpoint's model has no cross-attention to plug in: give --plug out")
        pretrained = any(pattern.match(key) for key in state_dict for pattern in PARTS.values())
        for part, pattern in {**PARTS, **({} if self.plug_in else {"cross-attention": THETA_C})}.items():
            left_out = [key for key in state_dict if pattern.search(key)]
            for key in left_out:
                del state_dict[key]
            if left_out:
                logger.info(f"left out of the checkpoint: its {part} ({len(left_out)} tensors)")
        if pretrained:
            for key, tensor in self.head.state_dict(prefix="head.").items():
                state_dict.setdefault(key, tensor)

    def features(self, tokens: Tensor, partner: Tensor) -> Tensor:
        """Return H, or [H; S].

        Args:
            tokens: (rows, length).
            partner: the row of each row's translation, or -1, (rows).

        Returns:
            (rows, length, dim), or twice the dim when plugged in.
        """
        hidden = self.unplugged(tokens)
        if not self.plug_in:
            return hidden
        mixed = hidden
        has_partner = partner.ge(0)
        if has_partner.any():
            other = partner[has_partner]
            memory = hidden if self.args.attach_memory else hidden.detach()
            plugged = self.plugged(tokens[has_partner], memory[other], tokens[other])
            mixed = hidden.masked_scatter(has_partner[:, None, None], plugged.type_as(hidden))
        return torch.cat([hidden, mixed], dim=-1)

    def forward(self, tokens: Tensor, partner: Tensor, words: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Return the logits, fp32, for a batch of :class:`veco_fairseq.understanding.dataset.UnderstandingDataset`.

        Args:
            tokens, partner: as in :meth:`features`.
            words: the word of each token, or -1, (rows, length); only for tags.

        Returns:
            (rows, classes) for sentence pairs, (words, classes) for tags, and (rows, length, 2) for questions: that a
            token is the first, and that it is the last token of the answer.
        """
        with self.autocast(tokens.device):
            features = self.features(tokens, partner)
            if words is not None:
                features = mean_of_words(features, words)
            return self.head(features).float()


def _architecture(args, size: Size) -> None:
    set_defaults(args, attach_memory=False, dropout=0.1)
    set_defaults(args, head_dropout=args.dropout)
    encoder_architecture(args, size)


register("veco_nlu", "veco_nlu_tiny", _architecture, "Fine-tunes a ``veco_tiny`` or ``xlme_tiny``.")
register("veco_nlu", "veco_nlu_small", _architecture, "Fine-tunes a ``veco_small``.")
register("veco_nlu", "veco_nlu_base", _architecture, "Fine-tunes a ``veco_base`` or ``xlme_base``.")
register("veco_nlu", "veco_nlu_large", _architecture, "Fine-tunes a ``veco_large`` or ``xlme_large``.")
register("veco_nlu", "veco_nlu_xl", _architecture, "Fine-tunes an ``xlme_xl``.")
