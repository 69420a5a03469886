# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The checkpoints of --keep-best-checkpoints."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig


@pytest.mark.parametrize("suffix", ["", "-x"])
@pytest.mark.parametrize("maximize, figures, best", [
    (False, [4, 5, 7, 6, 8], [4, 5, 6]), (False, [9, 8, 7, 6, 7.5], [6, 7, 7.5]), (False, [4, 5], [4, 5]),
    (True, [0.9, 0.5, 0.3, 0.4, 0.2], [0.4, 0.5, 0.9]), (True, [1, 2, 3, 4, 1], [2, 3, 4]),
    (True, [-0.2, 0.1, -0.1, -0.3, 0.3], [-0.1, 0.1, 0.3]), (False, [-2, -1, -3, -4, 5], [-4, -3, -2]),
])  # fmt: skip
def test_as_many_are_kept_as_asked_for(monkeypatch, tmp_path, suffix, maximize, figures, best):
    """Also if the first ones are the best, as where a fine-tuning begins to learn by heart."""
    monkeypatch.delattr(checkpoint_utils.save_checkpoint, "best", raising=False)
    cfg = CheckpointConfig(save_dir=str(tmp_path), keep_best_checkpoints=3, maximize_best_checkpoint_metric=maximize)

    def save(path, state):
        Path(path).write_text(str(state["val_loss"]))
        return path

    trainer = SimpleNamespace(
        data_parallel_rank=0, should_save_checkpoint_on_current_rank=True, checkpoint_suffix=suffix, consolidate_optimizer=lambda: None,
        get_num_updates=lambda: 7, task=None, save_checkpoint=save,
    )  # fmt: skip
    for epoch, figure in enumerate(figures, start=1):
        place = SimpleNamespace(epoch=epoch, end_of_epoch=lambda: True, state_dict=dict)
        checkpoint_utils.save_checkpoint(cfg, trainer, place, float(figure))
    kept = sorted(float(path.read_text()) for path in tmp_path.glob(f"checkpoint.best_loss_*{suffix}.pt"))
    assert kept == best
    monkeypatch.delattr(checkpoint_utils.save_checkpoint, "best", raising=False)
