# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the models of pre-training share: XLM-R's layout and options, without the parts of RoBERTa that don't apply."""

from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn as nn
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, FairseqEncoder, FairseqEncoderModel
from fairseq.models.roberta.model import RobertaModel
from fairseq.models.roberta.model import base_architecture as roberta_architecture
from torch import Tensor

from veco_fairseq.errors import UserError


class PretrainingModel(RobertaModel):
    """An encoder that ``--task camlm`` trains, and what else its criterion needs.

    Attributes:
        criterion: the name of the ``--criterion`` that trains it.
    """

    criterion = ""

    def __init__(self, args, encoder: FairseqEncoder):
        # Not RobertaModel's: it would draw every weight anew with standard deviation 0.02, BERT's for 768 dimensions,
        # which at 192 is a third of Xavier's. The modules' own initialisation, that of fairseq's Transformer, follows
        # the width, and is what a randomly initialised veco_mt_* starts from, too.
        FairseqEncoderModel.__init__(self, encoder)
        self.args = args
        self.classification_heads = nn.ModuleDict()

    @staticmethod
    def add_args(parser) -> None:
        """RoBERTa's options, and those that all models of pre-training have."""
        RobertaModel.add_args(parser)
        parser.add_argument(
            "--autocast",
            choices=["none", "bf16"],
            help="compute in this precision where that is safe, on CPU and GPU; parameters, gradients and the loss "
            "stay in fp32 (default: none)",
        )
        parser.add_argument(
            "--embed-dim",
            dest="table_dim",  # fairseq takes an "embed_dim" for the width of encoder and decoder
            type=int,
            metavar="N",
            help="dimensions of the token embeddings. They are projected to the model's width, and the LM head's states "
            "are projected back (VoCap: half the width, with twice the vocabulary; default: the width)",
        )
        parser.add_argument(
            "--checkpoint-activations",
            action="store_true",
            help="keep only the layers' inputs, and compute the rest again in the backward pass: a third more "
            "operations for a fraction of the memory",
        )
        parser.add_argument(
            "--relative-position-bias",
            action="store_true",
            help="add XLM-E's gated relative position bias to all self-attention; the absolute positions stay",
        )

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        return {}

    def autocast(self, device: torch.device) -> AbstractContextManager:
        """The context that ``--autocast`` asks for; without it that of fairseq's ``--amp`` stays, if there is one."""
        if self.args.autocast == "none":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16)

    def freeze_backbone(self, frozen: bool) -> None:
        """Nothing is frozen, unless a model says otherwise."""

    def kept_states(self, apart: Tensor, joined: Tensor | None) -> list[Tensor]:
        """The states of an update that the backward pass starts from, for an estimate of its memory.

        Args:
            apart: every x and y by itself, (2 * pairs, length).
            joined: the concatenated pairs, (pairs, 2 * length), or none.
        """
        raise NotImplementedError

    def predictions_of_a_token(self, tlm: bool) -> int:
        """How often the LM head sees a masked token of a batch, with or without TLM."""
        raise NotImplementedError

    def unplugged(self, tokens: Tensor, token_embeddings: Tensor | None = None) -> Tensor:
        """H^L(tokens): (batch, length) -> (batch, length, dim), no cross-attention (VECO, equations 2-5).

        ``token_embeddings``, (batch, length, dim), are looked up unless given.
        """
        return self.encoder(tokens, token_embeddings=token_embeddings)


def refuse_untied(args) -> None:
    """Raise UserError for the option of RoBERTa's that no model here has."""
    if args.untie_weights_roberta:
        raise UserError("--untie-weights-roberta: the LM head shares the token embeddings here: take it away")


def encoder_architecture(args, layers: int, dim: int, heads: int) -> None:
    """XLM-R's layout at the given size, where the command line has not chosen otherwise."""
    args.encoder_layers = getattr(args, "encoder_layers", layers)
    args.encoder_embed_dim = getattr(args, "encoder_embed_dim", dim)
    args.encoder_ffn_embed_dim = getattr(args, "encoder_ffn_embed_dim", 4 * dim)
    args.encoder_attention_heads = getattr(args, "encoder_attention_heads", heads)
    args.max_positions = getattr(args, "max_positions", 512)
    args.table_dim = getattr(args, "table_dim", None)
    args.autocast = getattr(args, "autocast", "none")
    args.init_from = getattr(args, "init_from", None)
    args.freeze_backbone_updates = getattr(args, "freeze_backbone_updates", 0)
    args.checkpoint_activations = getattr(args, "checkpoint_activations", False)
    args.relative_position_bias = getattr(args, "relative_position_bias", False)
    roberta_architecture(args)


def architecture(arch: str, **options) -> Namespace:
    """The model options of an architecture of pre-training, where ``options`` have not chosen.

    Raises:
        UserError: there is no such architecture.
    """
    known = [name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, PretrainingModel)]
    if arch not in known:
        raise UserError(f"--arch {arch}: there is {', '.join(known)}")
    args = Namespace(arch=arch, **options)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args
