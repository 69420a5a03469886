# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The mean of a training's weights."""

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import EMAConfig
from fairseq.models import BaseFairseqModel
from fairseq.models.ema.ema import EMA
from fairseq.modules import AdaptiveSoftmax
from torch import nn

from veco_fairseq.compat.ema import read_mean
from veco_fairseq.errors import UserError


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(3, 2), nn.Linear(2, 3)
        self.head.weight = self.table.weight


class Adaptive(BaseFairseqModel):
    def __init__(self):
        super().__init__()
        self.softmax = AdaptiveSoftmax(6, 4, [3], dropout=0.0)


@pytest.mark.parametrize("fp32", [False, True])
def test_tied_weights_decay_once(fp32):
    model = Tied()
    ema = EMA(model, EMAConfig(ema_decay=0.75, ema_fp32=fp32))
    before = {name: tensor.clone() for name, tensor in ema.get_model().state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    ema.step(model, 1)
    after = ema.get_model().state_dict()
    assert set(after) == {"table.weight", "head.weight", "head.bias"}
    for name, tensor in model.state_dict().items():
        assert torch.allclose(after[name], 0.75 * before[name] + 0.25 * tensor)


def test_follows_every_so_many_updates_of_the_whole_training():
    """... also of one that was stopped after the third update, and copies the model before --ema-start-update."""
    model = nn.Linear(1, 1, bias=False)
    ema = EMA(model, EMAConfig(ema_decay=0.5, ema_update_freq=2, ema_start_update=4))
    seen = []
    for update in (4, 5, 6, 2):
        nn.init.constant_(model.weight, update)
        nn.init.constant_(ema.get_model().weight, 0)
        ema.step(model, update)
        seen.append(ema.get_model().weight.item())
    assert seen == [2, 0, 3, 2]


def test_an_adaptive_softmax_has_a_mean_too():
    """fairseq had said after the first update that this version of the model is no longer supported."""
    model = Adaptive()
    ema = EMA(model, EMAConfig(ema_decay=0.75))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    ema.step(model, 1)
    for name, tensor in ema.get_model().state_dict().items():
        now = model.state_dict()[name]
        assert torch.allclose(tensor, now if "version" in name else 0.75 * before[name] + 0.25 * now)


def test_begins_with_the_model_of_a_checkpoint_that_has_no_mean(make_root, train, tmp_path):
    """As a fine-tuning does, which goes on from a pre-training."""
    root, options = make_root(), ("--updates-per-epoch", "9", "--disable-validation", "--save-interval-updates", "1")
    assert train(root, *options, "--max-update", "1").returncode == 0
    mean = ("--store-ema", "--ema-decay", "0.25", "--max-update", "2")
    assert train(root, *options, *mean).returncode == 0
    last = tmp_path / "checkpoints/checkpoint_last.pt"
    first, second = (torch.load(path) for path in (last.with_name("checkpoint_1_1.pt"), last))
    assert "ema" not in first["extra_state"]
    for name, tensor in second["model"].items():
        if "version" not in name:
            assert torch.allclose(second["extra_state"]["ema"][name], 0.25 * first["model"][name] + 0.75 * tensor, atol=1e-6)
    begun = train(root, *options, *mean, "--finetune-from-model", last, save_dir="finetuned")
    assert begun.returncode == 0, begun.stderr


def test_the_first_mean_is_that_of_another_checkpoint(make_root, train, tmp_path):
    """... which must have one, of this model."""
    root, options = make_root(), ("--updates-per-epoch", "9", "--disable-validation", "--max-update", "1", "--store-ema")
    assert train(root, *options).returncode == 0
    last = tmp_path / "checkpoints/checkpoint_last.pt"
    mean = torch.load(last)["extra_state"]["ema"]
    model = checkpoint_utils.load_model_ensemble([str(last)])[0][0]
    begun = EMA(model, EMAConfig(ema_seed_model=str(last))).get_model().state_dict()
    assert all(torch.equal(begun[name], tensor) for name, tensor in mean.items())
    with pytest.raises(UserError, match="--ema-seed-model .*checkpoint_last.pt: does not fit the chosen model: missing weight"):
        EMA(nn.Linear(1, 1, bias=False), EMAConfig(ema_seed_model=str(last)))
    state = torch.load(last)
    del state["extra_state"]["ema"]
    torch.save(state, last)
    with pytest.raises(UserError, match="--ema-seed-model .*checkpoint_last.pt: has no mean of weights: give"):
        EMA(model, EMAConfig(ema_seed_model=str(last)))


@pytest.mark.parametrize("mean, told", [
    ([1], "its extra_state, ema is a list, and must be a dict"),
    ({"weight": 1.5}, "its model, weight, is no tensor"),
    ({"weight": torch.tensor([1, 2])}, "its model, weight, is a tensor of int64, and must be one of numbers"),
    ({"weight": torch.tensor([1, float("nan")])}, r"its tensor weight holds NaN or infinity \(1 of 2 values\)"),
])  # fmt: skip
def test_a_mean_that_is_no_weights_is_refused(tmp_path, mean, told):
    torch.save({"model": {}, "extra_state": {"ema": mean}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=f"a.pt: {told}"):
        read_mean(str(tmp_path / "a.pt"))
