# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The chunked loss against torch's linear and cross_entropy."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from veco_fairseq.modules import masked_loss as module
from veco_fairseq.modules.masked_loss import masked_loss

ROWS, DIM, VOCABULARY = 23, 16, 50


def plain(rows, weight, bias, gold):
    logits = F.linear(rows, weight, bias).float()
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


@pytest.fixture(
    params=[(2**26, 8192), (3 * VOCABULARY, 7), (1, VOCABULARY - 1)], ids=["one chunk", "3 rows, 7 tokens", "1 row"]
)
def chunk(request, monkeypatch):
    for name, value in zip(("LOGITS_A_CHUNK", "TOKENS_A_BLOCK"), request.param):
        monkeypatch.setattr(module, name, value)


# All rows count the same, as in training, or not, when the gradients have to be made again.
@pytest.mark.parametrize("scale", [torch.tensor(2.5), torch.linspace(-1, 1, ROWS)], ids=["equal", "different"])
def test_equals_torch(chunk, scale):
    for actual, expected in zip(results(masked_loss, scale), results(plain, scale)):
        assert actual.dtype == expected.dtype
        assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-5) if actual.is_floating_point() else (
            torch.equal(actual, expected)
        )


def test_autocast_rounds_the_products_alone(chunk):
    scale = torch.tensor(2.5)
    actual, expected = (results(function, scale, autocast=True) for function in (masked_loss, plain))
    assert all(tensor.dtype == torch.float32 for tensor in (actual[0], *actual[2:]))
    assert torch.allclose(actual[0], expected[0], atol=1e-5)
    for ours, theirs in zip(actual[2:], expected[2:]):
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


def test_no_product_is_computed_twice():
    parameters, gold = problem()
    with FlopCounterMode(display=False) as counter:
        masked_loss(*parameters, gold)[0].sum().backward()
    assert counter.get_total_flops() == 3 * 2 * ROWS * DIM * VOCABULARY


def test_backward_twice_gives_the_same():
    parameters, gold = problem()
    loss = masked_loss(*parameters, gold)[0].sum()
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(first, second))


def test_without_a_row():
    parameters, gold = problem()
    nll, correct = masked_loss(parameters[0][:0], *parameters[1:], gold[:0])
    nll.sum().backward()
    assert nll.shape == correct.shape == (0,) and not parameters[1].grad.any()
