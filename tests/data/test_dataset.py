# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Samples of pre-training, worked out by hand: what is in a batch, and which batches a worker gets."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_dictionary
from fairseq.data import FairseqDataset

from veco_fairseq.data.batches import PlannedBatchIterator, TrainingBatches, make_plans, validation_batches
from veco_fairseq.data.dataset import PretrainingDataset, SampleIndex
from veco_fairseq.data.plan import EXAMPLE, KINDS
from veco_fairseq.data.sources import Stream


class Source(list):
    """Pairs of lists of ids, with a name."""

    def __init__(self, name, *pairs):
        super().__init__(tuple(map(torch.tensor, pair)) for pair in pairs)
        self.name = name


def all_of_it(tokens, rng, more):
    """Every ordinary token is to be predicted, and stays."""
    return tokens, torch.where(tokens > 3, tokens, 1)


def examples(*rows):
    return np.array(list(rows), dtype=EXAMPLE)


def test_a_batch_by_hand():
    """All x above all y, and each pair in one row for TLM, with one more </s> between, which is not to be predicted."""
    sources = [Source("aa", ([5, 6], [7])), Source("bb", ([4], [4]), ([8], [9, 10]))]
    dataset = PretrainingDataset({"bitext": Stream(sources, all_of_it, tlm=True)}, make_dictionary(), seed=3)
    assert len(dataset) == 3
    (batch,) = dataset[SampleIndex(bitext=examples((0, 0, 0), (1, 0, 1)))].values()
    found = {name: part.tolist() for name, part in batch["net_input"].items()}
    assert found == {
        "tokens": [[[0, 5, 6, 2], [0, 8, 2, 1]], [[0, 7, 2, 1], [0, 9, 10, 2]]],
        "targets": [[[1, 5, 6, 1], [1, 8, 1, 1]], [[1, 7, 1, 1], [1, 9, 10, 1]]],
        "tlm_tokens": [[0, 5, 6, 2, 2, 7, 2], [0, 8, 2, 2, 9, 10, 2]],
        "tlm_targets": [[1, 5, 6, 1, 1, 7, 1], [1, 8, 1, 1, 9, 10, 1]],
    }
    places = {name: part.tolist() for name, part in batch["places"].items()}
    assert places == {"targets": [1, 2, 5, 9, 13, 14], "tlm_targets": [1, 2, 5, 8, 11, 12]}
    assert [batch[name] for name in ("kind", "name", "nsentences", "ntokens")] == ["bitext", None, 2, 14]
    one = dataset[SampleIndex(bitext=examples((1, 0, 0), (1, 0, 1)))]
    assert one["bitext"]["name"] == "bb" and dataset.collater([one]) is one and dataset.collater([]) == {}


def test_every_example_has_random_numbers_of_its_own():
    """Of the seed, the kind, the source, how often it was there, and its place; x has others than y."""
    drawn = []

    def draw(tokens, rng, more):
        drawn.append(rng.random())
        return tokens, tokens

    sources = [Source(name, *[([5], [6])] * 2) for name in ("aa", "bb")]
    for seed in (3, 4):
        dataset = PretrainingDataset({kind: Stream(sources, draw, tlm=False) for kind in KINDS}, make_dictionary(), seed)
        for kind in KINDS:
            dataset[SampleIndex(**{kind: examples((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))})]
    assert len(drawn) == len(set(drawn)) == 2 * 2 * 4 * 2


def test_what_more_is_hidden_of_one_side_is_left_of_the_other():
    asked = []

    def note(tokens, rng, more):
        asked.append(more)
        return tokens, tokens

    sources = [Source("aa-bb", *[([5], [6])] * 40)]
    dataset = PretrainingDataset({"bitext": Stream(sources, note, tlm=False, mask_spread=0.2)}, make_dictionary(), seed=1)
    dataset[SampleIndex(bitext=examples(*((0, 0, index) for index in range(40))))]
    x, y = np.array(asked).reshape(-1, 2).T
    assert np.array_equal(x, -y) and x.min() < -0.1 and x.max() > 0.1 and abs(x).max() <= 0.2


class Plan:
    def __init__(self, name):
        self.name = name

    def epoch(self, count, before, start):
        return (f"{self.name} {sum(before)} {number}" for number in range(start, count))


def test_a_workers_samples_and_those_that_are_left_of_them():
    before = [{"mono": Fraction(1, 3), "bitext": Fraction(2)}, {"mono": Fraction(1, 6)}]  # in which bitext had no part
    batches = TrainingBatches({kind: Plan(kind) for kind in KINDS}, 6, before, num_shards=2, shard_id=1)
    expected = [[SampleIndex(f"mono 1/2 {number}", f"bitext 2 {number}")] for number in (1, 3, 5)]
    assert list(batches) == expected and len(batches) == 3
    rest = batches[1:][1:]  # an epoch that was resumed twice
    assert list(rest) == expected[2:] and len(rest) == 1 and list(batches) == expected


def test_each_kind_is_planned_with_its_own_options():
    lengths = np.array([[3, 4], [5, 3]])
    source = Source("aa", ([5], [6, 7]), ([5, 6, 7], [8]))
    source.lengths, source.sentences = lengths, 2
    streams = {kind: Stream([source], all_of_it, tlm=False) for kind in KINDS}
    options = SimpleNamespace(mono_alpha=0.3, bitext_alpha=0.7, mono_batch_size=5, bitext_batch_size=6, seed=9)
    plans = make_plans(streams, options, 40)
    found = {name: (plan.kind, plan.alpha, plan.batch_size, plan.max_tokens, plan.seed) for name, plan in plans.items()}
    assert found == {"mono": ("mono", 0.3, 5, 40, 9), "bitext": ("bitext", 0.7, 6, 40, 9)}


def test_validation_has_every_pair_once_and_batches_as_large_as_their_tokens_allow():
    """Of one source each, with pairs of similar length; options of the batch size are for training alone."""
    lengths = {"aa": [[3, 3]] * 20 + [[4, 3]], "bb": [[3, 6], [5, 3]], "aa-bb": [[3, 3]]}
    sources = {name: Source(name, *[([5], [6])] * len(of)) for name, of in lengths.items()}
    for name, source in sources.items():
        source.lengths, source.sentences = np.array(lengths[name]), len(source)
    streams = {"mono": [sources["aa"], sources["bb"]], "bitext": [sources["aa-bb"]]}
    streams = {kind: Stream(of_kind, all_of_it, tlm=False) for kind, of_kind in streams.items()}
    batches = validation_batches(PretrainingDataset(streams, make_dictionary(), seed=3), 120, seed=5)
    found = [(kind, of_kind.tolist()) for (sample,) in batches for kind, of_kind in zip(KINDS, sample) if of_kind is not None]
    assert found == [
        ("mono", [(0, 0, 20)]),
        ("mono", [(1, 0, 1), (1, 0, 0)]),
        ("bitext", [(0, 0, 0)]),
        ("mono", [(0, 0, index) for index in range(20)]),  # of twice 3 tokens, 120 in all, after one batch of every source
    ]


def test_the_first_batches_of_validation_have_short_and_long_pairs():
    """... of each source, as the whole set has; they were its shortest pairs, and --max-valid-steps takes no others."""
    sources = [Source(name, *[([5], [6])] * 40) for name in ("aa", "bb")]
    for source in sources:
        source.lengths, source.sentences = np.arange(61, 101)[:, None].repeat(2, axis=1), 40
    dataset = PretrainingDataset({"mono": Stream(sources, all_of_it, tlm=False)}, make_dictionary(), seed=3)
    found = [tuple(sample.mono[["source", "index"]].tolist()[0]) for (sample,) in validation_batches(dataset, 200, seed=5)]
    assert sorted(found) == [(identity, index) for identity in range(2) for index in range(40)]
    for most in (6, 10, 30):
        for identity in range(2):
            first = [index for source, index in found[:most] if source == identity]
            assert len(first) == most / 2 and min(first) < 10 and max(first) > 25 and abs(np.mean(first) - 19.5) < 4


class Numbers(FairseqDataset):
    def __getitem__(self, index):
        return f"sample {index}"

    def __len__(self):
        return 99

    def collater(self, samples):
        return samples


@pytest.mark.parametrize("epoch, length, first", [(1, 0, 10), (2, 1, 20), (5, 2, 50)])
def test_a_worker_that_has_nothing_takes_the_first_batch_of_all_for_its_dummy(epoch, length, first):
    def batches(*, num_shards, shard_id, epoch):
        return [[10 * epoch + number] for number in range(shard_id, epoch, num_shards)]

    iterator = PlannedBatchIterator(Numbers(), batches, lambda epoch: {"seed": epoch}, num_shards=2, shard_id=1, epoch=epoch)
    assert len(iterator) == length and iterator.first_batch == [f"sample {first}"] and iterator.made_from == {"seed": epoch}
