# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The batches that a worker gets, in training and in validation."""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from fairseq.data.iterators import EpochBatchIterator

from veco_fairseq.data.dataset import PretrainingDataset, SampleIndex
from veco_fairseq.data.plan import EXAMPLE, StreamPlan
from veco_fairseq.data.sources import Stream

logger = logging.getLogger(__name__)

GOLDEN = (math.sqrt(5) - 1) / 2  # the first N multiples of it, less their whole parts, are spread evenly, whatever N is


def make_plans(streams: dict[str, Stream], options, max_tokens: int) -> dict[str, StreamPlan]:
    """Plan the training batches of each stream; ``options`` and errors as in :func:`load_streams` and :class:`StreamPlan`."""
    return {
        kind: StreamPlan(
            kind,
            stream.sources,
            getattr(options, f"{kind}_alpha"),
            max_tokens,
            getattr(options, f"{kind}_batch_size"),
            options.seed,
        )
        for kind, stream in streams.items()
    }


class TrainingBatches:
    """The samples of an epoch for one worker. They are planned as they are read, and never kept in a list.

    Args:
        plans: by kind.
        count: the number of samples of all workers.
        before: how far the earlier epochs of these data went, by kind (:meth:`StreamPlan.passes`); a kind may be new.
        num_shards, shard_id: the number of workers, and this worker's.
    """

    def __init__(
        self,
        plans: dict[str, StreamPlan],
        count: int,
        before: Sequence[Mapping[str, Fraction]],
        *,
        num_shards: int,
        shard_id: int,
    ):
        self.plans, self.count = plans, count
        self.before = {kind: [passes.get(kind, Fraction(0)) for passes in before] for kind in plans}
        self.num_shards, self.shard_id = num_shards, shard_id
        self.offset = 0  # the number of this worker's samples that are left out

    def __len__(self) -> int:
        return self.count // self.num_shards - self.offset

    def __iter__(self) -> Iterator[list[SampleIndex]]:
        start = self.offset * self.num_shards
        streams = {kind: plan.epoch(self.count, self.before[kind], start) for kind, plan in self.plans.items()}
        for number in range(start, self.count):
            sample = SampleIndex(**{kind: next(stream) for kind, stream in streams.items()})
            if number % self.num_shards == self.shard_id:
                yield [sample]

    def __getitem__(self, item: slice) -> "TrainingBatches":
        """Return batches[offset:], the only slice that fairseq's sampler asks for, in a resumed epoch."""
        assert isinstance(item, slice) and item.stop is None and item.step is None
        rest = copy.copy(self)
        rest.offset += item.start
        return rest

    @property
    def passes(self) -> dict[str, Fraction]:
        """Return how far this epoch goes, by kind."""
        return {kind: plan.passes(self.count) for kind, plan in self.plans.items()}


def validation_batches(dataset: PretrainingDataset, max_tokens: int, *, seed: int) -> list[list[SampleIndex]]:
    """Return batches with every pair of every source once, one source a batch, and always the same masks.

    They have as many pairs as ``max_tokens`` allows. The options of the batch size are for training, which needs more memory.
    The sources take turns in proportion to their batches, and short and long pairs of each are mixed, so that the first ones of
    ``--max-valid-steps`` are of all sources and lengths.
    """
    batches, places = [], []
    for kind, stream in dataset.streams.items():
        for identity, source in enumerate(stream.sources):
            option = "--max-tokens-valid (or --max-tokens)"
            plan = StreamPlan(kind, [source], alpha=1.0, max_tokens=max_tokens, batch_size=None, seed=seed, option=option)
            everything = np.zeros(len(source), dtype=EXAMPLE)
            everything["index"] = np.arange(len(source))
            cut = plan.cut(everything)
            for examples in cut:
                examples["source"] = identity
                batches.append([SampleIndex(**{kind: examples})])
            turns = np.argsort((0.5 + GOLDEN * np.arange(len(cut))) % 1)  # the batch in the middle comes first
            places += (turns / len(cut)).tolist()
    return [batches[number] for number in np.argsort(places, kind="stable")]


def shard(batches: list[list[SampleIndex]], num_shards: int, shard_id: int, epoch: int) -> list[list[SampleIndex]]:
    """Return one worker's part of ``batches``, the same every epoch, filled up so that all workers have the same number."""
    part = batches[shard_id::num_shards]
    return part + [[]] * (math.ceil(len(batches) / num_shards) - len(part))


class PlannedBatchIterator(EpochBatchIterator):
    """An epoch's iterator over planned samples, which have their final order already.

    Args:
        dataset: makes the samples.
        batches: a function of (number of workers, worker, epoch) that returns this worker's batches, as a sequence of
            lists of one index, or of no index where a worker has nothing left.
        made_from: a function of an epoch that returns the options that its batches depend on. They are kept in the
            checkpoint: an epoch that began with other batches cannot be resumed
            (:func:`veco_fairseq.compat.batches.load_epoch_state`).
        passes: of training, how far each epoch went, by number and kind. It is kept in the checkpoint: the next epoch goes on
            from there, also with another number of workers or other sizes of batches.
        roots: the names of the roots that epochs have in turn, joined with ":". They are kept, too, to tell of another list.
        options: of :class:`EpochBatchIterator`.
    """

    def __init__(
        self,
        dataset: PretrainingDataset,
        batches,
        made_from: Callable[[int], dict[str, Any]],
        *,
        passes: dict[int, dict[str, Fraction]] | None = None,
        roots: str = "",
        **options,
    ):
        super().__init__(dataset, dataset.collater, batch_sampler=(), **options)
        self.batches = batches
        self.made_from_in = made_from
        self.passes = {} if passes is None else passes
        self.roots = roots

    @property
    def made_from(self) -> dict[str, Any]:
        return self.made_from_in(self.epoch)

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool):
        batches = self.batches(num_shards=self.num_shards, shard_id=self.shard_id, epoch=epoch)
        if isinstance(batches, TrainingBatches):
            self.passes[epoch] = batches.passes
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, with how far the earlier epochs went."""
        state = super().state_dict()
        ratios = {
            epoch: {kind: list(far.as_integer_ratio()) for kind, far in passes.items()}
            for epoch, passes in self.passes.items()
            if epoch < state["epoch"]
        }
        return {**state, "passes": ratios, "roots": self.roots}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there; an older checkpoint does not say how far its epochs went, which then follows from the options."""
        for epoch, ratios in state_dict.get("passes", {}).items():
            self.passes[epoch] = {kind: Fraction(*ratio) for kind, ratio in ratios.items()}
        then = state_dict.get("roots", self.roots)
        if then != self.roots and ":" in then + self.roots:
            logger.warning(
                f"the epochs before had the roots {then} in turn, and those from now on have {self.roots}: what a root's pairs go on "
                "from is counted by the new list, so that some may come again too early: give the same list, or --reset-dataloader"
            )
        super().load_state_dict(state_dict)

    def batches_in(self, epoch: int) -> int:
        return len(self.batches(num_shards=self.num_shards, shard_id=self.shard_id, epoch=epoch))

    def __len__(self) -> int:
        return self.batches_in(self.next_epoch_idx)

    @property
    def first_batch(self) -> dict:
        """Return the trainer's dummy batch for a worker that has nothing to do."""
        of_all = self.batches(num_shards=1, shard_id=0, epoch=self.epoch)
        return self.collate_fn([self.dataset[index] for index in next(iter(of_all))])
