# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The chunked loss against torch's linear and cross_entropy."""

import os
import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from veco_fairseq.modules import liger
from veco_fairseq.modules import masked_loss as module
from veco_fairseq.modules.masked_loss import masked_loss, smoothed_loss

ROWS, DIM, VOCABULARY = 23, 16, 50


def plain(rows, weight, bias, gold):
    logits = F.linear(rows, weight).float() + bias  # under autocast, the product alone is rounded
    return F.cross_entropy(logits, gold, reduction="none"), logits.argmax(-1).eq(gold)


def problem(dtype=torch.float32):
    torch.manual_seed(1)
    parameters = [torch.randn(ROWS, DIM), torch.randn(VOCABULARY, DIM), torch.randn(VOCABULARY)]
    return [p.to(dtype).requires_grad_() for p in parameters], torch.randint(VOCABULARY, (ROWS,))


def results(function, scale, autocast=False, dtype=torch.float32):
    parameters, gold = problem(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        nll, correct = function(*parameters, gold)
    (nll * scale).sum().backward()
    return nll.detach(), correct, *(p.grad for p in parameters)


SIZES = {  # LOGITS_A_CHUNK, ROWS_A_CHUNK, TOKENS_A_BLOCK, LOGITS_A_STRIP
    "one chunk": (2**26, 2**10, 8192, 2**19),
    "3 rows, 7 tokens": (3 * VOCABULARY, 2**10, 7, 2**19),
    "5 rows, 2 of 20 tokens at a time": (2**26, 5, 20, 40),
    "1 row": (1, 2**10, VOCABULARY - 1, 1),
}


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def chunk(request, monkeypatch):
    for name, value in zip(("LOGITS_A_CHUNK", "ROWS_A_CHUNK", "TOKENS_A_BLOCK", "LOGITS_A_STRIP"), request.param):
        monkeypatch.setattr(module, name, value)


# All rows count the same, as in training, or not, when the gradients have to be made again.
@pytest.mark.parametrize("scale", [torch.tensor(2.5), torch.linspace(-1, 1, ROWS)], ids=["equal", "different"])
def test_equals_torch(chunk, scale):
    for actual, expected in zip(results(masked_loss, scale), results(plain, scale), strict=True):
        assert actual.dtype == expected.dtype
        assert (
            torch.allclose(actual, expected, rtol=1e-4, atol=1e-5)
            if actual.is_floating_point()
            else (torch.equal(actual, expected))
        )


@pytest.mark.parametrize("scale", [torch.tensor(2.5), torch.linspace(-1, 1, ROWS)], ids=["equal", "different"])
def test_smoothed_equals_torch(chunk, scale):
    found = []
    for function in (smoothed_loss, smoothed_by_torch):
        parameters, gold = problem()
        loss, nll = function(*parameters, gold, smoothing=0.3)
        (loss * scale).sum().backward()
        assert not nll.requires_grad
        found.append((loss.detach(), nll, *(p.grad for p in parameters)))
    for actual, expected in zip(*found, strict=True):
        assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-5)


def smoothed_by_torch(rows, weight, bias, gold, smoothing):
    logits = F.linear(rows, weight, bias)
    nll = F.cross_entropy(logits.detach(), gold, reduction="none")
    return F.cross_entropy(logits, gold, reduction="none", label_smoothing=smoothing), nll


@pytest.mark.parametrize("autocast", [False, True])
def test_a_logit_that_no_exp_can_take_is_taken(chunk, autocast):
    """Also where the likeliest token of a block has a probability of 0."""
    gold, found = torch.tensor([VOCABULARY - 1, VOCABULARY - 2]), []
    for function in (masked_loss, plain):
        rows, weight = torch.tensor([[1.0], [-1.0]]), torch.linspace(-496, 496, VOCABULARY).bfloat16().float().unsqueeze(1)
        parameters = [p.requires_grad_() for p in (rows, weight, torch.zeros(VOCABULARY))]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            nll, correct = function(*parameters, gold)
        nll.sum().backward()
        assert correct.tolist() == [True, False]
        found.append([nll.detach(), *(p.grad for p in parameters)])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=0.01 if autocast else 1e-5, atol=0.01 if autocast else 1e-5)


def test_autocast_rounds_the_products_alone(chunk):
    scale = torch.tensor(2.5)
    actual, expected = (results(function, scale, autocast=True) for function in (masked_loss, plain))
    assert all(tensor.dtype == torch.float32 for tensor in (actual[0], *actual[2:]))
    assert torch.allclose(actual[0], expected[0], atol=1e-5)
    for ours, theirs in zip(actual[2:], expected[2:], strict=True):
        assert (ours - theirs).norm() < 0.01 * theirs.norm()


def test_half_precision_scales_before_it_rounds():
    """With a loss scale, gradients below fp16's smallest number survive."""
    small = torch.tensor(2.0**14, dtype=torch.float32)
    parameters, gold = problem(torch.float16)
    with torch.no_grad():
        parameters[2][gold[0]] += 20  # so that its probability is nearly 1, and everyone else's tiny
    (masked_loss(*parameters, gold)[0][:1].sum() * small).backward()
    reference = [p.detach().float().requires_grad_() for p in parameters]
    (plain(*reference, gold)[0][:1].sum() * small).backward()
    assert parameters[0].grad.dtype == torch.float16
    assert torch.allclose(parameters[0].grad.float(), reference[0].grad, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("scale", [torch.tensor(2.5), torch.linspace(-1, 1, ROWS)], ids=["equal", "different"])
def test_half_precision_trains_everything(scale):
    found, expected = (results(function, scale, dtype=torch.float16)[2:] for function in (masked_loss, plain))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float16 and (ours - theirs).norm() < 0.01 * theirs.norm()


def test_frozen_parameters_cost_nothing():
    parameters, gold = problem()
    for parameter in parameters[1:]:
        parameter.requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        masked_loss(*parameters, gold)[0].sum().backward()
    product = 2 * ROWS * DIM * VOCABULARY
    assert counter.get_total_flops() == 2 * product  # logits and the rows' gradient
    assert parameters[1].grad is None
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        masked_loss(*parameters, gold)
    assert counter.get_total_flops() == product


@pytest.mark.parametrize("trained", [0, 1, 2])
def test_each_parameter_is_trained_without_the_others(trained):
    found = []
    for function in (masked_loss, plain):
        parameters, gold = problem()
        for number, parameter in enumerate(parameters):
            parameter.requires_grad_(number == trained)
        function(*parameters, gold)[0].sum().backward()
        assert all((p.grad is None) == (number != trained) for number, p in enumerate(parameters))
        found.append(parameters[trained].grad)
    assert torch.allclose(*found, rtol=1e-4, atol=1e-5)


SUMS = {"sum": torch.sum, "scaled": lambda nll: (2.5 * nll).sum(),
        "by side": lambda nll: nll.masked_fill(torch.arange(ROWS) < 9, 0).sum() + nll.masked_fill(torch.arange(ROWS) >= 9, 0).sum()}  # fmt: skip


@pytest.mark.parametrize("total", SUMS.values(), ids=SUMS)
def test_no_product_is_computed_twice(total):
    """As the criterions add up: every row counts the same."""
    parameters, gold = problem()
    with FlopCounterMode(display=False) as counter:
        total(masked_loss(*parameters, gold)[0]).backward()
    assert counter.get_total_flops() == 3 * 2 * ROWS * DIM * VOCABULARY


def test_backward_twice_gives_the_same():
    parameters, gold = problem()
    loss = masked_loss(*parameters, gold)[0].sum()
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows(rows):
    """... whose gradients are made beforehand, as those of many."""
    parameters, gold = problem()
    found = []
    for function in (masked_loss, plain):
        nll, _ = function(parameters[0][:rows], *parameters[1:], gold[:rows])
        found.append(torch.autograd.grad(2.5 * nll.sum(), parameters))
    assert all(torch.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in zip(*found, strict=True)) and found[0][0][rows - 1].any()


def test_without_a_row():
    parameters, gold = problem()
    nll, correct = masked_loss(parameters[0][:0], *parameters[1:], gold[:0])
    nll.sum().backward()
    assert nll.shape == correct.shape == (0,) and not parameters[1].grad.any()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_rows_that_align_the_weight_change_nothing(chunk, smoothing):
    """50 tokens become 64 rows: no softmax sees the others, none is drawn, and they have no share of the smoothing."""
    (rows, weight, bias), gold = problem()
    draw = None if smoothing else lambda p, place: p.sub(0.03).abs().argmin(1)
    options = {"tokens": VOCABULARY, "needed": (True,) * 3, "scale": torch.rand(ROWS), "draw": draw, "smoothing": smoothing}
    with torch.no_grad():
        expected = module._by_chunks(rows, weight, bias, gold, **options)
        wide, biases = module.aligned(weight, bias, torch.float32)
        found = module._by_chunks(rows, wide, biases, gold, **options)
    assert wide.shape == (64, DIM) and module.aligned(wide, biases, torch.float16)[0].shape == (64, DIM)
    assert module.aligned(weight, bias, torch.bfloat16)[0].dtype == torch.bfloat16
    assert torch.equal(found.drawn, expected.drawn) if draw else found.drawn is None
    assert torch.equal(found.correct, expected.correct)
    assert not found.gradients[1][VOCABULARY:].any() or smoothing
    for ours, theirs in zip((found.loss, found.nll, *found.gradients), (expected.loss, expected.nll, *expected.gradients)):
        assert torch.allclose(ours[: len(theirs)], theirs, atol=1e-5)


@pytest.fixture
def by_liger(monkeypatch):
    """Its kernels interpreted, on the CPU; the calls."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton's kernels run on a CPU where TRITON_INTERPRET=1 is set")
    pytest.importorskip("liger_kernel.ops.fused_linear_cross_entropy", reason="liger-kernel is not installed")
    calls, fused = [], liger.fused_loss
    monkeypatch.setattr(liger, "serves", lambda rows: True)
    monkeypatch.setattr(liger, "fused_loss", lambda *args, **named: calls.append(named) or fused(*args, **named))
    return calls


@pytest.mark.parametrize("scale, times", [(torch.tensor(2.5), 1), (torch.linspace(-1, 1, ROWS), 2)], ids=["equal", "different"])
@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
def test_liger_equals_torch(by_liger, monkeypatch, scale, times, autocast):
    monkeypatch.setattr(module, "LOGITS_A_CHUNK", 4 * VOCABULARY)
    nll, correct, *gradients = results(masked_loss, scale, autocast)
    expected = results(plain, scale, autocast)
    assert len(by_liger) == times and nll.dtype == torch.float32 and torch.equal(correct, expected[1])
    for ours, theirs in zip((nll, *gradients), (expected[0], *expected[2:]), strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours - theirs).norm() < (0.01 if autocast else 1e-5) * theirs.norm()


def test_liger_makes_no_gradient_that_is_not_needed(by_liger):
    parameters, gold = problem()
    parameters[1].requires_grad_(False)
    masked_loss(*parameters, gold)[0].sum().backward()
    assert parameters[1].grad is None and parameters[0].grad is not None and parameters[2].grad is not None
    with torch.no_grad():
        masked_loss(*parameters, gold)
    assert [any(call["needed"]) for call in by_liger] == [True, False]


def test_another_version_of_liger_is_left_alone(monkeypatch, caplog):
    ops = ModuleType("liger_kernel.ops.fused_linear_cross_entropy")
    ops.fused_linear_cross_entropy_forward = lambda rows, weight, target, bias=None: None
    for name, replacement in {"liger_kernel": ModuleType("liger_kernel"), "liger_kernel.ops": ModuleType("ops"),
                              ops.__name__: ops}.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, replacement)
    assert liger._function.__wrapped__() is None
    assert "has no accum_dtype, chunk_mem_const" in caplog.text


def test_no_rows_and_no_tokens():
    """As of a batch without targets, to which a vocabulary of its targets alone leaves nothing."""
    parameters = [torch.zeros(shape, requires_grad=True) for shape in ((0, DIM), (0, DIM), (0,))]
    nll, correct = masked_loss(*parameters, torch.zeros(0, dtype=torch.long))
    nll.sum().backward()
    assert nll.shape == correct.shape == (0,) and [p.grad.shape for p in parameters] == [(0, DIM), (0, DIM), (0,)]
