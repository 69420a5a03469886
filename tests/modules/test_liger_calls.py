# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What Liger's function is asked for and when, with a stand-in that computes its results by PyTorch's autograd."""

import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

from veco_fairseq.modules import liger
from veco_fairseq.modules import masked_loss as module
from veco_fairseq.modules.masked_loss import drawn_loss, masked_loss, smoothed_loss

ROWS, DIM, VOCABULARY = 5, 3, 10


def inputs():
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(*shape, generator=generator) for shape in ((ROWS, DIM), (VOCABULARY, DIM), (VOCABULARY,))]
    return *drawn, torch.tensor([3, 1, 9, 0, 3])


@pytest.fixture
def asked(monkeypatch):
    """The calls, and the stand-in in Liger's place."""
    calls = []

    def function(
        rows, weight, target, *, bias, reduction, accum_dtype, return_predicted_tokens, compute_gradients,
        weight_requires_grad, token_grad_output, chunk_mem_const,
    ):  # fmt: skip
        calls.append({"dtypes": {t.dtype for t in (rows, weight, bias)}, "gradients": compute_gradients,
                      "of weight": weight_requires_grad, "chunk": chunk_mem_const})  # fmt: skip
        assert (reduction, accum_dtype, return_predicted_tokens) == ("none", torch.float32, True)
        with torch.enable_grad():
            given = [tensor.detach().float().requires_grad_() for tensor in (rows, weight, bias)]
            logits = F.linear(*given)
            nll = F.cross_entropy(logits, target, reduction="none")
            scale = torch.ones_like(nll) if token_grad_output is None else token_grad_output
            gradients = torch.autograd.grad((nll * scale).sum(), given)
        return nll.detach(), None, None, logits.argmax(1), *gradients

    monkeypatch.setattr(liger, "_function", lambda: function)
    return calls


@pytest.mark.parametrize("needed", [(True, True, True), (True, False, True), (False, True, False), (False, False, False)])
@pytest.mark.parametrize("scale", [None, torch.linspace(-1, 2, ROWS)], ids=["sum", "weighted"])
def test_the_gradients_that_are_needed(asked, needed, scale):
    rows, weight, bias, gold = inputs()
    given = [tensor.clone().requires_grad_() for tensor in (rows, weight, bias)]
    logits = F.linear(*given)
    expected = F.cross_entropy(logits, gold, reduction="none")
    (expected * (1 if scale is None else scale)).sum().backward()
    nll, correct, gradients = liger.fused_loss(rows, weight, bias, gold, needed=needed, scale=scale, logits_a_chunk=125)
    torch.testing.assert_close(nll, expected.detach())
    assert correct.tolist() == logits.argmax(1).eq(gold).tolist()
    for found, is_needed, right in zip(gradients, needed, given, strict=True):
        torch.testing.assert_close(found, right.grad) if is_needed else None
        assert is_needed or found is None
    # 125 logits for 5 rows: 25 for each, of 2 * 3 numbers
    assert asked == [{"dtypes": {torch.float32}, "gradients": any(needed), "of weight": needed[1], "chunk": 4}]


def test_products_are_of_the_rows_type_and_a_chunk_has_a_row(asked):
    rows, weight, bias, gold = inputs()
    liger.fused_loss(rows.bfloat16(), weight, bias, gold, needed=(True,) * 3, scale=None, logits_a_chunk=1)
    assert asked[0]["dtypes"] == {torch.bfloat16} and asked[0]["chunk"] == 1


def test_only_the_plain_loss_is_its(asked, monkeypatch):
    """It can't smooth labels and draw tokens at once with its loss; memory is that of four chunks of a CPU."""
    monkeypatch.setattr(liger, "serves", lambda rows: True)
    monkeypatch.setattr(module, "LOGITS_A_CHUNK", 40)
    rows, weight, bias, gold = inputs()
    rows.requires_grad_()
    smoothed_loss(rows, weight, bias, gold, smoothing=0.1)
    assert drawn_loss(rows, weight, bias, gold, draw=lambda p, place: p.argmax(1))[2].shape == (ROWS,) and not asked
    nll, correct = masked_loss(rows, weight, bias, gold)
    torch.testing.assert_close(nll, F.cross_entropy(F.linear(rows, weight, bias), gold, reduction="none"))
    assert correct.dtype == torch.bool
    assert asked == [{"dtypes": {torch.float32}, "gradients": True, "of weight": False, "chunk": 4 * 40 // (2 * 15)}]


class Rows:
    """Rows of a GPU."""

    is_cuda, dtype = True, torch.bfloat16

    def __init__(self, count=7, **others):
        self.count = count
        vars(self).update(others)

    def __len__(self):
        return self.count


@pytest.mark.parametrize("rows, installed, expected", [
    (Rows(), True, True), (Rows(dtype=torch.float32), True, True), (Rows(1), True, True), (Rows(), False, False),
    (Rows(dtype=torch.float16), True, False), (Rows(is_cuda=False), True, False), (Rows(0), True, False),
])  # fmt: skip
def test_which_rows_are_its(monkeypatch, rows, installed, expected):
    monkeypatch.setattr(liger, "_function", lambda: masked_loss if installed else None)
    assert liger.serves(rows) is expected


def test_the_function_that_is_taken(monkeypatch, caplog):
    ops = ModuleType("liger_kernel.ops.fused_linear_cross_entropy")

    def function(
        _input, weight, target, bias=None, ce_weight=None, reduction="mean", accum_dtype=None, return_predicted_tokens=False,
        compute_gradients=True, weight_requires_grad=True, token_grad_output=None, chunk_mem_const=1,
    ):  # fmt: skip
        pass

    ops.fused_linear_cross_entropy_forward = function
    for name, replacement in {"liger_kernel": ModuleType("liger_kernel"), "liger_kernel.ops": ModuleType("ops"),
                              ops.__name__: ops}.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, replacement)
    assert liger._function.__wrapped__() is function and not [r for r in caplog.records if r.levelname == "WARNING"]
    monkeypatch.setitem(sys.modules, ops.__name__, None)
    assert liger._function.__wrapped__() is None
