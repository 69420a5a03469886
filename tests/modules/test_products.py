# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Products, and the masked loss with them, on a processor that has AMX and on one that has not."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from veco_fairseq.cost.flops import counter
from veco_fairseq.modules import masked_loss as module
from veco_fairseq.modules import products
from veco_fairseq.modules.masked_loss import drawn_loss, masked_loss, smoothed_loss
from veco_fairseq.modules.products import product, product_of_columns, turned, whole
from veco_fairseq.modules.token_sampler import Draw

ROWS, DIM, VOCABULARY = 23, 16, 50


class Products(TorchDispatchMode):
    """Notes of each matrix product whether its first factor lies row by row in memory, its rows, and all rows and columns."""

    def __init__(self):
        super().__init__()
        self.by_rows, self.rows, self.sizes = [], [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._overloadpacket is torch.ops.aten.mm:
            self.by_rows.append(args[0].is_contiguous())
            self.rows.append(len(args[0]))
            self.sizes.append({*args[0].shape, *args[1].shape})
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=[False, True], ids=["without AMX", "with AMX"])
def amx(request, monkeypatch):
    monkeypatch.setattr(products, "has_amx", lambda: request.param)
    return request.param


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows, m, n", [(5, 7, 3), (64, 96, 32), (1, 4, 4), (6, 1, 1)])
def test_the_product_is_the_same_both_ways(amx, dtype, rows, m, n):
    torch.manual_seed(1)
    a, b = torch.randn(rows, m).to(dtype), torch.randn(rows, n).to(dtype)
    with Products() as done:
        found, summed = product_of_columns(a, turned(b))
    if amx and dtype == torch.bfloat16:
        torch.testing.assert_close(summed.double(), a.double().sum(0), atol=0.2, rtol=0.01)
    else:
        assert summed is None
    assert found.is_contiguous() and found.dtype == dtype
    torch.testing.assert_close(found.double(), a.double().t() @ b.double(), atol=0.2 if dtype == torch.bfloat16 else 1e-4, rtol=0)
    if rows > 1 and m > 1:
        assert done.by_rows == [amx and dtype == torch.bfloat16]


def test_no_product_of_the_loss_has_a_transposed_first_factor_on_amx(amx):
    def gradients(by_rows):
        parameters = [torch.randn(ROWS, DIM), torch.randn(VOCABULARY, DIM), torch.randn(VOCABULARY)]
        parameters = [p.requires_grad_() for p in parameters]
        with by_rows, torch.autocast("cpu", torch.bfloat16):
            nll, _ = masked_loss(*parameters, torch.arange(ROWS) % 11)
            (nll * torch.linspace(-1, 1, ROWS)).sum().backward()
        return [p.grad for p in parameters]

    torch.manual_seed(2)
    done = Products()
    found = gradients(done)
    assert len(done.by_rows) >= 3 and all(done.by_rows) == amx
    torch.manual_seed(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "has_amx", lambda: False)
        for mine, usual in zip(found, gradients(Products()), strict=True):
            torch.testing.assert_close(mine, usual, atol=0.02, rtol=0.01)


# 65 rows are in chunks of 35 and 30, 141 in chunks of 47, and a chunk's rows are made 64.
@pytest.mark.parametrize(
    "rows, most, expected", [(23, 1536, {64}), (65, 40, {64}), (141, 60, {64}), (200, 1536, {256}), (128, 1536, {128})]
)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_products_of_the_loss_have_few_numbers_of_rows_on_amx(amx, monkeypatch, rows, most, expected, smoothing):
    """... and what it finds is PyTorch's: rows that are added change neither the losses nor the gradients of weight and bias."""
    monkeypatch.setattr(module, "ROWS_A_CHUNK", most)
    torch.manual_seed(3)
    parameters = [torch.randn(rows, DIM).bfloat16(), torch.randn(VOCABULARY, DIM).div(4).bfloat16(), torch.randn(VOCABULARY)]
    parameters = [p.requires_grad_() for p in parameters]
    gold, done, copies = torch.arange(rows) % 11, Products(), [p.detach().float().requires_grad_() for p in parameters]
    logits = F.linear(*copies)
    expected_nll = F.cross_entropy(logits, gold, reduction="none").detach()
    expected_loss = F.cross_entropy(logits, gold, reduction="none", label_smoothing=smoothing)
    with torch.no_grad(), done:
        alone, _ = smoothed_loss(*parameters, gold, smoothing=smoothing)
    torch.testing.assert_close(alone, expected_loss.detach(), atol=0.05, rtol=0)
    for scale in (torch.ones(rows), torch.linspace(0.5, 1, rows)):  # as in training, and when gradients are made again
        for p in (*parameters, *copies):
            p.grad = None
        with done:
            loss, nll = smoothed_loss(*parameters, gold, smoothing=smoothing)
            (loss * scale).sum().backward()
        (expected_loss * scale).sum().backward(retain_graph=True)
        torch.testing.assert_close(nll, expected_nll, atol=0.05, rtol=0)
        torch.testing.assert_close(loss.detach(), expected_loss.detach(), atol=0.05, rtol=0)
        for ours, theirs in zip(parameters, copies, strict=True):
            assert (ours.grad.float() - theirs.grad).norm() < 0.02 * theirs.grad.norm()
    numbers = {number for sizes in done.sizes for number in sizes} - {DIM, DIM + 1, VOCABULARY}
    assert numbers == expected if amx else 0 < max(numbers) <= most


def test_rows_are_added_for_amx_alone(amx):
    bf16, fp32 = torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1)
    assert [whole(rows, bf16) for rows in (0, 1, 64, 65)] == ([0, 64, 64, 128] if amx else [0, 1, 64, 65])
    assert [whole(rows, fp32) for rows in (0, 1, 64, 65)] == [0, 1, 64, 65]
    assert whole(5, bf16.to("meta")) == 5


# 640 rows are two parts of 320, and 1,030 rows four parts: three of 320 and 70.
@pytest.mark.parametrize(
    "threads, rows, columns, parts",
    [
        (2, 640, 32, [320, 320]),
        (2, 1030, 896, [320, 320, 320, 70]),
        (2, 384, 8, [192, 192]),
        (2, 383, 8, [383]),
        (2, 1408, 8, [1408]),
        (2, 640, 897, [640]),
        (1, 640, 32, [640]),
        (4, 640, 32, [640]),
    ],
)
def test_a_product_that_leaves_a_thread_idle_is_computed_by_parts(amx, monkeypatch, threads, rows, columns, parts):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    torch.manual_seed(5)
    for dtype in (torch.bfloat16, torch.float32):
        a, b, done = torch.randn(rows, 5).to(dtype), torch.randn(5, columns).to(dtype), Products()
        with done:
            found = product(a, b)
        assert found.shape == (rows, columns) and found.dtype == dtype
        torch.testing.assert_close(found.double(), a.double() @ b.double(), atol=0.1 if dtype == torch.bfloat16 else 1e-4, rtol=0)
        assert done.rows == (parts if amx and dtype == torch.bfloat16 else [rows])


def test_the_gradient_of_the_rows_is_such_a_product(monkeypatch):
    monkeypatch.setattr(products, "has_amx", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    torch.manual_seed(6)
    rows, weight, done = torch.randn(448, DIM), torch.randn(VOCABULARY, DIM), Products()
    rows.requires_grad_()
    with done, torch.autocast("cpu", torch.bfloat16):
        masked_loss(rows, weight, torch.zeros(VOCABULARY), torch.arange(448) % VOCABULARY)[0].sum().backward()
    assert done.rows == [448, 256, 192]


def test_tokens_are_drawn_for_the_rows_alone(amx, monkeypatch):
    """Three rows have their probabilities added up at a time."""
    monkeypatch.setattr("veco_fairseq.modules.token_sampler.PROBABILITIES_A_PART", {"cpu": 3 * VOCABULARY})
    torch.manual_seed(4)
    rows, weight, bias = torch.randn(ROWS, DIM).bfloat16(), torch.randn(VOCABULARY, DIM).bfloat16(), torch.randn(VOCABULARY)
    numbers, gold = torch.rand(ROWS), torch.arange(ROWS)
    with Products() as done:
        nll, correct, drawn = drawn_loss(rows, weight, bias, gold, draw=Draw(numbers, 0, VOCABULARY))
    assert done.sizes == [{64 if amx else ROWS, DIM, VOCABULARY}]
    totals = torch.softmax(F.linear(rows.float(), weight.float(), bias), 1).cumsum(1)
    assert len(nll) == len(correct) == len(drawn) == ROWS
    assert (drawn == torch.searchsorted(totals, numbers.unsqueeze(1), right=True).squeeze(1)).sum() >= ROWS - 2  # of bf16


@pytest.mark.parametrize("rows", [23, 64, 448])
def test_operations_are_counted_alike_with_amx_and_without(amx, rows):
    """The rows that are added for AMX are no work that the loss needs: three products of 2 x rows x DIM x VOCABULARY operations."""
    parameters = [p.requires_grad_() for p in (torch.randn(rows, DIM), torch.randn(VOCABULARY, DIM), torch.randn(VOCABULARY))]
    with counter() as operations, torch.autocast("cpu", torch.bfloat16):
        masked_loss(*parameters, torch.arange(rows) % VOCABULARY)[0].sum().backward()
    assert operations.get_total_flops() == 3 * 2 * rows * DIM * VOCABULARY
    assert products.by_amx(torch.zeros(1, dtype=torch.bfloat16)) == amx  # afterwards as before


def test_the_processor_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: asked.append(1) or True, raising=False)
    products.has_amx.cache_clear()
    try:
        assert [products.has_amx(), products.has_amx()] == [True, True] and asked == [1]
        monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported")
        products.has_amx.cache_clear()
        assert products.has_amx() is False
    finally:
        products.has_amx.cache_clear()
