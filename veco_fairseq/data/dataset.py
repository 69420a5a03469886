# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Samples: for each worker and update, a monolingual and a bitext batch (VECO, "alternately sample")."""

import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from veco_fairseq.data.masking import masked_places
from veco_fairseq.data.plan import KINDS
from veco_fairseq.data.sources import Stream


class SampleIndex(NamedTuple):
    """The pairs of a sample (:data:`veco_fairseq.data.plan.EXAMPLE`) by kind; None where a kind is missing."""

    mono: np.ndarray | None = None
    bitext: np.ndarray | None = None


class PretrainingDataset(FairseqDataset):
    """Makes the planned batches: ``dataset[SampleIndex]`` is {"mono": batch, "bitext": batch}.

    Masks depend only on the seed and the example, so any process can make a batch.

    Args:
        streams: by kind; samples lack a kind that is missing here.
        dictionary: has the ``<s>``, ``</s>`` and ``<pad>`` to use.
        seed: of the masks.

    Attributes:
        names: of the languages and pairs.
    """

    def __init__(self, streams: dict[str, Stream], dictionary: Dictionary, seed: int):
        self.streams, self.dictionary, self.seed = streams, dictionary, seed
        self.names = [source.name for stream in streams.values() for source in stream.sources]
        self.bos, self.eos, self.pad = (torch.tensor([of()]) for of in (dictionary.bos, dictionary.eos, dictionary.pad))

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Return by kind a checksum of the lengths of all pairs, which the batches depend on."""
        found = dict.fromkeys(self.streams, 0)
        for kind, stream in self.streams.items():
            for source in stream.sources:  # one by one: together the lengths of a large root are many GB
                found[kind] = zlib.crc32(np.ascontiguousarray(source.lengths).data, found[kind])
        return {kind: f"{value:08x}" for kind, value in found.items()}

    def __len__(self) -> int:
        return sum(len(source) for stream in self.streams.values() for source in stream.sources)

    def __getitem__(self, index: SampleIndex) -> dict[str, dict]:
        return {kind: self._batch(kind, examples) for kind, examples in zip(KINDS, index) if examples is not None}

    def collater(self, samples: list[dict]) -> dict:
        """Return the sample, which is a batch already, or an empty batch for a worker with nothing left to validate."""
        return samples[0] if samples else {}

    def _batch(self, kind: str, examples: np.ndarray) -> dict:
        stream = self.streams[kind]
        sides = [self._masked(kind, example) for example in examples]
        pairs = [side for position in (0, 1) for side in (pair[position] for pair in sides)]  # all x, then all y
        tokens, targets = (self._collate(column).view(2, len(examples), -1) for column in zip(*pairs))
        net_input = {"tokens": tokens, "targets": targets}
        if stream.tlm:
            joined = [self._concatenate(x, y) for x, y in sides]
            net_input["tlm_tokens"], net_input["tlm_targets"] = (self._collate(column) for column in zip(*joined))
        pad = self.dictionary.pad()
        names = {stream.sources[identity].name for identity in np.unique(examples["source"])}
        return {
            "kind": kind,
            "name": names.pop() if len(names) == 1 else None,
            "net_input": net_input,
            "places": {name: masked_places(part, pad) for name, part in net_input.items() if name.endswith("targets")},
            "nsentences": len(examples),
            "ntokens": int(tokens.ne(pad).sum()),
        }

    def _masked(self, kind: str, example) -> list[tuple[Tensor, Tensor]]:
        """Return (corrupted, targets) of x and of y, each ``<s> ... </s>``."""
        stream = self.streams[kind]
        rng = np.random.default_rng((self.seed, KINDS.index(kind), *(int(field) for field in example)))
        pair = stream.sources[example["source"]][example["index"]]
        more = stream.mask_spread * rng.uniform(-1, 1) if stream.mask_spread else 0.0
        return [
            stream.masker(torch.cat([self.bos, side.long(), self.eos]), rng, of_x * more) for side, of_x in zip(pair, (1, -1))
        ]

    def _concatenate(self, x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return ``<s> x </s> </s> y </s>``, with the same masks as in CA-MLM."""
        return torch.cat([x[0], self.eos, y[0][1:]]), torch.cat([x[1], self.pad, y[1][1:]])

    def _collate(self, rows: Sequence[Tensor]) -> Tensor:
        return pad_sequence(list(rows), batch_first=True, padding_value=self.dictionary.pad())
