# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Products of columns, and the masked loss with them, on a processor that has AMX and on one that has not."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from veco_fairseq.modules import products
from veco_fairseq.modules.masked_loss import masked_loss
from veco_fairseq.modules.products import product_of_columns, turned

ROWS, DIM, VOCABULARY = 23, 16, 50


class Products(TorchDispatchMode):
    """Notes of each matrix product whether its first factor lies row by row in memory."""

    def __init__(self):
        super().__init__()
        self.by_rows = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._overloadpacket is torch.ops.aten.mm:
            self.by_rows.append(args[0].is_contiguous())
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
        found = product_of_columns(a, turned(b))
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
