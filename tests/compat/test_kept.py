# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What a resumed training takes from its checkpoint is told where its options say something else."""

from types import SimpleNamespace

import pytest
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from veco_fairseq.compat.kept import beginnings_of, tell_of_another_beginning, tell_what_is_kept


@pytest.mark.parametrize("asked, overrides, updates, told", [
    ({"weight_decay": 0.01, "betas": [0.9, 0.98], "lr": 5.0}, "{}", 7, []),
    ({"weight_decay": 0.5, "betas": (0.9, 0.98)}, "{}", 7,
     ["a.pt: goes on with weight_decay 0.01, not with 0.5 of the options: to change it, give --optimizer-overrides "
      "\"{'weight_decay': 0.5}\""]),
    ({"betas": (0.5, 0.98)}, "{}", 7,
     ["a.pt: goes on with betas [0.9, 0.98], not with [0.5, 0.98] of the options: to change it, give --optimizer-overrides "
      "\"{'betas': [0.5, 0.98]}\""]),
    ({"weight_decay": 0.5, "momentum": 0.9}, "{'weight_decay': 0.01}", 7, []),
    ({"weight_decay": 0.5}, "{}", 0,
     ["a.pt: has no state of the optimizer (--no-save-optimizer-state): Adam's means, the learning rate and --max-update begin "
      "again, after 7 updates"]),
])  # fmt: skip
def test_options_that_a_checkpoint_changes_back_are_told(caplog, asked, overrides, updates, told):
    trainer = SimpleNamespace(
        _optim_history=[{"num_updates": 7}], get_num_updates=lambda: updates,
        cfg=SimpleNamespace(checkpoint=SimpleNamespace(optimizer_overrides=overrides)),
        optimizer=SimpleNamespace(optimizer_config=asked,
                                  param_groups=[{"weight_decay": 0.01, "betas": (0.9, 0.98), "lr": 1.0}]),
        lr_scheduler=None,
    )  # fmt: skip
    tell_what_is_kept(trainer, "a.pt")
    assert [record.getMessage() for record in caplog.records] == told


@pytest.mark.parametrize("rate, asked, shrink, overrides, warmed_up, told", [
    (0.002, 0.002, 0.5, "{}", True, False), (0.0005, 0.002, 0.5, "{}", True, False), (0.00018, 0.002, 0.3, "{}", True, False),
    (0.002, 0.001, 0.5, "{}", True, True), (0.0005, 0.003, 0.5, "{}", True, True), (0.0, 0.002, 0.5, "{}", True, True),
    (0.0005, 0.003, 0.5, "{'lr': 0.003}", True, False), (0.0005, 0.003, 0.5, "{}", False, False),
    (0.0005, 0.003, 1.0, "{}", True, True),
])  # fmt: skip
def test_a_rate_that_a_plateau_goes_on_with_is_told(caplog, rate, asked, shrink, overrides, warmed_up, told):
    scheduler = object.__new__(ReduceLROnPlateauLRSchedule)
    scheduler.cfg, scheduler.warmup_end = SimpleNamespace(lr=[asked], lr_shrink=shrink), warmed_up
    trainer = SimpleNamespace(
        _optim_history=[], get_num_updates=lambda: 7, lr_scheduler=scheduler,
        cfg=SimpleNamespace(checkpoint=SimpleNamespace(optimizer_overrides=overrides)),
        optimizer=SimpleNamespace(optimizer_config={"lr": asked}, param_groups=[{"lr": rate}]),
    )  # fmt: skip
    tell_what_is_kept(trainer, "a.pt")
    line = (
        f"a.pt: goes on with a learning rate of {rate:g}, which --lr-scheduler reduce_lr_on_plateau does not make of --lr {asked:g}: "
        f"to change it, give --optimizer-overrides \"{{'lr': {asked:g}}}\""
    )
    assert caplog.messages == [line] * told


def test_a_training_whose_optimizer_begins_again_says_so(make_root, train):
    root, options = make_root(), ("--updates-per-epoch", "2", "--disable-validation", "--no-save-optimizer-state")
    assert train(root, *options, "--max-epoch", "1").returncode == 0
    again = train(root, *options, "--max-epoch", "2")
    assert again.returncode == 0
    assert "begin again, after 2 updates" in again.stdout
    reset = train(root, *options, "--max-epoch", "3", "--reset-optimizer", "--weight-decay", "0.3")
    assert reset.returncode == 0 and "begin again" not in reset.stdout and "goes on with" not in reset.stdout


def test_a_model_to_begin_with_is_told_of_if_another_one_was_given_before(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.pt").symlink_to("a.pt")
    same = ("a.pt", str(tmp_path / "a.pt"), "link.pt")
    for before, start in ((None, None), ("a.pt", None), *(("a.pt", path) for path in same)):
        tell_of_another_beginning("run", {"init_from": before}, {"init_from": start})
    assert not caplog.messages
    tell_of_another_beginning(
        "run", {"init_from": "a.pt", "finetune_from_model": None}, {"finetune_from_model": "c.pt", "init_from": "b.pt"}
    )
    goes_on = "is not read, since the training goes on from the last checkpoint in run, which was saved"
    advice = "to begin with it, give another --save-dir"
    assert caplog.messages == [
        f"--finetune-from-model c.pt: {goes_on} without this option: {advice}",
        f"--init-from b.pt: {goes_on} with --init-from a.pt: {advice}",
    ]


def test_a_model_to_begin_with_that_comes_too_late_is_told_of(make_root, train, tmp_path):
    """... and the same command again is not."""
    root, other = make_root(), tmp_path / "other/checkpoint_last.pt"
    assert train(root, "--disable-validation", "--max-update", "1", save_dir="other").returncode == 0
    told = []
    for updates, words in enumerate(
        ((), ("--init-from", other), ("--finetune-from-model", other), ("--finetune-from-model", other))
    ):
        result = train(root, "--disable-validation", "--max-update", updates + 1, *words)
        assert result.returncode == 0, result.stderr
        told.append(f"{' '.join(map(str, words))}: is not read, since the training goes on" in result.stdout)
    assert told == [False, True, True, False]
    restored = ("--restore-file", other, "--reset-dataloader", "--max-update", "5")
    assert "goes on from the last" not in train(root, "--disable-validation", *restored, "--init-from", other).stdout
    assert beginnings_of(None) == {"finetune_from_model": None, "continue_once": None, "init_from": None}


def test_a_checkpoint_to_continue_once_is_told_of_where_the_training_has_begun(make_root, train, tmp_path):
    """... without it: a training that has begun with it gets the same command again."""
    root, other = make_root(), tmp_path / "other/checkpoint_last.pt"
    assert train(root, "--disable-validation", "--max-update", "1", save_dir="other").returncode == 0
    told = []
    for updates, folder, words in (2, "own", ["--continue-once", other]), (3, "own", ["--continue-once", other]), (
        2, "other", ["--continue-once", tmp_path / "own/checkpoint_last.pt"]
    ):  # fmt: skip
        result = train(root, "--disable-validation", "--max-update", updates, *words, save_dir=folder)
        assert result.returncode == 0, result.stderr
        told.append(f"{words[0]} {words[1]}: is not read, since the training goes on from the last checkpoint" in result.stdout)
    assert told == [False, False, True]
