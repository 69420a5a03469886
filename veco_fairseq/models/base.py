# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The base of the models of pre-training: XLM-R's layout and options, without the parts of RoBERTa that do not apply."""

import difflib
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn as nn
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, FairseqEncoderModel, register_model_architecture
from fairseq.models.roberta.model import RobertaEncoder, RobertaModel
from fairseq.models.roberta.model import base_architecture as roberta_architecture
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.options.flags import flag


class Size(NamedTuple):
    """XLM-R's layout at one size; the FFN is four times as wide as the states.

    Attributes:
        layers: of the encoder.
        dim: of the embeddings and states.
        heads: of every attention.
    """

    layers: int
    dim: int
    heads: int

    def __str__(self) -> str:
        return f"{self.layers} layers, {self.dim}/{4 * self.dim}, {self.heads} heads"


# By the ends of the architectures' names.
SIZES = {
    "tiny": Size(layers=3, dim=192, heads=4),  # tests and demos
    "small": Size(layers=6, dim=768, heads=12),  # VECO's small model
    "base": Size(layers=12, dim=768, heads=12),  # XLM-R base's size, and XLM-E base's (tables 8 and 9)
    "large": Size(layers=24, dim=1024, heads=16),  # VECO's large model, and XLM-E's (tables 8 and 9)
    "xl": Size(layers=48, dim=1536, heads=24),  # XLM-E's XL (tables 8 and 9)
}


class PretrainingModel(RobertaModel):
    """An encoder that ``--task camlm`` trains, with the methods that its criterion needs.

    Attributes:
        criterion: the name of the ``--criterion`` that trains it.
        advice_for_others: what to do if its checkpoint is given to a model of another kind.
        begins_with_pretrained: whether its training begins with a pre-trained model as it is.
    """

    criterion = ""
    advice_for_others = "it is a pre-trained model: veco convert makes a translation model of it"
    begins_with_pretrained = False

    def __init__(self, args, encoder: RobertaEncoder):
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


# RoBERTa's options that would have no effect here, and why.
WITHOUT_EFFECT = {
    "untie_weights_roberta": "the LM head shares the token embeddings here",
    "encoder_normalize_before": "the layers here end with their LayerNorms, as XLM-R's do",
    "pooler_dropout": "there is no pooler here; what is fine-tuned for understanding has --head-dropout",
    "pooler_activation_fn": "there is no pooler here",
    "load_checkpoint_heads": "there are no heads of RoBERTa here",
    "spectral_norm_classification_head": "there are no heads of RoBERTa here",
    "encoder_layers_to_keep": "layers are not pruned here; veco convert takes the last ones for a decoder",
    "quant_noise_scalar": "fairseq's quantization does not know the embeddings here; --quant-noise-pq is for all layers",
    "mha_reg_scale_factor": "nothing is pruned here",
    "ffn_reg_scale_factor": "nothing is pruned here",
    "mha_heads_to_keep": "nothing is pruned here",
    "ffn_blocks_to_remove": "nothing is pruned here",
}
NOT_GIVEN = (None, False, 0, -1, "tanh")  # RoBERTa's defaults of these


def refuse_unsupported(args) -> None:
    """Raise UserError for the options of RoBERTa that have no effect in any model here."""
    for name, reason in WITHOUT_EFFECT.items():
        if getattr(args, name, None) not in NOT_GIVEN:
            raise UserError(f"{flag(name)}: {reason}: leave it out")


def set_defaults(args, **values: Any) -> None:
    """Set the options that the command line has not chosen."""
    for name, value in values.items():
        setattr(args, name, getattr(args, name, value))


def set_encoder_size(args, size: Size) -> None:
    """Set the encoder's layout, where the command line has not chosen otherwise."""
    set_defaults(args, encoder_layers=size.layers, encoder_attention_heads=size.heads)
    set_defaults(args, encoder_embed_dim=size.dim, encoder_ffn_embed_dim=4 * size.dim)


def encoder_architecture(args, size: Size) -> None:
    """Set XLM-R's layout at the given size, where the command line has not chosen otherwise."""
    set_encoder_size(args, size)
    set_defaults(args, max_positions=512, table_dim=None, autocast="none", init_from=None, freeze_backbone_updates=0)
    set_defaults(args, checkpoint_activations=False, relative_position_bias=False)
    roberta_architecture(args)


def register(model: str, arch: str, set_options: Callable[..., None], text: str) -> None:
    """Register an architecture of a model, whose name ends with its size.

    Args:
        set_options: a function of the options and ``size``, one of :data:`SIZES`.
        text: says in docs/options.md what it is.
    """
    of_size = partial(set_options, size=SIZES[arch.rpartition("_")[2]])
    of_size.__doc__ = text
    register_model_architecture(model, arch)(of_size)


def architecture(arch: str, **options) -> Namespace:
    """Return the model options of an architecture of pre-training, changed by ``options``.

    Raises:
        UserError: there is no such architecture.
    """
    known = [name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, PretrainingModel)]
    if arch not in known:
        near = difflib.get_close_matches(arch, known, n=2, cutoff=0.75)
        raise UserError(f"--arch {arch}: " + (f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(known)}"))
    args = Namespace(arch=arch, **options)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args
