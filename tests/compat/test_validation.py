# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What a training may validate on, and the line that tells how much of its time that takes."""

import logging
import shutil
import time
from contextlib import nullcontext
from types import SimpleNamespace

import fairseq_cli.train
import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import data_utils
from fairseq.data.iterators import EpochBatchIterator

from veco_fairseq.compat import PATCHES
from veco_fairseq.compat.validation import judged, of_the_metric, saving, spread, timed
from veco_fairseq.data.batches import PlannedBatchIterator
from veco_fairseq.errors import UserError


@pytest.fixture
def told(monkeypatch, caplog):
    """What a training logs whose validations, after that long, take so many seconds each."""

    def run(*steps):
        clock = [1000.0]
        monkeypatch.setattr(time, "time", lambda: clock[0])
        trainer = SimpleNamespace(_start_time=1000.0)

        def validate(cfg, trainer, seconds):
            clock[0] += seconds
            return [seconds / 2]

        caplog.set_level(logging.INFO, "veco_fairseq.compat.validation")
        for training, seconds in steps:
            clock[0] += training
            assert timed(validate)(None, trainer, seconds) == [seconds / 2]
        return [record.getMessage() for record in caplog.records]

    return run


def test_all_validations_count(told):
    first, second = told((90, 10), (60, 40))
    assert first == "validation took 10.0 s; so far it has taken 10% of the time"
    assert second == "validation took 40.0 s; so far it has taken 25% of the time"


def test_advice_comes_where_it_takes_too_long(told):
    *short, long = told((9, 31), (2, 28), (1, 2))
    assert not any("--validate-interval" in line for line in short), "less than a minute in all"
    assert "84% of the time: to validate less often" in long and "--validate-interval-updates" in long
    assert "less often" not in told((990, 110), (900, 20))[-1]


@pytest.mark.parametrize("steps", [(990, 110), (40, 60)], ids=["a tenth of the time", "a minute"])
def test_what_is_just_enough_needs_no_advice(told, steps):
    assert "less often" not in told(steps)[0]


def test_a_training_tells_it():
    assert fairseq_cli.train.validate.__wrapped__.__wrapped__.__module__ == "fairseq_cli.train"


def a_trainer(most, **task):
    """A trainer with --max-valid-steps."""
    dataset = SimpleNamespace(max_valid_steps=most)
    return SimpleNamespace(cfg=SimpleNamespace(dataset=dataset), task=SimpleNamespace(**task))


@pytest.mark.parametrize("most, workers, taken", [
    (None, 1, [0, 1, 2, 3, 4, 5, 6]), (3, 1, [0, 2, 4]), (1, 2, [0, 3]), (3, 2, [0, 1, 2, 3, 4, 5]), (7, 1, [0, 1, 2, 3, 4, 5, 6]),
    (8, 2, [0, 1, 2, 3, 4, 5, 6]),
])  # fmt: skip
def test_a_part_of_the_set_is_like_the_whole(most, workers, taken):
    """... of seven batches, in every validation; fairseq takes the first ones, and one too many."""
    data = torch.utils.data.TensorDataset(torch.arange(7))
    found = []
    for worker in range(workers):
        epochs = EpochBatchIterator(
            data, lambda items: items, [[number] for number in range(7)], num_shards=workers, shard_id=worker
        )
        trainer = a_trainer(most)
        get = spread(lambda trainer, subset, epochs=epochs: epochs)
        seen = [[int(items[0][0]) for items in get(trainer, "valid").next_epoch_itr(shuffle=False) if items] for _ in range(2)]
        assert seen[0] == seen[1]
        found += seen[0]
    assert sorted(found) == taken


def test_pretraining_has_its_first_batches():
    """... which are of all languages in turn."""
    data = torch.utils.data.TensorDataset(torch.arange(7))
    data.collater = lambda items: int(items[0][0])
    planned = PlannedBatchIterator(data, lambda **worker: [[4], [5], [6]], dict)
    part = spread(lambda trainer, subset: planned)(a_trainer(2), "valid")
    assert list(part.next_epoch_itr(shuffle=False, set_dataset_epoch=False)) == [4, 5]


@pytest.mark.parametrize("most, workers, least", [(2, 1, 5), (2, 2, 3), (5, 1, None), (3, 2, None), (None, 1, None)])
def test_languages_without_a_figure_are_told(caplog, most, workers, least):
    data = torch.utils.data.TensorDataset(torch.arange(7))
    data.collater = lambda items: int(items[0][0])
    planned = PlannedBatchIterator(data, lambda **worker: [[4], [5], [6]], dict, num_shards=workers)
    spread(lambda trainer, subset: planned)(a_trainer(most, validation_names=["en", "de", "cs", "en-de", "en-cs"]), "valid")
    told = f"--max-valid-steps {most}: a batch is of one language or pair, and there are 5, of which {most and most * workers} will have"
    assert [record.getMessage() for record in caplog.records] == ([f"{told} a loss: give at least {least}"] if least else [])


def test_a_figure_that_validation_does_not_have_cannot_be_the_best():
    cfg = SimpleNamespace(checkpoint=SimpleNamespace(best_checkpoint_metric="bleu"))
    get_valid_stats = of_the_metric(lambda cfg, trainer, stats, *more: [stats, *more])
    with pytest.raises(UserError, match="^--best-checkpoint-metric bleu: validation has loss, ppl$"):
        get_valid_stats(cfg, None, {"loss": 2.5, "ppl": 6})
    assert get_valid_stats(cfg, None, {"bleu": 31.5}, "extra") == [{"bleu": 31.5}, "extra"]


def test_a_mistake_that_validation_finds_loses_nothing(monkeypatch):
    def validate(cfg, trainer, task, epoch, subsets):
        raise UserError("--best-checkpoint-metric blue: validation has loss")

    saved = []
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda *given: saved.append(given))
    checkpoint = SimpleNamespace(no_last_checkpoints=True)
    with pytest.raises(UserError, match="blue"):
        saving(validate)(SimpleNamespace(checkpoint=checkpoint), "trainer", "task", "epoch", ["valid"])
    assert saved == [(checkpoint, "trainer", "epoch", None)] and not checkpoint.no_last_checkpoints
    assert saving(lambda *given: [1.5])(None, "trainer", "task", "epoch", ["valid"]) == [1.5]


@pytest.mark.parametrize("losses, kept, told", [
    ([2.5, 3.0], [2.5, 3.0], False), ([float("nan"), 3.0], [None, 3.0], True), ([2.5, float("nan")], [2.5, None], False),
    ([float("-inf")], [float("-inf")], False), ([None], [None], False), ([], [], False),
])  # fmt: skip
def test_a_figure_that_is_no_number_chooses_nothing(caplog, losses, kept, told):
    """fairseq keeps min(nan, 3.0), which is nan, as the best one, and no figure is below that."""
    cfg = SimpleNamespace(checkpoint=SimpleNamespace(best_checkpoint_metric="bleu"))
    assert judged(lambda cfg, *given: losses)(cfg, "trainer", "task", "epoch", ["valid", "test"]) == kept
    message = ("--best-checkpoint-metric bleu: is no number in this validation, which makes no checkpoint the best one, and does not "
               "count for --patience")  # fmt: skip
    assert caplog.messages == [message] * told
    assert "judged" in [patch.replacement.rpartition(":")[2] for patch in PATCHES if patch.target == "fairseq_cli.train:validate"]


@pytest.mark.parametrize("train, valid, combine, message", [
    ("train", "train", False, "--valid-subset train: is the set to train on: "),
    ("seen", "valid,seen", False, "--valid-subset seen: is the set to train on: "),
    ("train", "test", True, "--combine-valid-subsets: .* and --valid-subset is test: leave out one"),
    ("train", "valid", True, None), ("train", "valid,test", False, None), ("trained", "train", False, None),
])  # fmt: skip
def test_what_a_training_cannot_validate_on(tmp_path, train, valid, combine, message):
    """A set has one iterator: validations would take the batches to train on."""
    dataset = {"train_subset": train, "valid_subset": valid, "combine_valid_subsets": combine, "disable_validation": False}
    dataset = SimpleNamespace(**dataset, ignore_unused_valid_subsets=False)
    cfg = SimpleNamespace(dataset=dataset, task=SimpleNamespace(data=str(tmp_path)))
    with pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)
    for name in ("valid1.de-en.de.bin", "valid1.de-en.en.idx", "valid1-en.tsv"):
        (tmp_path / name).touch()
    if not (message or combine):
        with pytest.raises(ValueError, match="Valid paths .'valid1'. will be ignored"):  # fairseq's own check
            data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)
        dataset.valid_subset = "valid,valid1"
        data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)


@pytest.mark.parametrize("copies, given", [(1, []), (2, ["--upsample-primary", "2"])])
def test_sets_that_are_made_one(translation, tmp_path, copies, given):
    """The set to train on with train1 and so on, and with --combine-valid-subsets that to validate on: the first one once."""
    for source, names in (("one", ("train", "valid")), ("two", ("train1", "valid1"))):
        for name in names:
            for path in (translation / source).glob("train.*"):
                shutil.copyfile(path, tmp_path / path.name.replace("train", name))
    for path in (translation / "one").glob("dict.*"):
        shutil.copyfile(path, tmp_path / path.name)
    words = [str(tmp_path), "--arch", "transformer_tiny", "--max-tokens", "200", *given]
    task = tasks.setup_task(options.parse_args_and_arch(options.get_training_parser(), words))
    for split in ("train", "valid"):
        task.load_dataset(split, combine=True)
        assert len(task.dataset(split)) == 90 * (copies + 1)
        assert torch.equal(task.dataset(split)[90 * copies]["source"], task.dataset(split).src.datasets[1][0])
