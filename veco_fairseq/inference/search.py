# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes fairseq's models and searches ready for lines of raw text."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

import torch
from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_
from veco_fairseq.inference.requests import Request
from veco_fairseq.options.borders import searches

# Where fairseq's search is made that takes all options, for sources that end in </s>.
PLAIN = ("fairseq.tasks.fairseq_task", "fairseq.tasks.translation")


def set_target(task, checkpoint: Path_, to: str | None) -> None:
    """Tell a task of many directions the language to translate into, which may be the only one; another has no choice.

    Raises:
        UserError: with the languages that there are; or the task is one of fairseq's with a search of its own.
    """
    own = getattr(getattr(type(task), "build_generator", None), "__module__", "")
    if own.startswith("fairseq.tasks.") and own not in PLAIN:
        raise UserError(
            f"{checkpoint}: is of --task {own.rpartition('.')[2]}, whose texts and search are its own: use fairseq-generate, of an mBART "
            "with --task translation and data whose dict.LANG.txt end in its language tokens and <mask>"
        )
    if hasattr(task, "choose_target"):
        if to is None and len(task.targets) == 1:
            (to,) = task.targets
        if to is None:
            raise UserError(f"{checkpoint}: translates into {', '.join(task.targets)}: choose one with --to")
        task.choose_target(to)
    elif to is not None:
        raise UserError(f"--to {to}: {checkpoint} has no token for it: it translates in one direction alone: take --to away")


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


def settled(search: GenerationConfig) -> GenerationConfig:
    """Return the options of a search, with a beam of as many translations as sampling is to draw.

    Raises:
        UserError: a search is to give more translations than its beam finds, or has options that do not go together.
    """
    for message in searches(vars(search)):
        raise UserError(message)
    if search.sampling:
        return replace(search, beam=search.nbest)
    if search.nbest > search.beam:
        raise UserError(
            f"--nbest {search.nbest}: a search with --beam {search.beam} finds at most {search.beam}: give a larger --beam"
        )
    return search


def require_constraints_taken(search: GenerationConfig, request: Request) -> None:
    """Raise UserError for a line with constraints that the search would pass over."""
    if request.constraints and not search.constraints:
        advice = 'give it GenerationConfig(constraints="ordered") or "unordered"'
        raise UserError(f"{request.source[:30]!r}...: has constraints, which the search does not take: {advice}")


class Draws:
    """The random numbers of one translator: neither does it draw from those of others, nor do others draw from its own.

    Args:
        seed: of the first draws; all others go on from there.
        device: that the translator computes on.
        sampling: whether its search draws at all.
    """

    _turn = Lock()  # of all translators, since PyTorch's generators are those of all threads

    def __init__(self, seed: int, device: torch.device, sampling: bool = True):
        self.sampling = sampling
        self.seed, self.devices = seed, [device] if device.type == "cuda" else []
        self.states: list[Tensor] = []  # of the CPU's generator, and of the GPU's

    @contextmanager
    def own(self) -> Iterator[None]:
        """Draw by the seed in this block; after it, PyTorch's generators are what they were.

        Where nothing is drawn, they are left alone: what another thread draws meanwhile would be of this seed.
        """
        if not self.sampling:
            yield
            return
        with self._turn, torch.random.fork_rng(self.devices):
            if self.states:
                torch.random.set_rng_state(self.states[0])
                for device, state in zip(self.devices, self.states[1:]):
                    torch.cuda.set_rng_state(state, device)
            else:
                torch.random.default_generator.manual_seed(self.seed)
                for _ in self.devices:
                    torch.cuda.manual_seed(self.seed)
            yield
            self.states = [torch.random.get_rng_state(), *map(torch.cuda.get_rng_state, self.devices)]
