# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""One sample a worker and update: a monolingual and a bitext batch side by side (VECO, "alternately sample")."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from torch import Tensor

from veco_fairseq.data import roots
from veco_fairseq.data.masking import Masker
from veco_fairseq.data.pairs import AdjacentSegments, BitextPairs
from veco_fairseq.data.plan import DRAW, KINDS, HalfPlan
from veco_fairseq.errors import UserError


class CompositeIndex(NamedTuple):
    """What a sample is made of: draws (:data:`veco_fairseq.data.plan.DRAW`) by kind; None where a kind is missing."""

    mono: np.ndarray | None = None
    bitext: np.ndarray | None = None


class Half(NamedTuple):
    """How the pairs of one kind become a batch.

    Attributes:
        sources: see :mod:`veco_fairseq.data.pairs`.
        masker: of this kind.
        tlm: also concatenate the pairs for TLM.
        mask_spread: how far the share of x to predict may lie from the masker's; that of y lies as far on the other
            side of it.
    """

    sources: Sequence
    masker: Masker
    tlm: bool
    mask_spread: float = 0.0


def find_sources(root: Path, split: str, options) -> dict[str, dict[str, Any]]:
    """The token files of the languages and pairs to train on, by kind and name; nothing is read.

    Args:
        options: the task's (:class:`veco_fairseq.tasks.camlm.CamlmTaskConfig`).

    Raises:
        UserError: a language or pair asked for is not there, or there is no data at all.
    """
    mono, bitext = roots.find_languages(root, split), roots.find_pairs(root, split)
    found = {
        "mono": {name: mono[name] for name in roots.choose(mono, options.mono_langs, "--mono-langs", root / "mono")},
        "bitext": {
            name: bitext[name] for name in roots.choose(bitext, options.bitext_pairs, "--bitext-pairs", root / "bitext")
        },
    }
    if not any(found.values()):
        raise UserError(
            f"{root}: no {split} data: neither mono/<lang>/{split}.bin nor "
            f"bitext/<src>-<tgt>/{split}.<src>-<tgt>.<lang>.bin is there"
        )
    return found


def load_halves(root: Path, split: str, options, dictionary: Dictionary) -> dict[str, Half]:
    """The halves of a root that have this split.

    Args:
        options: the task's (:class:`veco_fairseq.tasks.camlm.CamlmTaskConfig`).
        dictionary: with ``<mask>``.

    Raises:
        UserError: as :func:`find_sources`; or a file is damaged.
    """
    found = find_sources(root, split, options)
    sources = {
        "mono": [
            AdjacentSegments(name, roots.load_tokens(prefix, dictionary), options.mono_max_length)
            for name, prefix in found["mono"].items()
        ],
        "bitext": [
            BitextPairs(name, *(roots.load_tokens(prefix, dictionary) for prefix in prefixes), options.bitext_max_length)
            for name, prefixes in found["bitext"].items()
        ],
    }
    mask = dictionary.index(roots.MASK)
    return {
        kind: Half(
            sources[kind],
            Masker(dictionary, mask, getattr(options, f"{kind}_mask_prob")),
            tlm=kind == "bitext" and not options.no_tlm,
            mask_spread=options.bitext_mask_spread if kind == "bitext" else 0.0,
        )
        for kind in KINDS
        if sources[kind]
    }


def make_plans(halves: dict[str, Half], options, max_tokens: int) -> dict[str, HalfPlan]:
    """The training plan of each half; ``options`` and errors as in :func:`load_halves` and :class:`HalfPlan`."""
    return {
        kind: HalfPlan(
            kind,
            half.sources,
            getattr(options, f"{kind}_alpha"),
            max_tokens,
            getattr(options, f"{kind}_batch_size"),
            options.seed,
        )
        for kind, half in halves.items()
    }


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


class TrainingBatches:
    """The composites of an epoch for one worker: a sequence that plans as it is read and keeps no list.

    Args:
        plans: by kind.
        count: of the composites of all workers.
        num_shards, shard_id: the number of workers, and which one this is.
        epoch: from 1 on.
        offset: of the first composite of this worker.
    """

    def __init__(
        self, plans: dict[str, HalfPlan], count: int, *, num_shards: int, shard_id: int, epoch: int, offset: int = 0
    ):
        self.plans, self.count, self.epoch = plans, count, epoch
        self.num_shards, self.shard_id, self.offset = num_shards, shard_id, offset

    def __len__(self) -> int:
        return self.count // self.num_shards - self.offset

    def __iter__(self) -> Iterator[list[CompositeIndex]]:
        halves = {kind: plan.epoch(self.epoch, self.count) for kind, plan in self.plans.items()}
        for number in range(self.count):
            composite = CompositeIndex(**{kind: next(half) for kind, half in halves.items()})
            step, shard = divmod(number, self.num_shards)
            if shard == self.shard_id and step >= self.offset:
                yield [composite]

    def __getitem__(self, item: slice) -> "TrainingBatches":
        """batches[offset:], which is all that fairseq's sampler asks of a resumed epoch."""
        assert isinstance(item, slice) and item.stop is None and item.step is None
        return TrainingBatches(
            self.plans, self.count, num_shards=self.num_shards, shard_id=self.shard_id, epoch=self.epoch,
            offset=self.offset + item.start,
        )


def validation_batches(dataset: CompositeDataset, max_tokens: int, options) -> list[list[CompositeIndex]]:
    """Every pair of every source once, in batches of one source each, always with the same masks."""
    batches = []
    for kind, half in dataset.halves.items():
        for identity, source in enumerate(half.sources):
            (plan,) = make_plans({kind: half._replace(sources=[source])}, options, max_tokens).values()
            everything = np.zeros(len(source), dtype=DRAW)
            everything["index"] = np.arange(len(source))
            for draws in plan.cut(everything):
                draws["source"] = identity
                batches.append([CompositeIndex(**{kind: draws})])
    return batches


def shard(
    batches: list[list[CompositeIndex]], num_shards: int, shard_id: int, epoch: int
) -> list[list[CompositeIndex]]:
    """One worker's part of ``batches``, the same every epoch, filled up so that all workers have as many."""
    part = batches[shard_id::num_shards]
    return part + [[]] * (math.ceil(len(batches) / num_shards) - len(part))


class CompositeBatchIterator(EpochBatchIterator):
    """fairseq's epoch iterator over planned composites, which are in their final order already.

    Args:
        dataset: the composites' maker.
        batches: a function of (number of workers, worker, epoch) that gives this worker's batches, as a sequence of
            lists of one index, or of none where a worker has nothing left.
        made_from: all that decides on the batches, by option; kept in the checkpoint, so that an epoch that was begun
            with other batches is not gone on with (:func:`veco_fairseq.compat.batches.load_epoch_state`).
        options: of :class:`EpochBatchIterator`.
    """

    def __init__(self, dataset: CompositeDataset, batches, made_from: dict[str, Any], **options):
        super().__init__(dataset, dataset.collater, batch_sampler=(), **options)
        self.batches = batches
        self.made_from = made_from

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool):
        return self.batches(num_shards=self.num_shards, shard_id=self.shard_id, epoch=epoch)

    def __len__(self) -> int:
        return len(self.ordered_batches(self.epoch, False, False))

    @property
    def first_batch(self) -> dict:
        """The trainer's stand-in for a worker that has nothing to do."""
        of_all = self.batches(num_shards=1, shard_id=0, epoch=self.epoch)
        return self.collate_fn([self.dataset[index] for index in next(iter(of_all))])
