# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How often an epoch has the pairs of each direction, and what is in a batch."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from conftest import make_dictionary
from fairseq.data import LanguagePairDataset, ListDataset

from veco_fairseq.data.directions import (
    DirectionsDataset,
    find_directions,
    numbers_of_draws,
    parse_directions,
    prepend,
    the_direction,
)
from veco_fairseq.data.languages import sides_of
from veco_fairseq.errors import UserError


@pytest.mark.parametrize("sizes, alpha, draws", [
    ([900, 100], 1.0, [900, 100]),
    ([900, 100], 0.5, [750, 250]),  # 30 : 10
    ([900, 100], 0.0, [500, 500]),
    ([4, 1, 1], 0.5, [3, 2, 1]),  # 3, 1.5 and 1.5: the first of two halves gets the one that is left
    ([7, 7, 7], 0.3, [7, 7, 7]),
    ([5], 0.7, [5]),
    ([29_000] * 11 + [28_999], 1.0, [29_000] * 11 + [28_999]),
])  # fmt: skip
def test_draws_worked_out_by_hand(sizes, alpha, draws):
    assert numbers_of_draws(sizes, alpha) == draws


def pairs(lengths, first):
    """Sources of these lengths, without ``</s>``, and targets that are two longer; tokens from ``first`` on tell the direction."""
    words = make_dictionary()
    sources = [torch.tensor([first] * length + [2]) for length in lengths]
    targets = [torch.tensor([first + 1] * (length + 2) + [2]) for length in lengths]
    sizes = [np.array([len(line) for line in lines]) for lines in (sources, targets)]
    source, target = ListDataset(sources, sizes[0]), ListDataset(targets, sizes[1])
    return LanguagePairDataset(source, sizes[0], words, target, sizes[1], words)


TOKENS = {"aa-bb": 30, "bb-aa": 31, "aa-cc": 32}


def three(**options):
    parts = {"aa-bb": pairs([3, 1, 2], 10), "bb-aa": pairs([2, 5, 4], 20), "aa-cc": pairs(range(1, 13), 12)}
    return DirectionsDataset({name: prepend(part, TOKENS[name]) for name, part in parts.items()}, **options)


def of(indices):
    return Counter(int(np.searchsorted([3, 6], index, side="right")) for index in indices)


def test_an_epoch_has_every_pair_so_many_times_and_others_in_the_next():
    dataset = three(alpha=0.5, seed=5)  # of sizes 3, 3 and 12: 18 draws in proportion to 1 : 1 : 2
    shares = [18 * Fraction(1, 4), 18 * Fraction(1, 4), 18 * Fraction(1, 2)]
    assert shares == [4.5, 4.5, 9] and dataset.draws == [5, 4, 9]
    epochs = []
    for epoch in (1, 2, 3):
        dataset.set_epoch(epoch)
        indices = dataset.ordered_indices()
        assert of(indices) == {0: 5, 1: 4, 2: 9}
        times = Counter(indices.tolist())
        assert all(times[index] in (1, 2) for index in range(6))  # 5 of 3: once all, and two of them again
        assert all(times[index] in (0, 1) for index in range(6, 18))
        sizes = [(dataset.src_sizes[index], dataset.tgt_sizes[index]) for index in indices]
        assert sizes == sorted(sizes)
        epochs.append(indices.tolist())
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 3
    again = three(alpha=0.5, seed=5)
    again.set_epoch(2)
    np.random.seed(9)  # whatever else was drawn before
    assert again.ordered_indices().tolist() == epochs[1]
    fresh = three(alpha=0.5, seed=5)  # an epoch that nobody has named is the first
    assert fresh.ordered_indices().tolist() == epochs[0]
    other = three(alpha=0.5, seed=6)
    other.set_epoch(2)
    assert other.ordered_indices().tolist() != epochs[1]
    assert not dataset.can_reuse_epoch_itr_across_epochs


def test_an_epoch_is_sorted_as_fairseqs_pairs_are():
    """By the source's length, and where that is the same by the target's."""
    words = make_dictionary()
    lengths = ((4, 2, 3, 3), (2, 5, 3, 2))
    source, target = (ListDataset([torch.full((n,), 5) for n in side], np.array(side)) for side in lengths)
    part = LanguagePairDataset(source, source.sizes, words, target, target.sizes, words)
    dataset = DirectionsDataset({"aa-bb": part}, alpha=1.0)
    theirs, ours = ([(of.src_sizes[i], of.tgt_sizes[i]) for i in of.ordered_indices()] for of in (part, dataset))
    assert ours == theirs == [(2, 5), (3, 2), (3, 3), (4, 2)]


def test_with_exponent_one_an_epoch_has_every_pair_once():
    dataset = three(alpha=1.0)
    assert sorted(dataset.ordered_indices()) == list(range(18)) and dataset.draws == [3, 3, 12]
    orders = set()
    for epoch in range(1, 6):  # pairs of the same lengths come in another order
        dataset.set_epoch(epoch)
        orders.add(tuple(dataset.ordered_indices()))
    assert len(orders) > 1


def test_the_directions_are_padded_and_shuffled_as_each_of_them():
    words, source = make_dictionary(), ListDataset([torch.tensor([9, 2])], np.array([2]))
    options = {"left_pad_source": False, "left_pad_target": True, "shuffle": False, "pad_to_multiple": 8}
    part = LanguagePairDataset(source, source.sizes, words, source, source.sizes, make_dictionary(), **options)
    dataset = DirectionsDataset({"aa-bb": part})
    assert {name: getattr(dataset, name) for name in options} == options
    assert (dataset.src_dict, dataset.tgt_dict) == (part.src_dict, part.tgt_dict)
    batch = dataset.collater([dataset[0]], pad_to_length={"source": 12, "target": 20})
    assert batch["net_input"]["src_tokens"].tolist() == [[9, 2, *[1] * 14]]  # the next multiple of 8
    assert batch["target"].tolist() == [[*[1] * 22, 9, 2]]


def test_sources_alone_have_the_token_too():
    source = ListDataset([torch.tensor([9, 2])], np.array([2]))
    dataset = prepend(LanguagePairDataset(source, source.sizes, make_dictionary()), 30)
    assert dataset[0]["source"].tolist() == [30, 9, 2] and dataset.sizes.tolist() == dataset.src_sizes.tolist() == [3]


def test_sources_begin_with_the_token_and_targets_stay():
    dataset = three(alpha=1.0)
    assert dataset[1]["source"].tolist() == [30, 10, 2] and dataset[1]["target"].tolist() == [11, 11, 11, 2]
    assert dataset[3]["source"].tolist() == [31, 20, 20, 2] and dataset[17]["source"].tolist() == [32, *[12] * 12, 2]
    assert dataset.src_sizes.tolist() == [5, 3, 4, 4, 7, 6, *range(3, 15)]
    assert dataset.sizes[:2].tolist() == [[5, 6], [3, 4]] and dataset.num_tokens(4) == 8  # the target's 7 and </s>
    batch = dataset.collater([dataset[1], dataset[3]])
    assert batch["net_input"]["src_tokens"].tolist() == [[31, 20, 20, 2], [1, 30, 10, 2]]  # padded on the left
    assert batch["net_input"]["prev_output_tokens"].tolist() == [[2, 21, 21, 21, 21], [2, 11, 11, 11, 1]]
    assert "direction" not in batch


def test_a_batch_of_validation_has_one_direction_and_tells_it():
    dataset = three()
    assert dataset.can_reuse_epoch_itr_across_epochs
    indices = dataset.ordered_indices()
    batches = dataset.batch_by_size(indices, max_sentences=4)
    assert sorted(index for batch in batches for index in batch) == list(range(18))
    assert [len(of(batch)) for batch in batches] == [1] * 5  # 3, 3, and 12 in fours
    names = [dataset.collater([dataset[index] for index in batch])["direction"] for batch in batches]
    assert names == ["aa-bb", "bb-aa", "aa-cc", "aa-cc", "aa-cc"] and dataset.collater([]) == {}
    mixed = three(alpha=1.0)
    assert any(len(of(batch)) > 1 for batch in mixed.batch_by_size(mixed.ordered_indices(), max_sentences=4))


def test_directions_of_an_option_and_of_a_folder(tmp_path):
    assert parse_directions("--lang-pairs", "de-en, en-zh_CN") == ["de-en", "en-zh_CN"]
    assert parse_directions("--lang-pairs", "pt-BR-en,en-pt-BR,zh-Hans-pt-BR") == ["pt-BR-en", "en-pt-BR", "zh-Hans-pt-BR"]
    for text, message in (("de", "'de' is no direction"), ("de-de", "'de-de' is no direction"), ("de-en,", "'' is no direction"),
                          ("a-b-c", "'a-b-c' is no direction"), ("en-zh-cn", "is no direction: give .* en-pt-BR"),
                          ("zh-cn-en", "is no direction"), ("de--en", "is no direction"),
                          ("de-en,de-en", "de-en is there twice")):  # fmt: skip
        with pytest.raises(UserError, match=f"--lang-pairs {text}: .*{message}"):
            parse_directions("--lang-pairs", text)
    for name in ("train.de-en.de.idx", "train.de-en.en.idx", "train.cs-en.cs.idx", "train1.de-fr.de.idx", "valid.de-cs.cs.idx",
                 "train.align.de-en.idx", "train.de-en.de.bin", "train.en-de.de.idx"):  # fmt: skip
        (tmp_path / name).touch()
    assert find_directions(tmp_path, "train") == ["cs-en", "en-cs", "de-en", "en-de"]
    assert find_directions(tmp_path, "test") == []
    for lang in ("pt-BR", "en", "zh-CN"):
        (tmp_path / f"test.en-pt-BR.{lang}.idx").touch()
    (tmp_path / "test.zh-CN-pt-BR.zh-CN.idx").touch()
    assert find_directions(tmp_path, "test") == ["en-pt-BR", "pt-BR-en", "zh-CN-pt-BR", "pt-BR-zh-CN"]
    for other in ("zh_Hans", "es_419"):  # a script, and a region that is a number
        (tmp_path / f"{other}.pt-BR-{other}.pt-BR.idx").touch()
        assert [*map(sides_of, find_directions(tmp_path, other))] == [["pt-BR", other], [other, "pt-BR"]]


@pytest.mark.parametrize("names, given, found", [
    ("train.de-en.de.idx valid.de-en.de.idx", (None, None), ("de", "en")),
    ("train.de-en.de.idx", ("en", None), ("en", "de")),  # fairseq took de to en, whatever was given
    ("train.de-en.de.idx", (None, "de"), ("en", "de")),
    ("train.de-en.de.idx", ("de", None), ("de", "en")),
    ("train.de-en.de.idx train.en-pt-BR.en.idx", ("pt-BR", None), ("pt-BR", "en")),
    ("train.de-en.de.idx log.2026-12.txt average.de-fr.pt", (None, None), ("de", "en")),  # no dictionary of these
    ("train.align.de-en.idx", (None, None), None),
])  # fmt: skip
def test_the_only_direction_of_a_folder(tmp_path, names, given, found):
    for name in (*names.split(), "dict.de.txt", "dict.en.txt", "dict.pt-BR.txt"):
        (tmp_path / name).touch()
    assert the_direction(tmp_path, *given) == found


@pytest.mark.parametrize("given, told", [
    ((None, None), "{}: has data of de-en, en-de, fr-en: choose one with -s and -t"),
    (("en", None), "{}: has data of en-de, en-fr: choose one with -s and -t"),
    ((None, "en"), "{}: has data of de-en, fr-en: choose one with -s and -t"),
    (("cs", None), "-s cs: {} has no data of this language: check the folder, or give -s and -t"),
    ((None, "cs"), "-t cs: {} has no data of this language: check the folder, or give -s and -t"),
])  # fmt: skip
def test_a_folder_without_one_direction(tmp_path, given, told):
    for name in (
        "test.fr-en.fr.idx",
        "train.de-en.de.idx",
        "train.en-de.en.idx",
        *map("dict.{}.txt".format, ("cs", "de", "en", "fr")),
    ):
        (tmp_path / name).touch()
    with pytest.raises(UserError) as error:
        the_direction(tmp_path, *given)
    assert str(error.value) == told.format(tmp_path)
