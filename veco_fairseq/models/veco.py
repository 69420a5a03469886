# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The pre-training model: ``--arch veco_{tiny,small,base,large}``."""

import logging
import re

import torch
import torch.nn as nn
from fairseq.models import register_model
from fairseq.models.roberta.model import RobertaEncoder
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.models.base import SIZES, PretrainingModel, encoder_architecture, refuse_unsupported, register
from veco_fairseq.modules.embedding import FactorizedEmbedding, TokenEmbedding
from veco_fairseq.modules.encoder import VecoTransformerEncoder
from veco_fairseq.modules.lm_head import LMHead
from veco_fairseq.modules.prediction import MaskedPrediction, OutputLayer, Subset, predict

logger = logging.getLogger(__name__)

THETA_C = re.compile(r"\.encoder_attn(_layer_norm)?\.")  # the names of cross-attention and LN_cross
TARGETS_OF = {"h": "targets", "s": "targets", "tlm": "tlm_targets"}  # what the branches predict


class VecoEncoder(RobertaEncoder):
    """RoBERTa's encoder (embeddings, layers, LM head) over :class:`VecoTransformerEncoder`."""

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> TokenEmbedding:
        table_dim = embedding_dim if self.args.table_dim is None else self.args.table_dim
        if not 1 <= table_dim <= embedding_dim:
            raise UserError(f"--embed-dim {table_dim}: must be from 1 to {embedding_dim}, the model's width")
        if table_dim == embedding_dim:
            return TokenEmbedding(vocab_size, embedding_dim, padding_idx)
        if self.args.init_from:
            raise UserError(
                f"--embed-dim {table_dim}: XLM-R's token embeddings have the model's width, {embedding_dim}: leave it "
                "out, or --init-from"
            )
        return FactorizedEmbedding(vocab_size, embedding_dim, padding_idx, table_dim)

    def build_lm_head(self, embed_dim: int, output_dim: int, activation_fn: str, weight: Tensor | None) -> LMHead | None:
        embedding = self.sentence_encoder.embed_tokens
        return LMHead(embed_dim, output_dim, activation_fn=activation_fn, table=weight, embedding=embedding)

    def build_encoder(self, args, dictionary, embed_tokens) -> VecoTransformerEncoder:
        return VecoTransformerEncoder(args, dictionary, embed_tokens)

    def forward(
        self,
        tokens: Tensor,
        memory: Tensor | None = None,
        memory_tokens: Tensor | None = None,
        attention: list[Tensor] | None = None,
        token_embeddings: Tensor | None = None,
    ) -> Tensor:
        """Return H(tokens) or S(tokens | memory): see :class:`VecoTransformerEncoder`."""
        padding_mask = None if memory_tokens is None else memory_tokens.eq(self.dictionary.pad())
        return self.sentence_encoder(tokens, memory, padding_mask, attention, token_embeddings)


class PluggableModel(PretrainingModel):
    """VECO's encoder, plugged out for H and plugged in for S, under any head.

    theta_c is every layer's cross-attention and LN_cross; theta_s is everything else.
    """

    def __init__(self, args, encoder: VecoEncoder):
        super().__init__(args, encoder)
        self.backbone_is_frozen = False
        self._frozen: list[nn.Parameter] = []  # with the backbone: somebody's own code may have frozen others

    @staticmethod
    def add_args(parser) -> None:
        """Add the options of all models of pre-training, and VECO's own."""
        PretrainingModel.add_args(parser)
        parser.add_argument(
            "--init-from",
            metavar="XLMR",
            help="start from XLM-R: a fairseq checkpoint (dict.txt beside it), or a Hugging Face folder or .safetensors "
            "file. Everything but the cross-attention is copied",
        )
        parser.add_argument(
            "--freeze-backbone-updates",
            type=int,
            metavar="N",
            help="after a start from XLM-R: train only the cross-attention for the first N updates, and everything after "
            "them (default: 0)",
        )

    def freeze_backbone(self, frozen: bool) -> None:
        """Freeze theta_s, so that no gradient is computed for it, or train again what of it was trained before."""
        if frozen == self.backbone_is_frozen:
            return
        self.backbone_is_frozen = frozen
        if frozen:
            self._frozen = [p for name, p in self.named_parameters() if p.requires_grad and not THETA_C.search(name)]
        for parameter in self._frozen:
            parameter.requires_grad_(not frozen)
        trained = sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
        which = "only cross-attention is" if frozen else "all parameters are"
        jump = "" if frozen else "; TLM joins the loss, which becomes larger by it"
        logger.info(f"{which} trained: {trained:,} parameters{jump}")

    def plugged(
        self, tokens: Tensor, memory: Tensor, memory_tokens: Tensor, *, attention: list[Tensor] | None = None,
        token_embeddings: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return S^L(tokens | memory) (equations 6-9).

        Args:
            tokens: (batch, length).
            memory: H^L of the other sequences, (batch, memory length, dim).
            memory_tokens: the other sequences, (batch, memory length); nothing attends to their padding.
            attention: a list that receives each layer's weights, (batch, length, memory length).
            token_embeddings: of ``tokens``, (batch, length, dim), if they have been looked up already.

        Returns:
            (batch, length, dim).
        """
        return self.encoder(tokens, memory, memory_tokens, attention, token_embeddings)


@register_model("veco")
class VecoModel(PluggableModel):
    """VECO (ACL 2021): one encoder, plugged out for H and plugged in for S, and one LM head for both."""

    criterion = "camlm"

    @classmethod
    def build_model(cls, args, task) -> "VecoModel":
        encoder_architecture(args, SIZES["small"])
        refuse_unsupported(args)
        if args.init_from and args.relative_position_bias:
            raise UserError("--relative-position-bias: XLM-R has none: leave it out, or --init-from")
        return cls(args, VecoEncoder(args, task.source_dictionary))

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor,
        tlm_tokens: Tensor | None = None,
        tlm_targets: Tensor | None = None,
        plug_in: bool = True,
        stop_gradient: bool = True,
        vocabulary: Subset | None = None,
        places: dict[str, Tensor] | None = None,
    ) -> dict[str, MaskedPrediction]:
        """Return all predictions for one kind of batch: CA-MLM's from H and S, and TLM's (VECO, equation 1, section 4).

        Args:
            tokens: the masked pairs (x^, y^), (2, batch, length).
            targets: the original tokens at the masked positions, padding elsewhere, (2, batch, length).
            tlm_tokens: ``<s> x^ </s> </s> y^ </s>``, (batch, length of both), on bitext with TLM.
            tlm_targets: as ``targets``, for ``tlm_tokens``.
            plug_in: also compute S; without it this is XLM's MLM.
            stop_gradient: treat H^L as a constant in S (section 2.2).
            vocabulary: the tokens to choose the predictions from, with all targets among them; None for all tokens.
            places: where "targets" and "tlm_targets" have masked positions (:func:`masked_places`), so that a GPU need not be
                waited for to find them.

        Returns:
            The predictions by branch: "h", "s" (if plugged in), "tlm" (if given). While the backbone is frozen, training
            computes "h" without gradient, and no "tlm".
        """
        with self.autocast(tokens.device):
            both = tokens.flatten(0, 1)
            joined = [] if tlm_tokens is None else [tlm_tokens]
            embed_tokens = self.encoder.sentence_encoder.embed_tokens
            table, (of_both, *of_joined) = embed_tokens.with_table(both, *joined, only=vocabulary and vocabulary.tokens)
            hidden = self.unplugged(both, of_both).unflatten(0, tokens.shape[:2])
            branches = {"h": (hidden, targets)}
            of = places and {branch: places[name] for branch, name in TARGETS_OF.items() if name in places}
            output, pad = OutputLayer(self.encoder.lm_head, table, vocabulary), self.encoder.dictionary.pad()
            if plug_in:
                # Each side's memory is the other side's H: x attends to y, and y to x.
                memory = (hidden.detach() if stop_gradient else hidden).flip(0).flatten(0, 1)
                memory_tokens = tokens.flip(0).flatten(0, 1)
                mixed = self.plugged(both, memory, memory_tokens, token_embeddings=of_both).view_as(hidden)
                branches["s"] = (mixed, targets)
            if self.backbone_is_frozen and self.training:
                # Only S has something to train.
                with torch.no_grad():
                    fixed = predict({"h": branches.pop("h")}, output, pad, of)
                return {**fixed, **predict(branches, output, pad, of)}
            if tlm_tokens is not None and tlm_targets is not None:
                branches["tlm"] = (self.unplugged(tlm_tokens, *of_joined), tlm_targets)
            return predict(branches, output, pad, of)

    def kept_states(self, apart: Tensor, joined: Tensor | None) -> list[Tensor]:
        """Return H, S and TLM's states, as :meth:`forward` computes them."""
        hidden = self.unplugged(apart)
        branches = [hidden, self.plugged(apart, hidden.detach(), apart)]
        return branches if joined is None else [*branches, self.unplugged(joined)]

    def predictions_of_a_token(self, tlm: bool) -> int:
        """Return once for each of H, S and TLM."""
        return 3 if tlm else 2


register("veco", "veco_tiny", encoder_architecture, f"{SIZES['tiny']}: tests and demos.")
register("veco", "veco_small", encoder_architecture, f"{SIZES['small']}: the paper's small model.")
register("veco", "veco_base", encoder_architecture, f"{SIZES['base']}: XLM-R base's size.")
register("veco", "veco_large", encoder_architecture, f"{SIZES['large']}: the paper's large model.")
