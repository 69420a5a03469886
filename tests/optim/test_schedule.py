# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The learning rate that follows the epochs."""

from types import SimpleNamespace

import pytest
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import PolynomialDecayLRSchedule, PolynomialDecayLRScheduleConfig

import veco_fairseq.plugin  # noqa: F401
from veco_fairseq.compat.batches import get_train_iterator
from veco_fairseq.errors import UserError
from veco_fairseq.optim.linear_by_epoch import LinearByEpoch, LinearByEpochConfig


class Optimizer:
    """What a scheduler needs of fairseq's."""

    lr = None

    def set_lr(self, lr):
        self.lr = lr

    def get_lr(self):
        return self.lr


def schedule(monkeypatch, **options):
    monkeypatch.setattr("fairseq.optim.lr_scheduler.fairseq_lr_scheduler.FairseqOptimizer", Optimizer)
    defaults = {"lr": [0.8], "max_epoch": 2, "max_update": 0, "warmup_ratio": 0.2, "update_freq": [1]}
    return LinearByEpoch(LinearByEpochConfig(**{**defaults, "skip_remainder_batch": False, **options}), Optimizer())


def begin(rates, batches, epoch=1, done=0, updates=0):
    """Begin an epoch, or go on in it, as fairseq does; ``batches`` is a number, or a function of an epoch."""
    rates.step_update(updates)
    rates.set_batches(batches if callable(batches) else lambda number: batches, epoch, lambda: done)
    rates.step_begin_epoch(epoch)
    return rates.total


def test_rises_and_falls(monkeypatch):
    """Of 2 epochs of 5 updates the first fifth is warm-up."""
    rates = schedule(monkeypatch)
    assert rates.step_update(0) == 0  # an epoch's length is not known yet
    begin(rates, 5)
    found = [rates.step_update(number) for number in range(12)]
    assert found == pytest.approx([0, 0.4, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0, 0])
    assert rates.step_begin_epoch(2) == rates.optimizer.lr == 0


@pytest.mark.parametrize("most, told", [(0, None), (10, None), (11, None), (9, "12%"), (4, "75%"), (1, "50%")])
def test_an_end_at_a_high_rate_is_told_once(monkeypatch, caplog, most, told):
    """Of 2 epochs of 5 updates, as above."""
    rates = schedule(monkeypatch, max_update=most)
    for epoch in (1, 2):
        begin(rates, 5, epoch, updates=5 * (epoch - 1))
    assert caplog.messages == [
        f"--max-update {most}: the training ends at {told} of --lr, since linear_by_epoch lowers it to 0 at the end of --max-epoch 2, "
        "update 10: give fewer epochs, or --lr-scheduler polynomial_decay"
    ] * bool(told)  # fmt: skip


def test_an_end_just_before_the_last_epochs_end_is_not_told(monkeypatch, caplog):
    """Of 2 epochs of 500 updates, 200 of which are warm-up, after update 991 the rate is 9/800 of --lr, and after 993 7/800."""
    for most in (999, 993, 991):
        assert not caplog.messages
        begin(schedule(monkeypatch, max_update=most), 500)
    assert [message.split(", since")[0] for message in caplog.messages] == ["--max-update 991: the training ends at 1% of --lr"]


@pytest.mark.parametrize("ratio, rates", [(0, [1, 0.5, 0]), (1, [0, 0.5, 0]), (0.3, [0, 1, 0]), (0.2, [1, 0.5, 0])])
def test_without_warmup_or_nothing_else(ratio, rates, monkeypatch):
    """Or with 0.6 and 0.4 updates of it, which are rounded."""
    schedule_of = schedule(monkeypatch, lr=[1.0], max_epoch=1, warmup_ratio=ratio)
    begin(schedule_of, 2)
    assert [schedule_of.step_update(number) for number in range(3)] == rates


@pytest.mark.parametrize(
    "options, message",
    [({"max_epoch": 0}, "give --max-epoch N"), ({"lr": [1.0, 0.5]}, "takes one learning rate"),
     ({"warmup_ratio": 1.5}, "--warmup-ratio 1.5: must be between 0 and 1"),
     ({"warmup_ratio": -0.1}, "--warmup-ratio -0.1: must be between 0 and 1")],
)  # fmt: skip
def test_refuses(options, message, monkeypatch):
    with pytest.raises(UserError, match=message):
        schedule(monkeypatch, **options)


@pytest.mark.parametrize(
    "freq, skip, total", [([2], False, 12), ([2], True, 9), ([8], True, 3), ([1, 2], False, 15), ([1] * 9, False, 21)]
)
def test_counts_the_updates_of_all_epochs(freq, skip, total, monkeypatch):
    """3 epochs of 7 batches, of which --update-freq make an update."""
    rates = schedule(monkeypatch, max_epoch=3, update_freq=freq, skip_remainder_batch=skip)
    assert begin(rates, 7) == total


def test_epochs_of_different_data_folders_have_their_own_lengths(monkeypatch):
    """After 100 updates in the first epoch, 10 in the second do not mean that all was over long ago."""
    rates = schedule(monkeypatch, warmup_ratio=0)
    assert begin(rates, 100) == 200
    assert begin(rates, 10, epoch=2, updates=100) == 110
    assert [rates.step_update(number) for number in (100, 105, 110)] == pytest.approx([0.8 * 10 / 110, 0.8 * 5 / 110, 0])
    for state in (rates.state_dict(), {"best": None, "batches": {1: 100, 2: 10}}):  # the latter of an older version
        resumed = schedule(monkeypatch, warmup_ratio=0)
        resumed.load_state_dict(state)
        assert begin(resumed, 10, epoch=2, done=4, updates=104) == 110


def test_epochs_of_pretraining_differ_by_update_freq(monkeypatch):
    """5 updates an epoch of 1, 2 and then 4 batches: the rate falls evenly, from whatever epoch the training goes on."""
    rates = schedule(monkeypatch, max_epoch=4, update_freq=[1, 2, 4], warmup_ratio=0)
    for epoch in (1, 2, 3, 4):
        assert begin(rates, lambda number: 5 * [1, 2, 4, 4][number - 1], epoch, updates=5 * (epoch - 1)) == 20
        rates.load_state_dict(rates.state_dict())


@pytest.mark.parametrize(
    "skip, freq, total", [(False, 1, 27), (False, 2, 20), (False, 4, 16), (False, 8, 14), (True, 4, 14), (True, 8, 13)]
)
def test_updates_that_are_done_count_as_they_were_done(monkeypatch, skip, freq, total):
    """Of 3 epochs of 9 batches, 11 are done, one an update: of 7 and then 9 batches, so many make the updates that are left."""
    rates = schedule(monkeypatch, max_epoch=3, warmup_ratio=0, update_freq=[1], skip_remainder_batch=skip)
    assert (begin(rates, 9), begin(rates, 9, epoch=2, updates=9)) == (27, 27)
    resumed = schedule(monkeypatch, max_epoch=3, warmup_ratio=0, update_freq=[freq], skip_remainder_batch=skip)
    resumed.load_state_dict(rates.state_dict())
    assert begin(resumed, 9, epoch=2, done=2, updates=11) == total
    assert resumed.step_update(11) == pytest.approx(0.8 * (total - 11) / total)


def test_an_epoch_goes_on_if_its_own_update_freq_is_the_same(monkeypatch):
    """After 11 updates 7 batches of epoch 2 are left, 2 an update, and 9 of epoch 3, 4 an update: 11 + 4 + 3."""
    rates = schedule(monkeypatch, max_epoch=3, update_freq=[1, 1, 4])
    assert (begin(rates, 9), begin(rates, 9, epoch=2, updates=9)) == (21, 21)
    resumed = schedule(monkeypatch, max_epoch=3, update_freq=[1, 2, 4])
    resumed.load_state_dict(rates.state_dict())
    assert begin(resumed, 9, epoch=2, done=2, updates=11) == 18


def test_an_epoch_that_goes_on_has_the_rate_of_an_undisturbed_one(monkeypatch):
    """Two of its batches had overflowing gradients, and were no updates; the next epoch counts what was done."""
    rates = schedule(monkeypatch, warmup_ratio=0)
    assert begin(rates, 10) == 20
    rates.step_update(4)
    state, rates = rates.state_dict(), schedule(monkeypatch, warmup_ratio=0)
    rates.load_state_dict(state)
    assert begin(rates, 10, done=6, updates=4) == 20
    assert begin(rates, 10, epoch=2, updates=8) == 18
    rates.load_state_dict(state)
    assert begin(rates, 10, done=0, updates=4) == 24  # --reset-dataloader begins the epoch again
    rates.load_state_dict({"best": None})  # --reset-lr-scheduler
    assert begin(rates, 10, done=6, updates=4) == 18


def test_roots_of_unlike_sizes_are_told_of(monkeypatch, caplog):
    """Those of later epochs are not known: each is taken to be as long as the last one that is."""
    rates = schedule(monkeypatch, max_epoch=4, update_freq=[1, 1])
    assert begin(rates, lambda number: 100 * number) == 100 + 3 * 200
    assert begin(rates, 200, epoch=2, updates=100) == 700 and not caplog.text  # as expected of it
    assert begin(rates, 300, epoch=3, updates=300) == 900
    assert "epoch 3 has 300 batches, and not 200 as expected from the one before: the learning rate jumps; for" in caplog.text


@pytest.mark.parametrize("counts", [True, False])
def test_is_told_the_batches_of_epochs(monkeypatch, counts):
    told = []

    class Batches:
        iterations_in_epoch = 2

        def __len__(self):
            return 7

    if counts:
        Batches.batches_in = lambda self, epoch: 7 * epoch
    trainer = SimpleNamespace(lr_scheduler=SimpleNamespace(set_batches=lambda *numbers: told.append(numbers)))
    monkeypatch.setattr("veco_fairseq.compat.batches._of_whole_run", lambda *args: Batches())
    assert len(get_train_iterator(trainer, 3)) == 7
    ((batches_in, epoch, done),) = told
    assert [batches_in(3), batches_in(4), epoch, done()] == ([21, 28, 3, 2] if counts else [7, 7, 3, 2])
    Batches.iterations_in_epoch = 5  # of a checkpoint, which fairseq reads later
    assert done() == 5


def test_each_epoch_decays_from_its_own_rate(monkeypatch):
    """Of ``--lr-scheduler polynomial_decay``, which takes several; the last one holds from then on."""
    monkeypatch.setattr("fairseq.optim.lr_scheduler.fairseq_lr_scheduler.FairseqOptimizer", Optimizer)
    cfg = PolynomialDecayLRScheduleConfig(lr=[0.8, 0.4, 0.2], total_num_update=8)
    rates, found = PolynomialDecayLRSchedule(cfg, Optimizer()), []
    for epoch in (1, 2, 3, 4):
        rates.step_begin_epoch(epoch)
        found.append(rates.step_update(2 * epoch - 2))
    assert found == pytest.approx([0.8, 0.4 * 6 / 8, 0.2 * 4 / 8, 0.2 * 2 / 8])
