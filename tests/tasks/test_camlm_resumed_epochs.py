# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Epochs of pre-training that are gone on with: which pairs come next, and what may have changed."""

import shutil

import numpy as np
import pytest
from conftest import random_lines, write_tokens
from support.pretraining import iterator

from veco_fairseq.errors import UserError


def test_every_epoch_has_the_updates_asked_for_and_is_resumed_with_its_own_update_freq(make_task):
    """The iterator of the first epoch is kept for the later ones, and a resumed training makes it of the first epoch, too."""

    def epochs(*update_freq):
        return iterator(make_task(bitext_batch_size=5, update_freq=list(update_freq), updates_per_epoch=4))

    whole = epochs(1, 2, 3)
    assert [whole.batches_in(epoch) for epoch in (1, 2, 3, 4)] == [4 * 1, 4 * 2, 4 * 3, 4 * 3]
    assert [len(list(whole.next_epoch_itr())) for _ in range(4)] == [4 * 1, 4 * 2, 4 * 3, 4 * 3]
    begun = epochs(1, 2, 3)
    list(begun.next_epoch_itr())
    next(begun.next_epoch_itr())
    epochs(1, 2).load_state_dict(begun.state_dict())  # only a later epoch is another one
    with pytest.raises(UserError, match="in the middle of epoch 2, .*--update-freq was 2 and is 3"):
        epochs(1, 3).load_state_dict(begun.state_dict())


@pytest.mark.parametrize(
    "later", [{"updates_per_epoch": 2, "bitext_batch_size": 5}, {"updates_per_epoch": 1, "bitext_batch_size": 10}]
)
def test_other_workers_and_batches_go_on_between_epochs_with_the_pairs_that_are_due(make_task, make_root, later):
    """Two epochs of two workers have 20 of the 60 pairs each, the next two of one worker 10 each."""
    root, taken = make_root(), []

    def train(batches, epochs):
        for _ in range(epochs):
            assert list(batches.next_epoch_itr())
            for (sample,) in batches.ordered_batches(batches.epoch, False, False):
                taken.extend(sample.bitext["index"].tolist())
        return batches.state_dict()

    begin = {"updates_per_epoch": 2, "bitext_batch_size": 5}
    workers = [iterator(make_task(root, **begin), max_tokens=1000, num_shards=2, shard_id=worker) for worker in (0, 1)]
    state, _ = (train(worker, 2) for worker in workers)
    for epoch in (3, 4):
        batches = iterator(make_task(root, **later), max_tokens=1000)
        batches.load_state_dict(state)
        assert batches.epoch == epoch
        state = train(batches, 1)
    assert sorted(taken) == list(range(60))


def test_an_epoch_of_changed_texts_is_not_gone_on_with(make_task, make_root):
    """Also where they have as many pairs, which are put into batches by their lengths."""
    root = make_root()
    begun = iterator(make_task(root))
    next(begun.next_epoch_itr())
    iterator(make_task(root)).load_state_dict(begun.state_dict())
    write_tokens(root / "bitext/aa-bb/train.aa-bb.bb", random_lines(np.random.default_rng(1), 60))
    with pytest.raises(UserError, match=r"the same any more: checksum of the lengths of bitext was \w{8} and is \w{8}: change"):
        iterator(make_task(root)).load_state_dict(begun.state_dict())
    iterator(make_task(root)).load_state_dict({**begun.state_dict(), "iterations_in_epoch": 0})


@pytest.mark.parametrize("kind, pairs", [("mono", "aa 13, bb 13"), ("bitext", "aa-bb 60")])
def test_an_epoch_is_not_gone_on_with_where_a_kind_of_text_has_come_or_gone(make_task, make_root, kind, pairs):
    """Its batches are others, and may be fewer than the checkpoint has behind it."""
    root = make_root()
    with_all = iterator(make_task(root))
    shutil.move(root / kind, root / "hidden")
    without = iterator(make_task(root))
    for begun, later, told in ((with_all, without, f"{pairs} and is none"), (without, with_all, f"none and is {pairs}")):
        next(begun.next_epoch_itr())
        state = begun.state_dict()
        with pytest.raises(UserError, match=f"in the middle of epoch 1, .*: pairs of {kind} was {told}"):
            later.load_state_dict(state)
        later.load_state_dict({**state, "iterations_in_epoch": 0})


@pytest.mark.parametrize("then, now, told", [
    ("a:b", "a:b:c", "the epochs before had the roots a:b in turn, and those from now on have a:b:c: "), ("a:b", "b:a", "a:b in turn"),
    ("a", "a:b", "a in turn, and those from now on have a:b: "), ("a:b", "a:b", ""), ("a", "b", ""),
])  # fmt: skip
def test_another_list_of_roots_is_told_of(make_task, make_root, tmp_path, caplog, then, now, told):
    """By their names, since a folder may have been moved; a single root may be another one between epochs."""
    root = make_root()
    for folder in ("before", "moved"):
        (tmp_path / folder).mkdir()
        for name in "abc":
            (tmp_path / folder / name).symlink_to(root)
    begun, later = (
        iterator(make_task(":".join(str(tmp_path / folder / name) for name in roots.split(":"))))
        for folder, roots in (("before", then), ("moved", now))
    )
    list(begun.next_epoch_itr())
    later.load_state_dict(begun.state_dict())
    assert told in caplog.text and bool(told) == ("in turn" in caplog.text)
