# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The checkpoints of --keep-best-checkpoints, and what a resumed training's best is the best of."""

import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

from veco_fairseq.compat import best
from veco_fairseq.compat.stopping import judge, judged_by_another


@pytest.mark.parametrize("pattern, own", [(-1, {"_2_40"}), (30, {"_1_30", "_2_40"})])
def test_later_checkpoints_of_another_training_do_not_push_out_its_own(tmp_path, caplog, pattern, own):
    """... as where a training is begun again from its last one, with --reset-optimizer, and counts its updates from 0."""
    theirs = {"_9_900", "_9_950", "9"}
    for name in theirs:
        (tmp_path / f"checkpoint{name}.pt").write_text("")
    cfg = CheckpointConfig(
        save_dir=str(tmp_path), save_interval_updates=10, keep_interval_updates=1, keep_last_epochs=1,
        keep_interval_updates_pattern=pattern, no_last_checkpoints=True,
    )  # fmt: skip
    for updates, epoch, ends in (10, 1, False), (20, 1, False), (30, 1, False), (35, 1, True), (40, 2, False), (45, 2, True):
        trainer = SimpleNamespace(
            data_parallel_rank=0, should_save_checkpoint_on_current_rank=True, checkpoint_suffix="", task=None,
            save_checkpoint=lambda path, state: Path(path).write_text(""), consolidate_optimizer=lambda: None,
            get_num_updates=lambda updates=updates: updates,
        )  # fmt: skip
        place = SimpleNamespace(epoch=epoch, end_of_epoch=lambda ends=ends: ends, state_dict=dict)
        checkpoint_utils.save_checkpoint(cfg, trainer, place, None)
    assert {path.stem.removeprefix("checkpoint") for path in tmp_path.glob("*.pt")} == theirs | own | {"2"}
    told = (
        "of a later place than this training has come to: stays beside its own, and veco average would take it for the last one"
    )
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warned == [
        f"{tmp_path}/checkpoint_9_950.pt and 1 more: {told}: move it elsewhere", f"{tmp_path}/checkpoint9.pt: {told}: move it elsewhere",
    ]  # fmt: skip


class OfLengths(list):
    """A set of examples of these lengths."""

    @property
    def sizes(self):
        return np.array(self, dtype=np.int64)


def of_options(lengths, metric="loss", criterion=(), task=()):
    """A trainer that validates on examples of these lengths."""
    cfg = SimpleNamespace(
        dataset=SimpleNamespace(valid_subset="valid,test"), checkpoint=SimpleNamespace(best_checkpoint_metric=metric),
        criterion=SimpleNamespace(**dict(criterion)), task=SimpleNamespace(**dict(task)),
    )  # fmt: skip
    return SimpleNamespace(cfg=cfg, task=SimpleNamespace(datasets={"valid": OfLengths(lengths), "test": OfLengths([1])}))


@pytest.fixture
def keep(tmp_path):
    """A function that saves checkpoints after validations, keeps the best three, and returns their figures."""

    def save_all(figures, lengths=(3, 5), suffix="", maximize=False, first=1):
        vars(checkpoint_utils.save_checkpoint).pop("best", None)
        best._figures.clear()  # as in a new process
        cfg = CheckpointConfig(save_dir=str(tmp_path), keep_best_checkpoints=3, maximize_best_checkpoint_metric=maximize)
        trainer = of_options(lengths)

        def save(path, state):
            history = [{"num_updates": trainer.get_num_updates()}]
            torch.save({"model": {}, "extra_state": {**state, "judge": judge(trainer)}, "optimizer_history": history}, path)
            return path

        vars(trainer).update(
            data_parallel_rank=0, should_save_checkpoint_on_current_rank=True, checkpoint_suffix=suffix, save_checkpoint=save,
            consolidate_optimizer=lambda: None,
        )  # fmt: skip
        for epoch, figure in enumerate(figures, start=first):
            trainer.get_num_updates = lambda epoch=epoch: 10 * epoch
            place = SimpleNamespace(epoch=epoch, end_of_epoch=lambda: True, state_dict=dict)
            checkpoint_utils.save_checkpoint(cfg, trainer, place, float(figure))
        vars(checkpoint_utils.save_checkpoint).pop("best", None)
        kept = tmp_path.glob(f"checkpoint.best_loss_*{suffix}.pt")
        return sorted(torch.load(path)["extra_state"]["val_loss"] for path in kept)

    return save_all


@pytest.mark.parametrize("suffix", ["", "-x"])
@pytest.mark.parametrize("maximize, figures, best", [
    (False, [4, 5, 7, 6, 8], [4, 5, 6]), (False, [9, 8, 7, 6, 7.5], [6, 7, 7.5]), (False, [4, 5], [4, 5]),
    (True, [0.9, 0.5, 0.3, 0.4, 0.2], [0.4, 0.5, 0.9]), (True, [1, 2, 3, 4, 1], [2, 3, 4]),
    (True, [-0.2, 0.1, -0.1, -0.3, 0.3], [-0.1, 0.1, 0.3]), (False, [-2, -1, -3, -4, 5], [-4, -3, -2]),
    (True, [0.8496, 0.9, 0.95, 0.8499], [0.8499, 0.9, 0.95]), (False, [0.8499, 0.1, 0.2, 0.8503], [0.1, 0.2, 0.8499]),
])  # fmt: skip
def test_as_many_are_kept_as_asked_for(keep, suffix, maximize, figures, best):
    """Also if the first ones are the best, as where a fine-tuning begins to learn by heart; by more than three decimals."""
    assert keep(figures, suffix=suffix, maximize=maximize) == best


@pytest.mark.parametrize("seed", range(3))
def test_equal_figures_are_of_files_of_their_own(keep, tmp_path, monkeypatch, seed):
    """One had overwritten another. A checkpoint that a resumed training saves once more is the same file."""
    monkeypatch.setattr(np.random, "randint", lambda low, high: seed)  # for all of them
    assert keep([0.5, 0.5, 0.5001], maximize=True) == [0.5, 0.5, 0.5001]
    names = {f"checkpoint.best_loss_0.500{seed + place}.pt" for place in range(3)}
    assert {path.name for path in tmp_path.glob("checkpoint.best_*")} == names
    assert keep([0.5, 0.5001], maximize=True, first=2) == [0.5, 0.5, 0.5001]
    assert {path.name for path in tmp_path.glob("checkpoint.best_*")} == names
    assert keep([0.5002, 0.4], maximize=True, first=4) == [0.5, 0.5001, 0.5002]


def test_those_of_other_held_out_examples_give_way_first(keep, tmp_path):
    """... and of those of the same examples, which another process has saved, the worst does; an unreadable file is none of them."""
    assert keep([1, 2, 3]) == [1, 2, 3]
    assert keep([2.5]) == [1, 2, 2.5]
    assert keep([8, 7], lengths=[30, 50]) == [1, 7, 8]
    assert keep([9], lengths=[30, 50]) == [7, 8, 9]
    for path in tmp_path.glob("checkpoint.best_loss_7.0*.pt"):
        path.write_text("cut off")
    assert keep([8.5], lengths=[30, 50]) == [8, 8.5, 9]


def as_told(*lengths):
    checksum = zlib.crc32(b"".join(length.to_bytes(8, "little") for length in lengths))
    return f"{len(lengths)} examples (checksum of their lengths: {checksum:08x})"


@pytest.mark.parametrize("then, now, told", [
    ({"lengths": [3, 5]}, {"lengths": [3, 5]}, None),
    ({"lengths": [3, 5]}, {"lengths": [3, 5, 4]}, f"the set to validate on was {as_told(3, 5)} and is {as_told(3, 5, 4)}"),
    ({"lengths": [3, 5]}, {"lengths": [5, 3]}, f"the set to validate on was {as_told(3, 5)} and is {as_told(5, 3)}"),
    ({"criterion": {"label_smoothing": 0.1}}, {"criterion": {"label_smoothing": 0.2}}, "--label-smoothing was 0.1 and is 0.2"),
    ({"criterion": {"label_smoothing": 0.1}, "metric": "nll_loss"}, {"criterion": {"label_smoothing": 0.2}, "metric": "nll_loss"}, None),
    ({"criterion": {"knn_rest": 1}, "task": {"no_tlm": False}}, {"criterion": {"knn_rest": 2}, "task": {"no_tlm": True}},
     "--no-tlm was False and is True"),
])  # fmt: skip
def test_the_best_of_other_examples_or_of_another_loss_begins_anew(caplog, then, now, told):
    """... with which none can be compared: of harder examples no loss may ever be as low."""
    then, now = ({"lengths": [2], **options} for options in (then, now))
    assert judged_by_another({"judge": judge(of_options(**then))}, of_options(**now)) == bool(told)
    end = ": the best validation, and what counts those without progress, begin anew"
    assert caplog.messages == ([told + end] if told else [])


def test_a_checkpoint_of_an_older_version_says_nothing_of_them():
    judges = {"--best-checkpoint-metric": "loss", "--valid-subset": "valid"}
    assert not judged_by_another({"judge": judges}, of_options([2], criterion={"label_smoothing": 0.1}))


def test_the_best_checkpoint_of_a_loss_with_more_terms_is_kept(make_root, train, tmp_path):
    """A loss without the S terms of bitext is lower than any with them."""
    root, best = make_root(), tmp_path / "checkpoints/checkpoint_best.pt"
    found = []
    for epochs, words in ((1, ("--objective", "mlm")), (2, ()), (3, ())):
        result = train(root, "--updates-per-epoch", "1", "--max-epoch", epochs, *words)
        assert result.returncode == 0, result.stderr
        assert ("--objective was mlm and is camlm: the best validation" in result.stdout) == (epochs == 2)
        state = torch.load(best)
        found.append((state["optimizer_history"][-1]["num_updates"], state["extra_state"]["best"]))
    (first, low), (second, high), (third, _) = found
    assert (first, second) == (1, 2) and third >= 2 and low < high
    kinds = {kind: len(names) for kind, names in state["extra_state"]["judge"].items()}
    assert kinds["the set to validate on"] == len("24 examples (checksum of their lengths: 01234567 and 89abcdef)")
