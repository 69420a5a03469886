# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Chance in translations: draws of a next token where the likeliest ones are not allowed, as at the greatest length; and dropout."""

from collections.abc import Callable
from functools import wraps

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from veco_fairseq.errors import UserError

# Nats. The probability of a token that is less likely than this is 0 in fp32, or has few digits.
LEAST = -80.0


def within_range(step: Callable) -> Callable:
    """Wrap the step of fairseq's ``Sampling``: raise the tokens that may be drawn if the likeliest of them is below :data:`LEAST`.

    With ``--temperature 0.1``, e^-8 becomes e^-80. All tokens of a row are raised alike, so they keep their proportions, and the
    score of the one that is drawn is lowered again. A ``--sampling-topk`` beyond the vocabulary is all of it.
    """

    @wraps(step)
    def wrapped(search, number: int, lprobs: Tensor, *others, **named) -> tuple[Tensor, Tensor, Tensor]:
        search.sampling_topk = min(search.sampling_topk, lprobs.size(2))
        top = lprobs.amax(dim=2, keepdim=True)
        raised = torch.where(top < LEAST, top, 0.0)
        scores, tokens, beams = step(search, number, lprobs - raised, *others, **named)
        return scores + raised.squeeze(2), tokens, beams

    return wrapped


def of_known_modules(prepare: Callable) -> Callable:
    """Make a ``prepare_for_inference_`` that refuses ``--retain-dropout-modules`` without the name of one of the model's modules.

    Raises:
        UserError: fairseq would translate without dropout.
    """

    @wraps(prepare)
    def prepared(model: nn.Module, cfg) -> None:
        chosen = getattr(cfg.generation, "retain_dropout", False) and cfg.generation.retain_dropout_modules
        names = {module.module_name for module in model.modules() if isinstance(module, FairseqDropout) and module.module_name}
        if chosen and not any(name in chosen for name in names):
            there = (
                f"has {', '.join(sorted(names))}: give one of them" if names else "has none that has a name: leave the option out"
            )
            raise UserError(f"--retain-dropout-modules {chosen}: is none of the modules with dropout: the model {there}")
        prepare(model, cfg)

    return prepared
