# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""When a training is finished already, and which counts of a checkpoint it goes on with."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from veco_fairseq.compat import stopping


def trainer_of(updates, seconds=0.0, **limits):
    limits = SimpleNamespace(**{"max_update": 0, "max_epoch": 0, "stop_time_hours": 0, **limits})
    return SimpleNamespace(
        cfg=SimpleNamespace(
            optimization=limits, checkpoint=SimpleNamespace(patience=-1), distributed_training=SimpleNamespace(distributed_rank=0)
        ),
        get_num_updates=lambda: updates,
        cumulative_training_time=lambda: seconds,
        data_parallel_world_size=1,
    )


@pytest.mark.parametrize("updates, seconds, limits, reason", [
    (7, 0, {"max_update": 8}, None), (8, 0, {"max_update": 8}, "--max-update 8"), (9, 0, {"max_update": 8}, "--max-update 8"),
    (7, 0, {"max_epoch": 3}, "--max-epoch 3"), (7, 0, {"max_epoch": 4}, None), (7, 0, {"max_epoch": 0}, None),
    (7, 7200, {"stop_time_hours": 2}, None), (7, 7201, {"stop_time_hours": 2}, "--stop-time-hours 2"),
    (7, 9999, {"stop_time_hours": 0}, None), (7, 0, {"max_update": 1, "max_epoch": 1}, "--max-update 1"),
    (0, 9999, {"max_epoch": 1, "stop_time_hours": 1}, None),  # another model's checkpoint to start from
])  # fmt: skip
def test_a_limit_that_has_been_reached(monkeypatch, updates, seconds, limits, reason):
    """The next epoch is the fourth."""
    monkeypatch.setattr(stopping, "early_stopping", SimpleNamespace)
    assert stopping.finished(trainer_of(updates, seconds, **limits), 4) == reason


RESETS = ("reset_optimizer", "reset_meters", "reset_lr_scheduler", "reset_dataloader")


@pytest.mark.parametrize("reset, patience, plateau", [
    (None, True, True), ("reset_optimizer", False, False), ("reset_meters", False, False), ("reset_lr_scheduler", True, False),
    ("reset_dataloader", True, False),
])  # fmt: skip
@pytest.mark.parametrize("updates", [7, 0])
def test_what_is_reset_is_not_counted_on(monkeypatch, reset, patience, plateau, updates):
    told, count = [], SimpleNamespace(num_runs=0)
    state = {"early_stopping": {"num_runs": 3, "best": 1.5}}
    monkeypatch.setattr(stopping, "lock_folder", lambda folder: told.append(folder))
    monkeypatch.setattr(stopping, "note_signals", lambda: None)
    monkeypatch.setattr(stopping, "early_stopping", lambda: count)
    monkeypatch.setattr(stopping.plateau, "end_epoch_of", lambda state, trainer: told.append("plateau"))
    iterator = SimpleNamespace(next_epoch_idx=4, iterations_in_epoch=0)
    monkeypatch.setattr(stopping, "_fairseq_load_checkpoint", lambda cfg, trainer, **options: (state, iterator))
    cfg = SimpleNamespace(no_save=False, save_dir="save", finetune_from_model=None, **{name: name == reset for name in RESETS})
    assert stopping.load_checkpoint(cfg, trainer_of(updates)) == (state, iterator)
    assert vars(count) == (state["early_stopping"] if patience else {"num_runs": 0})
    assert told == ["save", *["plateau"] * (plateau and updates > 0)]


@pytest.mark.parametrize("resumed", [False, True])
def test_fine_tuning_does_not_count_the_patience_of_pretraining(monkeypatch, tmp_path, resumed):
    """... whose loss is of another task; when it is resumed, it goes on with its own count."""
    count, state = SimpleNamespace(), {"early_stopping": {"num_runs": 3, "best": 1.5}}
    for name, value in (
        ("lock_folder", None),
        ("note_signals", None),
        ("_fairseq_load_checkpoint", (state, SimpleNamespace(next_epoch_idx=1, iterations_in_epoch=0))),
    ):
        monkeypatch.setattr(stopping, name, lambda *given, value=value, **more: value)
    monkeypatch.setattr(stopping, "early_stopping", lambda: count)
    if resumed:
        (tmp_path / "checkpoint_last.pt").touch()
    cfg = SimpleNamespace(
        no_save=False,
        save_dir=str(tmp_path),
        finetune_from_model="pretrained.pt",
        restore_file=stopping.LAST,
        **dict.fromkeys(RESETS, False),
    )
    trainer = trainer_of(0)
    trainer.checkpoint_suffix = ""
    stopping.load_checkpoint(cfg, trainer)
    assert vars(count) == (state["early_stopping"] if resumed else {})


@pytest.mark.parametrize("then, told", [
    (None, None), (("bleu", "valid"), None), (("loss", "valid"), "--best-checkpoint-metric was loss and is bleu"),
    (("bleu", "dev"), "--valid-subset was dev and is valid"),
    (("bleu", "valid (--combine-valid-subsets)"), "--valid-subset was valid (--combine-valid-subsets) and is valid"),
])  # fmt: skip
def test_validations_that_cannot_be_compared_are_not(monkeypatch, caplog, then, told):
    """A loss of 2 after a BLEU of 30, or of another set, would be the best for good, and --patience would end the training."""
    count, save = SimpleNamespace(num_runs=0), SimpleNamespace(best=30.0)
    state = {"early_stopping": {"num_runs": 3}}
    if then is not None:
        state["judge"] = dict(zip(("--best-checkpoint-metric", "--valid-subset"), then))
    monkeypatch.setattr(stopping, "note_signals", lambda: None)
    monkeypatch.setattr(stopping, "early_stopping", lambda: count)
    begun_anew = []
    monkeypatch.setattr(stopping.plateau, "end_epoch_of", lambda state, trainer: None)
    monkeypatch.setattr(stopping.plateau, "begin_anew", begun_anew.append)
    monkeypatch.setattr(stopping.checkpoint_utils, "save_checkpoint", save)
    monkeypatch.setattr(
        stopping, "_fairseq_load_checkpoint", lambda *given: (state, SimpleNamespace(next_epoch_idx=2, iterations_in_epoch=0))
    )
    trainer = trainer_of(7)
    trainer.cfg.checkpoint.best_checkpoint_metric, trainer.cfg.dataset = "bleu", SimpleNamespace(valid_subset="valid,test")
    trainer.task = SimpleNamespace(datasets={})
    stopping.load_checkpoint(SimpleNamespace(no_save=True, finetune_from_model=None, **dict.fromkeys(RESETS, False)), trainer)
    lines = [f"{told}: the best validation, and what counts those without progress, begin anew"] if told else []
    assert [record.getMessage() for record in caplog.records] == lines
    assert begun_anew == ([trainer] if told else [])
    assert (vars(save), count.num_runs) == (({}, 0) if told else ({"best": 30.0}, 3))


@pytest.mark.parametrize("begun, restored", [(False, stopping.LAST), (True, stopping.LAST), (True, "b.pt")])
def test_a_fine_tuning_that_goes_on_may_be_reset(monkeypatch, tmp_path, begun, restored):
    """... by the command that began it; fairseq refuses --reset-dataloader beside --finetune-from-model."""
    given = []

    def load(cfg, trainer):
        given.append(cfg.finetune_from_model)
        return None, SimpleNamespace(iterations_in_epoch=0)

    monkeypatch.setattr(stopping, "lock_folder", lambda folder: None)
    monkeypatch.setattr(stopping, "note_signals", lambda: None)
    monkeypatch.setattr(stopping, "_fairseq_load_checkpoint", load)
    if begun:
        (tmp_path / "checkpoint_last.pt").touch()
    cfg = SimpleNamespace(no_save=False, save_dir=str(tmp_path), finetune_from_model="a.pt", restore_file=restored,
                          **dict.fromkeys(RESETS, True))  # fmt: skip
    trainer = trainer_of(0)
    trainer.checkpoint_suffix = ""
    stopping.load_checkpoint(cfg, trainer)
    assert given == [None if begun and restored == stopping.LAST else "a.pt"] and cfg.finetune_from_model == "a.pt"


@pytest.mark.parametrize("next_epoch, told", [(4, True), (3, False)])
def test_a_finished_training_is_told_and_not_trained(monkeypatch, caplog, next_epoch, told):
    trainer = trainer_of(1234, max_epoch=3)
    monkeypatch.setattr(stopping, "note_signals", lambda: None)
    monkeypatch.setattr(stopping, "early_stopping", SimpleNamespace)
    monkeypatch.setattr(stopping.plateau, "end_epoch_of", lambda state, trainer: None)
    iterator = SimpleNamespace(next_epoch_idx=next_epoch, iterations_in_epoch=0)
    for state, is_told in ((None, False), ({}, told)):  # without a checkpoint nothing is finished
        caplog.clear()
        monkeypatch.setattr(stopping, "_fairseq_load_checkpoint", lambda *given, state=state, **more: (state, iterator))
        with caplog.at_level(logging.INFO, stopping.__name__):
            stopping.load_checkpoint(
                SimpleNamespace(no_save=True, finetune_from_model=None, **dict.fromkeys(RESETS, False)), trainer
            )
        message = "finished already, after 1234 updates, by --max-epoch 3: nothing is trained or saved; to go on, raise it"
        assert [record.getMessage() for record in caplog.records] == [message] * is_told
        assert trainer.cfg.optimization.max_epoch == (-1 if is_told else 3)


@pytest.mark.parametrize("most, end, lowest, told", [
    (800, "500", 0.0, "--max-update 800: the learning rate is 0 from update 500 on (--total-num-update), and nothing is learnt there: "
     "give the same number to both"),
    (0, "400", 1e-5, "--warmup-updates 500: the learning rate only rises until the training's end, update 400 (--total-num-update, or else "
     "--max-update), and comes to 80% of --lr: give fewer"),
    (800, "500", 1e-5, None), (500, "500", 0.0, None), (400, 500.0, 0.0, None), (0, "500", 0.0, None), (800, None, None, None),
])  # fmt: skip
def test_updates_beyond_the_end_of_the_learning_rate_are_told(monkeypatch, caplog, most, end, lowest, told):
    """Whoever raises the --max-update of a training that is finished has to raise --total-num-update, too."""
    monkeypatch.setattr(stopping, "note_signals", lambda: None)
    monkeypatch.setattr(stopping, "early_stopping", SimpleNamespace)
    monkeypatch.setattr(stopping.plateau, "end_epoch_of", lambda state, trainer: None)
    iterator = SimpleNamespace(next_epoch_idx=1, iterations_in_epoch=0)
    monkeypatch.setattr(stopping, "_fairseq_load_checkpoint", lambda *given, **more: ({}, iterator))
    trainer = trainer_of(500, max_update=most)
    trainer.cfg.lr_scheduler = SimpleNamespace(total_num_update=end, end_learning_rate=lowest, warmup_updates=500)
    with caplog.at_level(logging.INFO, stopping.__name__):
        stopping.load_checkpoint(SimpleNamespace(no_save=True, finetune_from_model=None, **dict.fromkeys(RESETS, False)), trainer)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [told] * (told is not None)
    finished = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    advice = "to go on, raise it, and --total-num-update, if you give it, too"
    assert [line.rpartition("; ")[2] for line in finished] == [advice] * (most in (400, 500))


@pytest.mark.parametrize("warmup, end, told", [
    (4000, "500", "--warmup-updates 4000: the learning rate only rises until the training's end, update 500 (--total-num-update, or else "
     "--max-update), and comes to 12% of --lr: give fewer"),
    (500, "500", None), (0, "500", None), (4000, None, None),
])  # fmt: skip
def test_a_warm_up_that_the_training_does_not_see_the_end_of_is_told(caplog, warmup, end, told):
    """As where a training was made shorter: no rate of it had come to --lr, without a word."""
    stopping.tell_of_a_warm_up_without_end(
        SimpleNamespace(lr_scheduler=SimpleNamespace(total_num_update=end, warmup_updates=warmup))
    )
    stopping.tell_of_a_warm_up_without_end(SimpleNamespace())
    assert caplog.messages == [told] * (told is not None)


@pytest.mark.parametrize("metric, disabled, told", [("scroe", True, True), ("scroe", False, False), ("loss", True, False)])
def test_a_metric_without_validations_is_told(monkeypatch, caplog, metric, disabled, told):
    """A validation would tell of the typo."""
    monkeypatch.setattr(stopping, "note_signals", lambda: None)
    iterator = SimpleNamespace(next_epoch_idx=1, iterations_in_epoch=0)
    monkeypatch.setattr(stopping, "_fairseq_load_checkpoint", lambda *given, **more: (None, iterator))
    trainer = trainer_of(0)
    trainer.cfg.checkpoint.best_checkpoint_metric, trainer.cfg.dataset = metric, SimpleNamespace(disable_validation=disabled)
    stopping.load_checkpoint(SimpleNamespace(no_save=True, finetune_from_model=None, **dict.fromkeys(RESETS, False)), trainer)
    line = (
        "--best-checkpoint-metric scroe: chooses no checkpoint_best.pt, since --disable-validation leaves out all validations: "
    )
    assert caplog.messages == [f"{line}leave out one of the two"] * told


@pytest.mark.parametrize("max_epoch, epoch, at_its_end, due", [
    (3, 3, True, 1), (3, 4, True, 1), (3, 2, True, 5), (3, 3, False, 5), (0, 3, True, 5),
])  # fmt: skip
def test_the_last_epoch_is_validated_and_saved(monkeypatch, max_epoch, epoch, at_its_end, due):
    """... whatever the intervals, as the last update is. fairseq lost what was trained since the last interval."""
    cfg = SimpleNamespace(checkpoint=SimpleNamespace(save_interval=5), dataset=SimpleNamespace(validate_interval=5),
                          optimization=SimpleNamespace(max_epoch=max_epoch))  # fmt: skip
    monkeypatch.setattr(stopping, "_told", {"number": 0, "since": 0.0})
    found = []

    def validate_and_save(cfg, *_):
        found.extend((cfg.checkpoint.save_interval, cfg.dataset.validate_interval))
        return [None], False

    monkeypatch.setattr(stopping, "_fairseq_validate_and_save", validate_and_save)
    cfg.checkpoint.save_interval_updates, cfg.checkpoint.maximize_best_checkpoint_metric = 0, False
    trainer = SimpleNamespace(data_parallel_world_size=1)
    assert stopping.validate_and_save(cfg, trainer, None, SimpleNamespace(epoch=epoch), ["valid"], at_its_end) == ([None], False)
    assert found == [due, due]


@pytest.mark.parametrize("updates, validated_after, at_its_end, saved", [
    (6, 10, False, True), (5, 10, False, False), (12, 10, False, False), (6, 10, True, False), (9, 9, False, False), (0, 10, False, False),
])  # fmt: skip
def test_saves_before_the_first_validation(monkeypatch, updates, validated_after, at_its_end, saved):
    """Every third update before --validate-after-updates; at the end of an epoch, and after it, fairseq does."""
    cfg = SimpleNamespace(checkpoint=SimpleNamespace(save_interval_updates=3, maximize_best_checkpoint_metric=False), optimization=SimpleNamespace(max_epoch=0),
                          dataset=SimpleNamespace(validate_after_updates=validated_after))  # fmt: skip
    done = []
    monkeypatch.setattr(stopping, "_told", {"number": 0, "since": 0.0})
    monkeypatch.setattr(stopping, "_fairseq_validate_and_save", lambda *given: done.append("fairseq") or ([None], False))
    monkeypatch.setattr(stopping.checkpoint_utils, "save_checkpoint", lambda cfg, trainer, place, loss: done.append(loss))
    trainer = SimpleNamespace(data_parallel_world_size=1, get_num_updates=lambda: updates)
    stopping.validate_and_save(cfg, trainer, None, SimpleNamespace(epoch=1), ["valid"], at_its_end)
    assert done == [None, "fairseq"][not saved :]


@pytest.mark.parametrize("maximize, best, loss, saved", [
    (False, None, 3.0, True), (False, 4.0, 3.0, True), (False, 3.0, 3.0, False), (False, 2.0, 3.0, False), (False, 2.0, None, False),
    (True, None, 3.0, True), (True, 4.0, 3.0, False), (True, 2.0, 3.0, True),
])  # fmt: skip
def test_the_best_validation_is_saved(monkeypatch, maximize, best, loss, saved):
    """... also between the saves, as with --validate-interval-updates; fairseq has saved 3.0 where that is the best."""
    checkpoint = SimpleNamespace(save_interval_updates=0, maximize_best_checkpoint_metric=maximize)
    cfg = SimpleNamespace(checkpoint=checkpoint, optimization=SimpleNamespace(max_epoch=0))
    done = []

    def save(cfg, trainer, place, loss):
        done.append(loss)

    if best is not None:
        save.best = best
    monkeypatch.setattr(stopping, "_told", {"number": 0, "since": 0.0})
    monkeypatch.setattr(stopping, "_fairseq_validate_and_save", lambda *given: ([loss], True))
    monkeypatch.setattr(stopping.checkpoint_utils, "save_checkpoint", save)
    trainer = SimpleNamespace(data_parallel_world_size=1)
    assert stopping.validate_and_save(cfg, trainer, None, SimpleNamespace(epoch=1), ["valid"], False) == ([loss], True)
    assert done == [loss] * saved


def test_the_count_of_patience_is_saved_as_plain_numbers(monkeypatch):
    """A metric may be numpy's number, which a checkpoint that is read safely could not hold."""
    count = SimpleNamespace(best=np.float64(31.25), num_runs=np.int64(2))
    saved = []
    monkeypatch.setattr(stopping, "early_stopping", lambda: count)
    monkeypatch.setattr(stopping, "_fairseq_trainer_save_checkpoint", lambda trainer, *arguments: saved.append(arguments))
    cfg = SimpleNamespace(
        checkpoint=SimpleNamespace(best_checkpoint_metric="bleu"), dataset=SimpleNamespace(valid_subset="dev,test")
    )
    task = SimpleNamespace(datasets={})
    stopping.trainer_save_checkpoint(SimpleNamespace(cfg=cfg, task=task), "a.pt", {"epoch": 3})
    ((name, state),) = saved
    judge = {"--best-checkpoint-metric": "bleu", "--valid-subset": "dev"}
    combined = SimpleNamespace(valid_subset="valid", combine_valid_subsets=True)  # valid, valid1 and so on are one set
    combined = stopping.judge(SimpleNamespace(cfg=SimpleNamespace(checkpoint=cfg.checkpoint, dataset=combined), task=task))
    assert combined == {**judge, "--valid-subset": "valid (--combine-valid-subsets)"}
    assert (name, state) == ("a.pt", {"epoch": 3, "early_stopping": {"best": 31.25, "num_runs": 2}, "judge": judge})
    assert [type(value) for value in state["early_stopping"].values()] == [float, int]
