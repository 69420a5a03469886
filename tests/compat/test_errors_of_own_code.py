# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Errors in the code of a ``--user-dir``: the traceback tells the line, and neither the options nor a checkpoint are blamed."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import OPTIMIZER_REGISTRY

from veco_fairseq.compat import checkpoints, precision
from veco_fairseq.errors import UserError

# fairseq imports the folder by its name.
CODE = """
class Own:
    def __init__(self, cfg):
        cfg.no_such_option

    @staticmethod
    def refused():
        import torch
        torch.optim.SGD([torch.ones(1)], lr=-1)
"""


@pytest.fixture
def own(monkeypatch):
    names = {"__name__": "own_code.optimizers"}
    exec(CODE, names)
    monkeypatch.setitem(OPTIMIZER_REGISTRY, "own", names["Own"])
    return names["Own"]


@pytest.fixture
def trainer(tmp_path):
    cfg = SimpleNamespace(
        common=SimpleNamespace(fp16=False, memory_efficient_fp16=False),
        optimizer=SimpleNamespace(_name="own"), lr_scheduler=SimpleNamespace(_name="fixed"), model=None,
        checkpoint=SimpleNamespace(save_dir=str(tmp_path), continue_once=None, finetune_from_model=None, no_save=True),
    )  # fmt: skip
    return SimpleNamespace(cfg=cfg, model=torch.nn.Linear(2, 2), task=None, checkpoint_suffix="")


def test_an_optimizer_that_cannot_be_made(own, trainer):
    with pytest.raises(AttributeError, match="no_such_option"):
        precision.build_optimizer(lambda trainer: own(trainer.cfg.common))(trainer)
    with pytest.raises(UserError, match="^--optimizer own with --lr-scheduler fixed: cannot be made .*ValueError"):
        precision.build_optimizer(lambda trainer: own.refused())(trainer)  # PyTorch's refusal
    trainer.cfg.optimizer._name = "adam"
    with pytest.raises(UserError, match="^--optimizer adam with --lr-scheduler fixed: cannot be made .*AttributeError"):
        precision.build_optimizer(lambda trainer: own(trainer.cfg.common))(trainer)


def test_no_checkpoint_is_blamed(own, trainer, monkeypatch, tmp_path):
    """... where the optimizer is made while one is looked for."""
    monkeypatch.setattr(checkpoints, "agree", lambda *given: None)
    monkeypatch.setattr(checkpoints, "_fairseq_trainer_load_checkpoint", lambda *given, **more: own(trainer.cfg.common))
    with pytest.raises(AttributeError, match="no_such_option"):
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "checkpoint_last.pt"))
    trainer.cfg.optimizer._name = "adam"
    with pytest.raises(UserError, match="checkpoint_last.pt: cannot be used .AttributeError"):
        checkpoints.trainer_load_checkpoint(trainer, str(tmp_path / "checkpoint_last.pt"))
