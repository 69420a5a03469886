# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Training and translation in bf16 on a CPU, and gradients that are no numbers."""

import copy
import math
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.optim import AMPOptimizer
from fairseq.trainer import Trainer
from support.stock import copy_of, error_line, run, train, trained  # noqa: F401  fixtures

from veco_fairseq.compat import precision
from veco_fairseq.errors import UserError
from veco_fairseq.optim.linear_by_epoch import LinearByEpoch


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_gradients_that_are_no_numbers_are_an_error_under_amp_without_a_scale(value):
    """On a CPU there is no scale to lower. Clipping would turn an infinite gradient into zeros and a NaN."""
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), [
        "data", "--task", "translation", "--arch", "transformer_tiny", "--optimizer", "adam", "--lr", "1", "--amp",
    ]))  # fmt: skip
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = AMPOptimizer.build_optimizer(cfg, [parameter])
    optimizer._grad_scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer.backward((parameter * torch.tensor([1.0, value, 3.0])).sum())
    with pytest.raises(FloatingPointError, match="Nan/Inf"):
        optimizer.clip_grad_norm(1.0)


def test_amp_on_a_cpu_computes_in_bf16_and_resumes(trained, tmp_path):
    """Near fp32's loss, but not equal to it; parameters in fp32; nothing said of CUDA."""
    losses = {}
    for amp in ((), ("--amp",)):
        folder = tmp_path / f"ckpt{len(amp)}"
        for updates in ("3", "6"):
            options = ("--max-update", updates, "--log-format", "json", "--log-interval", "1", "--save-dir", folder)
            result = train(trained, *amp, *options)
            assert result.returncode == 0 and result.stderr == ""
        losses[amp] = [float(loss) for loss in re.findall(r'train_inner \| .*?"loss": "([\d.]+)"', result.stdout)]
        weights = torch.load(folder / "checkpoint_last.pt")["model"]
        assert all(tensor.dtype == torch.float32 for tensor in weights.values())
    assert len(losses[()]) == len(losses["--amp",]) == 3 and losses[()] != losses["--amp",]
    assert losses[()] == pytest.approx(losses["--amp",], rel=0.02)


@pytest.mark.parametrize("amp", [False, True])
def test_what_is_computed_again_has_the_precision_of_the_first_time(amp):
    """With ``--checkpoint-activations``; it was in fp32, also with ``--amp``."""
    config, gradients, seen = TransformerConfig(), [], []
    config.encoder.embed_dim, config.encoder.ffn_embed_dim, config.encoder.attention_heads = 16, 32, 2
    torch.manual_seed(1)
    layer = TransformerEncoderLayerBase(config).train()
    layer.fc1.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    for here in (layer, checkpoint_wrapper(copy.deepcopy(layer))):
        torch.manual_seed(2)  # of the dropout
        x = torch.linspace(-1, 2, 5 * 3 * 16).view(5, 3, 16).requires_grad_()
        with torch.autocast("cpu", enabled=amp):
            states = here(x, None)
        states.float().pow(3).sum().backward()
        gradients.append([x.grad, *(parameter.grad for parameter in here.parameters())])
    assert seen == [torch.bfloat16 if amp else torch.float32] * 3
    assert all(torch.equal(plain, again) for plain, again in zip(*gradients, strict=True))


@pytest.mark.filterwarnings("ignore")
def test_amp_unscales_gradients_once():
    """Adam with a large epsilon, whose steps tell the size of gradients, takes the same one with a loss scale."""
    steps = []
    for scaled in (False, True):
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), [
            "data", "--task", "translation", "--arch", "transformer_tiny", "--optimizer", "adam", "--adam-eps", "1",
            "--lr", "1", "--amp",
        ]))  # fmt: skip
        parameter = torch.nn.Parameter(torch.zeros(2))
        optimizer = AMPOptimizer.build_optimizer(cfg, [parameter])
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=scaled)
        for _ in range(2):  # the scale may change after each step
            optimizer.zero_grad()
            optimizer.backward((parameter * torch.tensor([3.0, 4.0])).sum())
            assert optimizer.clip_grad_norm(2.5) == pytest.approx(5.0)
            assert parameter.grad.tolist() == pytest.approx([1.5, 2.0])
            optimizer.step()
        steps.append(parameter.detach().clone())
    assert steps[0].abs().min() > 0 and torch.equal(*steps)


@pytest.mark.parametrize("command", ["fairseq-generate", "fairseq-interactive"])
def test_amp_translates_in_bf16(trained, command):
    """Near fp32's log-probabilities, but not equal to them."""
    data = ["--input", "test.de"] if command == "fairseq-interactive" else ["--max-tokens", "100"]
    scores = {}
    for amp in ((), ("--amp",)):
        options = ("--path", "ckpt/checkpoint_last.pt", "-s", "de", "-t", "en", "--beam", "1", "--max-len-b", "3")
        result = run(command, "data", *data, *options, *amp, cwd=trained)
        assert result.returncode == 0, result.stderr
        # the first token's, before which the two can have chosen nothing else
        scores[amp] = [float(score) for score in re.findall(r"^P-\d+\t(\S+)", result.stdout, re.MULTILINE)]
    assert len(scores[()]) == len(scores["--amp",]) == 8 and scores[()] != scores["--amp",]
    assert scores[()] == pytest.approx(scores["--amp",], rel=0.02)


def test_amp_validates_in_bf16(trained):
    losses = []
    for amp in ((), ("--amp",)):
        result = run("fairseq-validate", "data", "--task", "translation", "--path", "ckpt/checkpoint_last.pt", "--max-tokens", "100",
                     "--log-format", "json", "--valid-subset", "train,valid,test", *amp, cwd=trained)  # fmt: skip
        assert result.returncode == 0, result.stderr
        losses.append([float(loss) for loss in re.findall(r'"(?:train|valid|test)_loss": "?([\d.]+)', result.stdout)])
    # each has three decimals, so that one alone may be equal
    assert len(losses[0]) == 3 and losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize("amp", [(), ("--amp",)], ids=["fp32", "amp"])
def test_nan_is_an_error_and_the_checkpoint_before_is_whole(copy_of, amp):
    """With an absurd learning rate the second update's loss is no number; nothing of it is saved."""
    folder = copy_of
    before = (folder / "ckpt/checkpoint_last.pt").read_bytes()
    options = ("--max-update", "9", "--reset-optimizer", "--lr", "1e30", "--disable-validation", "--no-save")
    result = train(folder, *amp, *options)
    assert "the gradients became NaN or infinite: lower --lr or raise --warmup-updates" in error_line(result)
    assert (folder / "ckpt/checkpoint_last.pt").read_bytes() == before


@pytest.mark.parametrize("asked", [True, False])
def test_translation_with_amp_is_in_bf16_on_a_cpu(asked):
    def main(cfg):
        return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    cfg = SimpleNamespace(common=SimpleNamespace(cpu=False, amp=asked))
    assert precision.translating(main)(cfg) == (asked, torch.bfloat16)


@pytest.mark.parametrize("there, cpu, device", [(True, False, "cuda"), (True, True, "cpu"), (False, False, "cpu")])
def test_translation_with_amp_follows_the_device(monkeypatch, there, cpu, device):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: asked.append((arguments, options)) or nullcontext())
    cfg = SimpleNamespace(common=SimpleNamespace(cpu=cpu, amp=True))
    assert precision.translating(lambda cfg, *more, last: (*more, last))(cfg, 1, last=2) == (1, 2)
    assert asked == [((device, torch.bfloat16), {"enabled": True})]


@pytest.mark.parametrize("amp, autocast, cuda, first, pays, told", [
    (False, "bf16", False, True, False, "--autocast bf16 makes training slower on this processor: 1 and 2; leave it out"),
    (True, None, False, True, False, "--amp makes training slower on this processor: 1 and 2; leave it out"),
    (False, "bf16", False, True, True, None), (False, "bf16", True, True, False, None), (True, "none", False, False, False, None),
    (False, "none", False, True, False, None), (False, None, False, True, False, None),
])  # fmt: skip
def test_bf16_that_is_slower_is_told(monkeypatch, caplog, amp, autocast, cuda, first, pays, told):
    """Once, by the first worker of a training on a CPU that asks for it."""
    monkeypatch.setattr(precision, "bf16_on_cpu", lambda: (pays, "1 and 2"))
    made = []

    def init(trainer, cfg, *args, **kwargs):
        made.append((cfg, args, kwargs))
        trainer.cuda, trainer.is_data_parallel_master = cuda, first

    model = SimpleNamespace(**({"autocast": autocast} if autocast else {}))
    cfg = SimpleNamespace(common=SimpleNamespace(amp=amp), model=model)
    precision.telling_of_slow_bf16(init)(SimpleNamespace(), cfg, "task", criterion=3)
    assert made == [(cfg, ("task",), {"criterion": 3})]
    assert [(record.levelname, record.message) for record in caplog.records] == ([("WARNING", told)] if told else [])


@pytest.mark.parametrize("common, device, error, message", [
    ({"fp16": True}, "cpu", None, "--fp16: trains on a GPU alone: give --autocast bf16 "),
    ({"fp16": True, "memory_efficient_fp16": True}, "cpu", None, "--memory-efficient-fp16: trains on a GPU alone: "),
    ({"fp16": True}, "meta", None, None), ({"fp16": True, "memory_efficient_fp16": True}, "meta", None, None),
    ({}, "cpu", AssertionError("please specify\nsteps"),
     r"--optimizer adam with --lr-scheduler tri_stage: cannot be made .*\(AssertionError: please specify steps\): change"),
    ({}, "cpu", NotImplementedError("--fp16-adam-stats is only for others"), "--fp16-adam-stats is only for others"),
])  # fmt: skip
def test_options_that_no_optimizer_is_made_of_are_told(common, device, error, message):
    """... and not blamed on a checkpoint_last.pt that is not there, beside which fairseq makes the optimizer."""
    common = SimpleNamespace(**{"fp16": False, "memory_efficient_fp16": False, **common})
    names = {"optimizer": SimpleNamespace(_name="adam"), "lr_scheduler": SimpleNamespace(_name="tri_stage")}
    model = torch.nn.Linear(2, 2, device=device)
    trainer = SimpleNamespace(cfg=SimpleNamespace(common=common, **names), model=model, task=None)
    built = []

    def build(trainer):
        if error:
            raise error
        built.append(trainer)

    with pytest.raises((UserError, NotImplementedError), match=f"^{message}") if message else nullcontext():
        precision.build_optimizer(build)(trainer)
    assert built == ([] if message else [trainer])
    assert Trainer._build_optimizer.__wrapped__.__module__ == "fairseq.trainer"


def test_a_fault_of_this_projects_schedule_is_not_blamed_on_options():
    """Its traceback is what tells where it is."""
    names = {"optimizer": SimpleNamespace(_name="adam"), "lr_scheduler": SimpleNamespace(_name="linear_by_epoch")}
    common = SimpleNamespace(fp16=False, memory_efficient_fp16=False)
    trainer = SimpleNamespace(cfg=SimpleNamespace(common=common, **names), model=torch.nn.Linear(2, 2))
    with pytest.raises(AttributeError, match="has no attribute 'optimizer'"):
        precision.build_optimizer(lambda trainer: LinearByEpoch.step_update(SimpleNamespace(total=0, cfg=names), 0))(trainer)
