# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What a checkpoint of mixed precision keeps beside the model: fp32 weights, and the state of the loss scale."""

import copy
from argparse import Namespace

import pytest
import torch
from compat.test_device import pytestmark as pretended
from compat.test_device import train_elsewhere
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import AMPOptimizer, FP16Optimizer
from fairseq.optim.fp16_optimizer import MemoryEfficientFP16Optimizer
from support.training import OPTIONS, logged

NOT_TIMES = ("loss", "acc", "lr", "gnorm", "loss_scale")


@pretended
def test_a_training_in_fp16_that_is_resumed_is_the_undisturbed_one(make_root, tmp_path):
    """The loss scale grows after every second update that has not overflowed: here in the second and the fourth."""
    command = [make_root(), *OPTIONS, "--encoder-layers", "1", "--fp16", "--fp16-scale-window", "2", "--disable-validation",
               "--num-workers", "0"]  # fmt: skip
    logs = [
        logged(train_elsewhere(*command, "--max-update", updates, "--save-dir", tmp_path / folder), "train_inner")
        for folder, updates in (("whole", "4"), ("parts", "1"), ("parts", "4"))
    ]
    figures = [[{key: of[key] for key in of if key.endswith(NOT_TIMES)} for of in log] for log in logs]
    assert figures[1] + figures[2] == figures[0] and len(figures[0]) == 4 and len(figures[0][0]) > 8
    assert len({of["loss_scale"] for of in figures[2]}) == 2
    whole, parts = (torch.load(tmp_path / folder / "checkpoint_last.pt", weights_only=False) for folder in ("whole", "parts"))
    for name, weight in whole["model"].items():
        assert torch.equal(weight, parts["model"][name]), name
    for ours, theirs in zip(*(of["last_optimizer_state"]["fp32_params"] for of in (parts, whole)), strict=True):
        assert torch.equal(ours, theirs) and not torch.equal(ours, ours.half().float())


@pretended
def test_in_fp16_what_learns_from_no_batch_stays_as_it_is(make_root, tmp_path):
    """The cross-attention with --objective mlm, beside the rest, which --weight-decay shrinks."""
    command = [make_root(), *OPTIONS, "--fp16", "--objective", "mlm", "--weight-decay", "0.5", "--disable-validation", "--num-workers",
               "0", "--save-interval-updates", "1", "--max-update", "3", "--save-dir", tmp_path]  # fmt: skip
    assert len(logged(train_elsewhere(*command), "train_inner")) == 3
    first, last = (torch.load(tmp_path / f"checkpoint_{name}.pt", weights_only=False)["model"] for name in ("1_1", "last"))
    stays = {name for name, weight in first.items() if torch.equal(weight, last[name])}
    assert stays == {name for name in first if ".encoder_attn" in name or name.endswith("version")}


@pytest.mark.parametrize("common", [{}, {"bf16": True}])
def test_a_copy_is_trained_if_its_parameter_has_a_gradient(common):
    """By hand: fairseq's Adam multiplies a weight by 1 - 0.01 * 0.5 and takes 0.01 from it in a first step (eps 0)."""
    cfg, params = options(**common), half(1, torch.bfloat16 if common else torch.float16)
    cfg.optimizer.weight_decay, cfg.optimizer.adam_eps = 0.5, 0.0
    optimizer = FP16Optimizer.build_optimizer(cfg, params)
    before = [param.data.clone() for param in optimizer.fp32_params]
    for number in (0, 1):  # first the one has a gradient, then the other
        optimizer.zero_grad()
        optimizer.backward(params[number].float().sum())
        optimizer.clip_grad_norm(0.0)
        optimizer.step()
        assert optimizer.fp32_params[number].detach().allclose(before[number] * 0.995 - 0.01, atol=1e-6)
        assert number or torch.equal(optimizer.fp32_params[1], before[1])


def options(**common) -> FairseqConfig:
    cfg = convert_namespace_to_omegaconf(Namespace(optimizer="adam", lr=[0.01], lr_scheduler="fixed"))
    for name, value in {"fp16_no_flatten_grads": True, "fp16_scale_window": 3, "fp16_init_scale": 8, **common}.items():
        setattr(cfg.common, name, value)
    return cfg


def half(seed: int, dtype=torch.float16) -> list[torch.nn.Parameter]:
    torch.manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(3, 2).to(dtype)), torch.nn.Parameter(torch.randn(5).to(dtype))]


def step(optimizer, params) -> None:
    """An update by way of the loss scale."""
    optimizer.zero_grad()
    optimizer.backward(sum((param.float() * (number + 1)).sin().sum() for number, param in enumerate(params)))
    optimizer.clip_grad_norm(0.0)
    optimizer.step()


@pytest.mark.parametrize("kind, dtype, common", [
    (FP16Optimizer, torch.float16, {}), (FP16Optimizer, torch.bfloat16, {"bf16": True}), (MemoryEfficientFP16Optimizer, torch.float16, {}),
])  # fmt: skip
def test_an_optimizer_goes_on_from_its_state(kind, dtype, common):
    cfg, params = options(**common), half(1, dtype)
    optimizer = kind.build_optimizer(cfg, params)
    for _ in range(2):
        step(optimizer, params)
    state, model = copy.deepcopy(optimizer.state_dict()), [param.data.clone() for param in params]
    again = half(2, dtype)
    for param, saved in zip(again, model, strict=True):
        param.data.copy_(saved)
    resumed = kind.build_optimizer(cfg, again)
    resumed.load_state_dict(state)
    for _ in range(3):
        step(optimizer, params)
        step(resumed, again)
        if optimizer.scaler is not None:
            assert vars(resumed.scaler) == vars(optimizer.scaler)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(again, params, strict=True))
    if kind is FP16Optimizer:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(resumed.fp32_params, optimizer.fp32_params, strict=True))
        assert not torch.equal(resumed.fp32_params[0], resumed.fp32_params[0].to(dtype).float())


def test_the_loss_scale_goes_on_with_all_that_it_has_counted():
    """fairseq halves it once enough updates since the last time have overflowed (--fp16-scale-tolerance)."""
    cfg = options(fp16=True, fp16_scale_tolerance=0.25)
    counts = {"_iter": 9, "_last_overflow_iter": 8, "_last_rescale_iter": 2, "_overflows_since_rescale": 3}
    optimizer, resumed = (FP16Optimizer.build_optimizer(cfg, half(1)) for _ in range(2))
    vars(optimizer.scaler).update(counts)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert {name: getattr(resumed.scaler, name) for name in counts} == counts


def test_weights_that_were_changed_in_the_file_stay_so():
    """Beside them, the others go on with all their digits."""
    params = half(1)
    optimizer = FP16Optimizer.build_optimizer(options(), params)
    step(optimizer, params)
    again = half(2)
    for param, saved in zip(again, params, strict=True):
        param.data.copy_(saved.data)
    again[1].data[3] = 7
    resumed = FP16Optimizer.build_optimizer(options(), again)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    expected = optimizer.fp32_params[1].data.clone()
    expected[3] = 7
    assert torch.equal(resumed.fp32_params[1], expected) and torch.equal(resumed.fp32_params[0], optimizer.fp32_params[0])


def amp(seed: int, scale: float, **scaler) -> tuple[AMPOptimizer, list[torch.nn.Parameter]]:
    params = half(seed, torch.float32)
    optimizer = AMPOptimizer.build_optimizer(options(), params)
    optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale, **scaler)
    return optimizer, params


def test_the_loss_scale_of_amp_goes_on():
    optimizer, params = amp(1, 32.0, growth_interval=3)
    for _ in range(4):
        step(optimizer, params)
    state = copy.deepcopy(optimizer.state_dict())
    resumed, again = amp(2, 8.0, growth_interval=2)
    resumed.load_state_dict(state)
    assert resumed.scaler.get_scale() == 64.0 and resumed.scaler.state_dict()["_growth_tracker"] == 1
    assert resumed.scaler.get_growth_interval() == 2  # an option, which is this training's
    step(resumed, again)
    assert resumed.scaler.get_scale() == 128.0


def test_without_a_loss_scale_amp_saves_and_reads_none():
    params = half(1, torch.float32)
    optimizer = AMPOptimizer.build_optimizer(options(), params)
    optimizer._grad_scaler = torch.amp.GradScaler("cpu", enabled=False)
    step(optimizer, params)
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    with_scale, _ = amp(2, 8.0)
    with_scale.load_state_dict(state)  # made on a CPU, and goes on on a GPU
    assert with_scale.scaler.get_scale() == 8.0
    optimizer.load_state_dict(copy.deepcopy(with_scale.state_dict()))
