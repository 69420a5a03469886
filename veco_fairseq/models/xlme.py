# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""XLM-E, generator and discriminator: ``--arch xlme_{tiny,base,large,xl}``."""

from argparse import Namespace
from typing import NamedTuple

import torch
import torch.nn as nn
from fairseq import utils
from fairseq.models import register_model
from torch import Tensor

from veco_fairseq.data.masking import masked_places, positions
from veco_fairseq.data.sentencepiece import MASK
from veco_fairseq.models.base import (
    SIZES,
    PretrainingModel,
    Size,
    encoder_architecture,
    refuse_unsupported,
    register,
    set_defaults,
)
from veco_fairseq.models.veco import VecoEncoder
from veco_fairseq.modules.encoder import UnpluggedTransformerEncoder
from veco_fairseq.modules.lm_head import drawn_from
from veco_fairseq.modules.token_sampler import Draw


class Detection(NamedTuple):
    """The output of generator and discriminator for a batch.

    Attributes:
        nll: -log p_G(x_i | x^masked) of the masked tokens, nats, fp32, (masked).
        correct: whether the generator's likeliest token is the right one, (masked).
        logits: the discriminator's logits for "replaced", fp32, of all tokens but padding, (tokens); or None.
        replaced: whether these tokens are replaced, (tokens); or None.
    """

    nll: Tensor
    correct: Tensor
    logits: Tensor | None = None
    replaced: Tensor | None = None


class Generator(VecoEncoder):
    """XLM-R: embeddings, layers without cross-attention, LM head."""

    def build_encoder(self, args, dictionary, embed_tokens) -> UnpluggedTransformerEncoder:
        return UnpluggedTransformerEncoder(args, dictionary, embed_tokens)


class Discriminator(Generator):
    """XLM-R without the LM head."""

    def build_lm_head(self, *args, **kwargs) -> None:
        return None


class DetectionHead(nn.Module):
    """ELECTRA's head: a dense layer, the activation, and one logit a token (the paper does not describe it)."""

    def __init__(self, dim: int, activation_fn: str):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.activation_fn = utils.get_activation_fn(activation_fn)
        self.out_proj = nn.Linear(dim, 1)

    def forward(self, states: Tensor) -> Tensor:
        """(..., dim) -> (...)."""
        return self.out_proj(self.activation_fn(self.dense(states))).squeeze(-1)


@register_model("xlme")
class XlmeModel(PretrainingModel):
    """XLM-E (ACL 2022): a generator fills in masked tokens, and a discriminator tells which tokens are not original.

    The discriminator is ``encoder``, an ordinary XLM-R without an LM head. It is kept in the end; ``generator`` and
    ``detection_head`` only serve its pre-training.
    """

    criterion = "replaced_token"

    def __init__(self, args, encoder: Discriminator, generator: Generator):
        super().__init__(args, encoder)
        self.generator = generator
        self.detection_head = DetectionHead(args.encoder_embed_dim, args.activation_fn)
        if args.generator_embeddings == "shared":
            for name in ("embed_tokens", "embed_positions"):
                setattr(encoder.sentence_encoder, name, getattr(generator.sentence_encoder, name))

    @staticmethod
    def add_args(parser) -> None:
        """Add the options of all models of pre-training, for the discriminator, and the generator's options."""
        PretrainingModel.add_args(parser)
        parser.add_argument(
            "--generator-layers",
            type=int,
            metavar="L",
            help="layers of the generator, which is otherwise of the discriminator's size (paper: base 4, large 6, XL 8)",
        )
        parser.add_argument(
            "--generator-embeddings",
            choices=["shared", "own"],
            help="shared: generator and discriminator train one table of tokens and one of positions (default, as in "
            "ELECTRA; the paper is silent); own: each has its own tables",
        )

    @classmethod
    def build_model(cls, args, task) -> "XlmeModel":
        if hasattr(args, "encoder_layers"):  # of an architecture of somebody's own, which may set no more
            set_defaults(args, generator_layers=_of_own_depth(args.encoder_layers))
        _architecture(args, SIZES["base"])
        refuse_unsupported(args)
        of_generator = Namespace(**{**vars(args), "encoder_layers": args.generator_layers})
        return cls(args, Discriminator(args, task.source_dictionary), Generator(of_generator, task.source_dictionary))

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor,
        tlm_tokens: Tensor | None = None,
        tlm_targets: Tensor | None = None,
        discriminate: bool = True,
        places: dict[str, Tensor] | None = None,
    ) -> Detection:
        """Run one kind of batch: concatenated pairs on bitext with TLM, single sequences x and y otherwise.

        Args:
            tokens: pairs, (2, batch, length), with ``<mask>`` at all positions to predict.
            targets: the original tokens at the masked positions, padding elsewhere, (2, batch, length).
            tlm_tokens, tlm_targets: the same for concatenated pairs [e; f], (batch, length of both).
            discriminate: whether to run the discriminator after the generator.
            places: as in :meth:`veco_fairseq.models.veco.VecoModel.forward`.
        """
        if tlm_tokens is None or tlm_targets is None:
            name, tokens, targets = "targets", tokens.flatten(0, 1), targets.flatten(0, 1)
        else:
            name, tokens, targets = "tlm_targets", tlm_tokens, tlm_targets
        pad = self.generator.dictionary.pad()
        flat = masked_places(targets, pad) if places is None else places[name]
        chosen = positions(flat, targets.shape)  # M
        original = torch.where(targets.ne(pad), targets, tokens)  # x; tokens is x^masked
        with self.autocast(tokens.device):
            table, (embeddings,) = self.generator.sentence_encoder.embed_tokens.with_table(tokens)
            states = self.generator(tokens, token_embeddings=embeddings)
            gold = targets[chosen]
            nll, correct, sampled = drawn_from(self.generator.lm_head, table, states[chosen], gold, draw=self._draw(gold))
            if not discriminate:
                return Detection(nll, correct)
            # Equations 2 and 4: x^corrupt. No gradient flows through a token.
            corrupt = original.index_put(chosen, sampled)
            real = original.ne(pad).nonzero(as_tuple=True)
            logits = self.detection_head(self.unplugged(corrupt)[real])
        return Detection(nll, correct, logits.float(), corrupt.ne(original)[real])

    def kept_states(self, apart: Tensor, joined: Tensor | None) -> list[Tensor]:
        """Return the generator's states and the discriminator's logits, as :meth:`forward` computes them."""
        tokens = apart if joined is None else joined
        return [self.generator(tokens), self.detection_head(self.unplugged(tokens).flatten(0, 1))]

    def predictions_of_a_token(self, tlm: bool) -> int:
        """Return one, the generator's."""
        return 1

    def _draw(self, gold: Tensor) -> Draw:
        """Return how to sample for the masked tokens ``gold``, (masked): only ordinary tokens, as masks hide no others.

        In training the random numbers are PyTorch's, which fairseq seeds for each update, so resumed training draws the
        same tokens. In validation they depend only on the batch, so every validation draws the same tokens.
        """
        generator = None
        if not self.training:
            generator = torch.Generator(gold.device).manual_seed(int(gold.sum()))
        dictionary = self.generator.dictionary
        numbers = torch.rand(len(gold), device=gold.device, generator=generator)
        return Draw(numbers, dictionary.nspecial, dictionary.index(MASK))


# The paper's (tables 8 and 9), by the architectures' sizes.
GENERATOR_LAYERS = {SIZES["tiny"]: 1, SIZES["base"]: 4, SIZES["large"]: 6, SIZES["xl"]: 8}


def _of_own_depth(layers: int) -> int:
    """Return the generator's layers for a size of somebody's own: as tiny and base have it."""
    return max(1, layers // 3)


def _architecture(args, size: Size) -> None:
    layers = GENERATOR_LAYERS.get(size) or _of_own_depth(size.layers)
    set_defaults(args, generator_layers=layers, generator_embeddings="shared")
    encoder_architecture(args, size)


register("xlme", "xlme_tiny", _architecture, "3 layers, generator 1, 192/768, 4 heads: tests and demos.")
register("xlme", "xlme_base", _architecture, "12 layers, generator 4, 768/3072, 12 heads (tables 8 and 9).")
register("xlme", "xlme_large", _architecture, "24 layers, generator 6, 1024/4096, 16 heads (tables 8 and 9).")
register("xlme", "xlme_xl", _architecture, "48 layers, generator 8, 1536/6144, 24 heads (tables 8 and 9).")
