# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""One sample a worker and update: a monolingual and a bitext batch side by side (VECO, "alternately sample")."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from torch import Tensor

from veco_fairseq.data.plan import KINDS
from veco_fairseq.data.sources import Half


class CompositeIndex(NamedTuple):
    """What a sample is made of: draws (:data:`veco_fairseq.data.plan.DRAW`) by kind; None where a kind is missing."""

    mono: np.ndarray | None = None
    bitext: np.ndarray | None = None


class CompositeDataset(FairseqDataset):
    """Makes the batches that a plan asks for: ``dataset[CompositeIndex]`` is {"mono": batch, "bitext": batch}.

    Masks depend on the seed and the draw alone, so that it does not matter which process makes a batch.

    Args:
        halves: by kind; a missing kind is missing in the samples.
        dictionary: whose ``<s>``, ``</s>`` and ``<pad>`` are used.
        seed: of the masks.
    """

    def __init__(self, halves: dict[str, Half], dictionary: Dictionary, seed: int):
        self.halves, self.dictionary, self.seed = halves, dictionary, seed

    def __len__(self) -> int:
        return sum(len(source) for half in self.halves.values() for source in half.sources)

    def __getitem__(self, index: CompositeIndex) -> dict[str, dict]:
        drawn = {kind: draws for kind, draws in zip(KINDS, index) if draws is not None}
        return {kind: self._batch(kind, draws) for kind, draws in drawn.items()}

    def collater(self, samples: list[dict]) -> dict:
        """A sample is a batch already; without one (a worker with nothing left to validate) it is empty."""
        return samples[0] if samples else {}

    def _batch(self, kind: str, draws: np.ndarray) -> dict:
        half = self.halves[kind]
        sides = [self._masked(kind, draw) for draw in draws]
        pairs = [side for position in (0, 1) for side in (pair[position] for pair in sides)]  # all x, then all y
        tokens, targets = (self._collate(column).view(2, len(draws), -1) for column in zip(*pairs))
        net_input = {"tokens": tokens, "targets": targets}
        if half.tlm:
            joined = [self._concatenate(x, y) for x, y in sides]
            net_input["tlm_tokens"], net_input["tlm_targets"] = (self._collate(column) for column in zip(*joined))
        names = {half.sources[identity].name for identity in np.unique(draws["source"])}
        return {
            "kind": kind,
            "name": names.pop() if len(names) == 1 else None,
            "net_input": net_input,
            "nsentences": len(draws),
            "ntokens": int(tokens.ne(self.dictionary.pad()).sum()),
        }

    def _masked(self, kind: str, draw) -> list[tuple[Tensor, Tensor]]:
        """(corrupted, targets) of x and of y, each ``<s> ... </s>``."""
        half = self.halves[kind]
        rng = np.random.default_rng((self.seed, KINDS.index(kind), *(int(field) for field in draw)))
        bos, eos = torch.tensor([self.dictionary.bos()]), torch.tensor([self.dictionary.eos()])
        pair = half.sources[draw["source"]][draw["index"]]
        more = half.mask_spread * rng.uniform(-1, 1) if half.mask_spread else 0.0
        return [half.masker(torch.cat([bos, side.long(), eos]), rng, of_x * more) for side, of_x in zip(pair, (1, -1))]

    def _concatenate(self, x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """``<s> x </s> </s> y </s>``, with the same masks as in CA-MLM."""
        separator = torch.tensor([self.dictionary.eos()])
        nothing = torch.tensor([self.dictionary.pad()])
        return torch.cat([x[0], separator, y[0][1:]]), torch.cat([x[1], nothing, y[1][1:]])

    def _collate(self, rows: Sequence[Tensor]) -> Tensor:
        return data_utils.collate_tokens(rows, self.dictionary.pad())
