# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes fairseq's models and searches ready for lines of raw text."""

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerModelBase

from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_


def prepared(model: BaseFairseqModel, config: FairseqConfig) -> BaseFairseqModel:
    """Return a model, not in training mode, that translates, and tells its attention to the source, from which words are aligned.

    fairseq's LSTMs and convolutional models tell it only if they are asked. A transformer does in any case, and would be slower.
    """
    if not isinstance(model, TransformerModelBase):
        config.generation.print_alignment = "hard"
    model.prepare_for_inference_(config)
    return model


def require_beam_search(generator: object, checkpoint: Path_) -> None:
    """Raise UserError unless a model is translated by fairseq's beam search, which has a place for prefixes and constraints."""
    if not hasattr(generator, "search"):
        raise UserError(f"{checkpoint}: is translated by another search, {type(generator).__name__}: use fairseq-generate")
