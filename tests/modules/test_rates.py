# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which precision is faster on this processor."""

import pytest
import torch

from veco_fairseq.modules import rates


@pytest.mark.parametrize("fp32, bf16, pays, told, rounds", [
    ([1e9, 209e9, 3e9, 2e9], [110e9, 5e9, 6e9, 7e9], False, "have 110 GFLOP/s in bf16 and 209 in fp32", 4),
    ([1e9, 2e9, 3e9, 99e9], [5e9, 6e9, 7e9, 1234e9], True, "have 1,234 GFLOP/s in bf16 and 99 in fp32", 4),
    ([19e9, 41e9, 99e9, 99e9], [2e9, 4e9, 99e9, 999e9], False, "have 4 GFLOP/s in bf16 and 41 in fp32", 2),
])  # fmt: skip
def test_which_precision_is_faster(monkeypatch, fp32, bf16, pays, told, rounds):
    """By the best of four turns each, or fewer where one is ten times as fast; random numbers and threads are as before."""
    turns, before = {torch.float32: iter(fp32), torch.bfloat16: iter(bf16)}, torch.get_num_threads()
    seen = []

    def rate(rows, inner, columns, *, dtype, device, seconds):
        seen.append((dtype, device, torch.get_num_threads()))
        torch.randn(rows)
        return next(turns[dtype])

    monkeypatch.setattr(rates, "matmul_rate", rate)
    torch.set_num_threads(2)
    torch.manual_seed(5)
    expected = torch.Generator().manual_seed(5)
    try:
        assert rates.bf16_on_cpu() == (pays, f"on one core, matrix products {told}")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == rounds * [(torch.float32, "cpu", 1), (torch.bfloat16, "cpu", 1)]
    assert torch.equal(torch.rand(3), torch.rand(3, generator=expected))
