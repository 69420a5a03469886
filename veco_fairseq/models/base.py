# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The base of the models of pre-training: XLM-R's layout and options, without the parts of RoBERTa that do not apply."""

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
    """An encoder that ``--task camlm`` trains, with the methods that its criterion needs.

    Attributes:
        criterion: the name of the ``--criterion`` that trains it.
        advice_for_others: what to do if its checkpoint is given to a model of another kind.
    """

    criterion = ""
    advice_for_others = "it is a pre-trained model: veco convert makes a translation model of it"

    def __init__(self, args, encoder: FairseqEncoder):
        # RobertaModel's own __init__ would initialise every weight with standard deviation 0.02. This is BERT's for 768
        # dimensions, but at 192 a third of Xavier's. The modules' own initialisation, as in fairseq's Transformer, follows
        # the width. A randomly initialised veco_mt_* starts from it, too.
        FairseqEncoderModel.__init__(self, encoder)
        self.args = args
        self.classification_heads = nn.ModuleDict()

    @staticmethod
    def add_args(parser) -> None:
        """Add RoBERTa's options, and those of all models of pre-training."""
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
        """Return the context for ``--autocast``; without that option, the context of fairseq's ``--amp`` stays, if any."""
        if self.args.autocast == "none":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16)

    def freeze_backbone(self, frozen: bool) -> None:
        """Freeze or unfreeze the backbone; here nothing is frozen."""

    def kept_states(self, apart: Tensor, joined: Tensor | None) -> list[Tensor]:
        """Return the states that the backward pass of an update starts from, for an estimate of its memory.

        Args:
            apart: every x and y as single sequences, (2 * pairs, length).
            joined: the concatenated pairs, (pairs, 2 * length), or None.
        """
        raise NotImplementedError

    def predictions_of_a_token(self, tlm: bool) -> int:
        """Return how often the LM head sees a masked token of a batch, with or without TLM."""
        raise NotImplementedError

    def unplugged(self, tokens: Tensor, token_embeddings: Tensor | None = None) -> Tensor:
        """Return H^L(tokens), without cross-attention: (batch, length) -> (batch, length, dim) (VECO, equations 2-5).

        ``token_embeddings``, (batch, length, dim), are looked up unless given.
        """
        return self.encoder(tokens, token_embeddings=token_embeddings)


def refuse_untied(args) -> None:
    """Raise UserError for the one option of RoBERTa that no model here supports."""
    if args.untie_weights_roberta:
        raise UserError("--untie-weights-roberta: the LM head shares the token embeddings here: leave it out")


def encoder_architecture(args, layers: int, dim: int, heads: int) -> None:
    """Set XLM-R's layout at the given size, where the command line has not chosen otherwise."""
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
    """Return the model options of an architecture of pre-training, changed by ``options``.

    Raises:
        UserError: there is no such architecture.
    """
    known = [name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, PretrainingModel)]
    if arch not in known:
        raise UserError(f"--arch {arch}: there is {', '.join(known)}")
    args = Namespace(arch=arch, **options)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args
