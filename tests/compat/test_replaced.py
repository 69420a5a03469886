# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is told of earlier checkpoints that a training's saves will replace."""

from types import SimpleNamespace

import pytest

from veco_fairseq.compat import checkpoints
from veco_fairseq.errors import UserError


@pytest.mark.parametrize("start", ["checkpoint_last", "start/veco"])
@pytest.mark.parametrize("suffix", ["", "-shard1"])
def test_checkpoints_without_a_last_one(tmp_path, caplog, start, suffix):
    """As after a kill during the first save, or with --no-last-checkpoints; also where another model is begun with."""
    (tmp_path / "start").mkdir()
    (tmp_path / f"start/veco{suffix}.pt").touch()
    last, newest, older = (str(tmp_path / f"checkpoint{name}{suffix}.pt") for name in ("_last", "_1_20", "1"))
    for path in (newest, older):
        open(path, "w").close()
    checkpoints.tell_what_is_replaced(str(tmp_path / f"{start}{suffix}.pt"), last, [newest, older])
    assert caplog.messages == [
        f"{last}: is not there, but checkpoint_1_20{suffix}.pt is: the training begins anew, and its saves replace files of the "
        f"same names; to go on, give --restore-file {newest}"
    ]
    checkpoints.tell_what_is_replaced(str(tmp_path / f"{start}{suffix}.pt"), last, [newest, older], fine_tunes=True)
    assert caplog.messages[1] == caplog.messages[0] + " in place of --finetune-from-model"  # fairseq refuses both
    caplog.clear()
    checkpoints.tell_what_is_replaced(older, last, [newest, older])  # which was asked for
    checkpoints.tell_what_is_replaced(last, last, [])
    assert not caplog.messages


def test_a_checkpoint_that_is_begun_with_by_another_name_is_no_other(tmp_path, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint1.pt").touch()
    (tmp_path / "link.pt").symlink_to("checkpoint1.pt")
    for name in ("checkpoint1.pt", "./checkpoint1.pt", "link.pt"):
        checkpoints.tell_what_is_replaced(name, str(tmp_path / "checkpoint_last.pt"), [str(tmp_path / "checkpoint1.pt")])
    assert not caplog.messages


@pytest.mark.parametrize("model", [None, "other.pt"])
def test_a_fine_tuning_is_known_by_its_option(tmp_path, monkeypatch, model):
    told = []

    def tell(*given, **more):
        told.append(more)
        raise UserError("enough is seen")

    monkeypatch.setattr(checkpoints, "agree", lambda *given: None)
    monkeypatch.setattr(checkpoints, "tell_what_is_replaced", tell)
    (tmp_path / "start.pt").touch()
    cfg = SimpleNamespace(save_dir=str(tmp_path), continue_once=None, finetune_from_model=model, no_save=False)
    trainer = SimpleNamespace(cfg=SimpleNamespace(checkpoint=cfg), checkpoint_suffix="")
    with pytest.raises(UserError, match="enough"):
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "start.pt"))
    assert told == [{"fine_tunes": model is not None}]
