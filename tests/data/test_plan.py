# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The plan: sampling, exact epochs, and that everything follows from (seed, epoch, number)."""

from types import SimpleNamespace

import numpy as np
import pytest

from veco_fairseq.data import plan as module
from veco_fairseq.data.permutation import permuted
from veco_fairseq.data.plan import StreamPlan, _make_exactly, sampling_probabilities
from veco_fairseq.errors import UserError


def source(name: str, count: int, seed: int = 0):
    lengths = np.random.default_rng(seed).integers(3, 30, (count, 2)).astype(np.int32)

    class Source(SimpleNamespace):
        def __len__(self):
            return count

    return Source(name=name, sentences=count, lengths=lengths)


def plan(*counts, **options) -> StreamPlan:
    sources = [source(f"l{i}", count, i) for i, count in enumerate(counts)]
    options = {"alpha": 0.5, "max_tokens": 600, "batch_size": None, "seed": 1, **options}
    return StreamPlan("bitext", sources, **options)


def batches_of(plan: StreamPlan, counts):
    """Yield the batches of the last of epochs of so many batches."""
    return plan.epoch(counts[-1], [plan.passes(count) for count in counts[:-1]])


def test_sampling_probabilities_by_hand():
    # Shares 0.8 and 0.2: square roots 0.894 and 0.447.
    assert np.allclose(sampling_probabilities([400, 100], 0.5), [2 / 3, 1 / 3])
    assert np.allclose(sampling_probabilities([400, 100], 1.0), [0.8, 0.2])
    assert np.allclose(sampling_probabilities([400, 100], 0.0), [0.5, 0.5])


def test_one_pass_over_one_source_draws_every_pair_once():
    half = plan(500)
    for epoch in (1, 2, 3):
        draws = np.concatenate(list(batches_of(half, [half.batches_per_pass] * epoch)))
        assert sorted(draws["index"]) == list(range(500)) and set(draws["epoch"]) == {epoch - 1}


def test_batches_respect_both_caps_and_are_of_like_length():
    half = plan(500, batch_size=16)
    batches = list(batches_of(half, [half.batches_per_pass]))
    lengths = [half.sources[0].lengths[batch["index"]].max(axis=1) for batch in batches]
    assert max(len(batch) for batch in batches) == 16
    assert all(2 * length.max() * len(length) <= 600 for length in lengths)
    assert np.mean([length.max() - length.min() for length in lengths]) < 3
    assert not np.all(np.diff([length.max() for length in lengths]) >= 0), "the batches are in order of length"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 17, 40, 41, 100])
def test_an_epoch_has_exactly_the_batches_asked_for(count):
    half = plan(300, 50, 1)
    for epoch in (1, 2, 7):
        batches = list(batches_of(half, [count] * epoch))
        assert len(batches) == count and all(len(batch) for batch in batches)


def test_epochs_shorter_than_a_pass_go_on_where_the_last_one_ended():
    half = plan(1000)
    count = half.batches_per_pass // 4
    drawn = np.concatenate([np.concatenate(list(batches_of(half, [count] * epoch))) for epoch in (1, 2, 3, 4)])
    keys, times = np.unique(drawn["index"], return_counts=True)
    assert times.max() == 1 and len(keys) > 900  # all but what batching leaves over


@pytest.mark.parametrize(
    "counts, batch_size", [((3, 6, 4), 4), ((13, 1, 6, 6), 4), ((1, 1, 1, 20), 4), ((1, 2, 1, 1, 3, 1, 1, 40), 1)]
)
def test_epochs_of_other_lengths_go_on_where_the_last_one_ended(counts, batch_size):
    """Such as those of --update-freq 1,2 with --updates-per-epoch: no pair comes again before all have come.

    The last ones are too short for a pair of each source, and are planned longer than they are."""
    half = plan(300, 50, 10, alpha=1.0, batch_size=batch_size)
    drawn = [np.concatenate(list(batches_of(half, counts[: epoch + 1]))) for epoch in range(len(counts))]
    _, times = np.unique(np.concatenate(drawn)[["source", "epoch", "index"]], return_counts=True)
    assert times.max() == 1


def test_languages_are_drawn_by_their_probabilities():
    half = plan(4000, 1000, max_tokens=2000)
    draws = np.concatenate(list(batches_of(half, [half.batches_per_pass])))
    assert abs((draws["source"] == 1).mean() - 1 / 3) < 0.01
    small = draws[draws["source"] == 1]
    assert set(small["epoch"]) == {0, 1}  # drawn 1,667 times: once through, and on
    assert len(np.unique(small[small["epoch"] == 0]["index"])) == 1000


def test_a_function_of_seed_and_epoch_alone():
    first, again, other = plan(300, 50), plan(300, 50), plan(300, 50, seed=2)
    wanted = [batch.tolist() for batch in batches_of(first, [20] * 5)]
    list(batches_of(again, [20]))  # what was planned before does not matter
    assert [batch.tolist() for batch in batches_of(again, [20] * 5)] == wanted
    assert [batch.tolist() for batch in batches_of(other, [20] * 5)] != wanted
    assert [batch.tolist() for batch in batches_of(first, [20] * 6)] != wanted


def test_a_pair_that_fits_no_batch_is_an_error():
    with pytest.raises(UserError, match="--max-tokens 50 cannot hold a bitext pair of twice 29 tokens: raise it to 58"):
        plan(100, max_tokens=50)
    assert plan(100, max_tokens=58).pairs == 100


def test_what_is_said_of_a_plan():
    """Of 4,000 and 1,000 pairs, shares of 2 and 1 in 3: 3,333 and 1,666 pairs a pass, in fours."""
    told = str(plan(4000, 1000, batch_size=4))
    assert told == "bitext: 5,000 pairs in 1,250 batches a pass; sampled: l0 0.6667, l1 0.3333"


def test_make_exactly_by_hand():
    batches = [np.arange(4), np.arange(1)]
    assert [b.tolist() for b in _make_exactly(1, list(batches))] == [[0, 1, 2, 3]]
    assert sorted(map(tuple, _make_exactly(3, list(batches)))) == [(0,), (0, 2), (1, 3)]
    assert sorted(map(tuple, _make_exactly(5, list(batches)))) == [(0,), (0,), (1,), (2,), (3,)]
    assert {tuple(b) for b in _make_exactly(7, list(batches))} == {(0,), (1,), (2,), (3,)}
    assert len(_make_exactly(9, list(batches))) == 9


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_permutation_without_an_array(size):
    """A permutation, another for every key, and the same whatever positions are asked for."""
    everything = permuted(np.arange(size), size, (1, 2))
    assert sorted(everything) == list(range(size))
    assert permuted(np.array([size - 1, 0]), size, (1, 2)).tolist() == [everything[-1], everything[0]]
    if size >= 16:
        assert everything.tolist() != permuted(np.arange(size), size, (1, 3)).tolist()
        assert np.mean(everything == np.arange(size)) < 0.3


def test_every_source_epoch_kind_and_seed_has_an_order_of_its_own():
    orders = []
    for kind in module.KINDS:
        for seed in (1, 2):
            sources = [source(name, 30) for name in ("l0", "l1")]
            examples = StreamPlan(kind, sources, alpha=0.5, max_tokens=600, batch_size=None, seed=seed)._examples(0, 120)
            for number in (0, 1):
                for epoch in (0, 1):
                    here = (examples["source"] == number) & (examples["epoch"] == epoch)
                    orders.append(tuple(examples["index"][here]))
    assert len(set(orders)) == len(orders) == 16 and {tuple(sorted(order)) for order in orders} == {tuple(range(30))}


def splitmix(value):
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def test_the_permutation_is_feistels_of_four_rounds():
    """Written once more with Python's integers; the constants by the first numbers of SplitMix64 with seed 0."""
    gamma = 0x9E3779B97F4A7C15
    first = [splitmix(gamma * number % 2**64) for number in (1, 2, 3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    for size, bits in ((3, 1), (5, 2), (16, 2), (17, 3), (1000, 5), (1025, 6)):
        keys = [int(key) for key in np.random.SeedSequence((1, 2)).generate_state(4, np.uint64)]

        def once(value, bits=bits, keys=keys):
            left, right = value >> bits, value % 2**bits
            for key in keys:
                left, right = right, left ^ splitmix((right + key) % 2**64) % 2**bits
            return left << bits | right

        for place, found in enumerate(permuted(np.arange(size), size, (1, 2))):
            value = once(place)
            while value >= size:
                value = once(value)
            assert found == value


def test_permutation_mixes():
    """Neighbours end up anywhere: their distances are those of random numbers."""
    size = 100_000
    values = permuted(np.arange(size), size, (7,))
    distances = np.abs(np.diff(values))
    assert abs(distances.mean() / size - 1 / 3) < 0.01
    assert abs(np.corrcoef(np.arange(size), values)[0, 1]) < 0.01
    assert abs(np.corrcoef(values, permuted(np.arange(size), size, (8,)))[0, 1]) < 0.01


def test_megabatches_are_small_and_together_everything(monkeypatch):
    """With megabatches far smaller than a pass: each pair once a pass, exact epochs, and every megabatch alone."""
    monkeypatch.setattr(module, "MEGABATCH", 100)
    half = plan(900, 100, alpha=1.0)
    assert half.pairs == 1000
    batches = list(batches_of(half, [half.batches_per_pass]))
    assert len(batches) == half.batches_per_pass
    drawn = np.concatenate(batches)
    keys, times = np.unique(drawn[["source", "index"]], return_counts=True)
    assert times.max() <= 2 and len(keys) > 900
    monkeypatch.setattr(module, "MEGABATCH", 2**20)
    assert abs(plan(900, 100, alpha=1.0).batches_per_pass - half.batches_per_pass) < 0.2 * half.batches_per_pass


def test_megabatches_have_the_batches_of_an_epoch_together(monkeypatch):
    """Of about 250 pairs 61 batches in three parts, 20, 20 and 21 of them, as near to equal as they can be."""
    monkeypatch.setattr(module, "MEGABATCH", 100)
    half = plan(900, 100, alpha=1.0, batch_size=4)
    wanted = []
    monkeypatch.setattr(module, "_make_exactly", lambda count, batches: wanted.append(count) or _make_exactly(count, batches))
    assert len(list(batches_of(half, [61]))) == 61 and wanted == [20, 20, 21]
    assert [len(list(batches_of(half, [count]))) for count in (37, 100, 131)] == [37, 100, 131]


def test_of_a_resumed_epoch_only_what_is_left_is_planned(monkeypatch):
    """A megabatch has a million pairs, and an epoch may have thousands of them."""
    monkeypatch.setattr(module, "MEGABATCH", 100)
    half = plan(900, 100, alpha=1.0, batch_size=4)
    before = [half.passes(61)]
    whole = [batch.tolist() for batch in half.epoch(61, before)]
    planned, make = [], half._megabatch
    monkeypatch.setattr(half, "_megabatch", lambda number, *places: planned.append(number) or make(number, *places))
    for start, numbers in ((0, [3, 4, 5]), (19, [3, 4, 5]), (20, [4, 5]), (45, [5]), (61, [])):
        planned.clear()
        assert [batch.tolist() for batch in half.epoch(61, before, start)] == whole[start:] and planned == numbers


def test_every_megabatch_is_shuffled_anew():
    """Pairs of one length, so that the order of a batch is the shuffle's."""
    half = plan(400)
    half.sources[0].lengths[:] = 5
    orders = []
    for number in (0, 1):
        places = {int(index): place for place, index in enumerate(half._examples(100 * number, 100 * number + 100)["index"])}
        batches = half._megabatch(number, 100 * number, 100 * number + 100)
        orders.append([places[int(index)] for batch in batches for index in batch["index"]])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(100)) and list(range(100)) not in orders
    assert np.mean(np.array(orders[0]) == np.array(orders[1])) < 0.1


def test_every_epoch_has_its_batches_in_another_order():
    """One pass has the same lengths in every epoch, and so the same batches but for their order; long ones come at other places."""
    half = plan(500)
    count = half.batches_per_pass
    orders = [[half.longest(batch) for batch in batches_of(half, [count] * epoch)] for epoch in (1, 2, 3)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2]) and len({*map(tuple, orders)}) == 3
