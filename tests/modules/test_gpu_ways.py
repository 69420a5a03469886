# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Where the modules compute as on a GPU, and how many rows have their logits in memory."""

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout

from veco_fairseq.modules import masked_loss as module
from veco_fairseq.modules.device import as_on_a_gpu, on_cpu
from veco_fairseq.modules.embedding import look_up
from veco_fairseq.modules.masked_loss import masked_loss, rows_a_chunk
from veco_fairseq.modules.nearest import ROWS_A_BLOCK
from veco_fairseq.modules.token_sampler import PROBABILITIES_A_PART


def test_a_gpu_is_pretended_within_the_block_alone():
    here = torch.ones(1)
    assert on_cpu(here) and not on_cpu(torch.ones(1, device="meta"))
    with as_on_a_gpu():
        assert not on_cpu(here)
        with as_on_a_gpu(False):
            assert on_cpu(here)
        assert not on_cpu(here)
    with suppress(KeyError), as_on_a_gpu():
        raise KeyError
    assert on_cpu(here)


@pytest.mark.parametrize("rows, dtype, for_cpu, expected", [
    # 2^27 logits are 536 rows of XLM-R's vocabulary. 1,000 rows are two chunks.
    (1000, torch.float32, True, 500), (536, torch.float32, True, 536), (537, torch.float32, True, 269),
    # In 16 bits there are three times as many, but 1,536 at most; on a GPU four times as many.
    (1536, torch.bfloat16, True, 1536), (1537, torch.bfloat16, True, 769), (2144, torch.bfloat16, False, 2144),
    (2145, torch.float32, False, 1073), (9000, torch.float32, False, 1800), (1, torch.float32, True, 1), (0, torch.float32, True, 1),
])  # fmt: skip
def test_rows_of_a_chunk_by_hand(rows, dtype, for_cpu, expected):
    assert rows_a_chunk(rows, 250_002, dtype, for_cpu=for_cpu) == expected


@pytest.mark.parametrize("parts", [PROBABILITIES_A_PART, {name: 1024 * rows for name, rows in ROWS_A_BLOCK.items()}])
def test_what_is_computed_at_a_time_fits_in_memory_and_is_worth_a_call(parts):
    """Numbers of four bytes: on a CPU from 4 to 16 MiB, on a GPU 16 times as many or more, and never a GiB."""
    assert set(parts) == {"cpu", "cuda"}
    assert 2**20 <= parts["cpu"] <= 2**22 and 16 * parts["cpu"] <= parts["cuda"] <= 2**28


def test_a_chunk_has_a_row_however_many_tokens_there_are():
    assert rows_a_chunk(5, 2**27 + 1, torch.float32, for_cpu=True) == 1
    assert rows_a_chunk(5, 2**29 + 1, torch.float32, for_cpu=False) == 1 == rows_a_chunk(5, 2**29, torch.float32, for_cpu=True)
    assert rows_a_chunk(5, 2**25, torch.float32, for_cpu=True) == 3
    assert rows_a_chunk(4000, 10, torch.float32, for_cpu=True) == 1334  # 1,536 at most


@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
def test_the_loss_of_a_gpu_is_that_of_a_cpu(monkeypatch, autocast):
    """... by a copy of the weight, where numbers of 16 bits need it to be read fast."""
    found, asked, aligned = [], [], module.aligned
    monkeypatch.setattr(module, "LOGITS_A_CHUNK", 50)
    monkeypatch.setattr(module, "aligned", lambda *given: asked.append(given[2]) or aligned(*given))
    for pretend in (False, True):
        torch.manual_seed(1)
        parameters = [torch.randn(*shape, requires_grad=True) for shape in ((23, 16), (50, 16), (50,))]
        gold = torch.randint(50, (23,))
        with as_on_a_gpu(pretend), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            nll, correct = masked_loss(*parameters, gold)
            (2.5 * nll).sum().backward()
        found.append((nll.detach(), correct.float(), *(p.grad for p in parameters)))
    assert asked == [torch.bfloat16] * autocast
    for cpu, gpu in zip(*found, strict=True):
        assert cpu.shape == gpu.shape and gpu.dtype == torch.float32
        assert (gpu - cpu).norm() <= (0.01 if autocast else 1e-6) * cpu.norm()


def test_a_frequent_tokens_gradient_is_not_lost_in_16_bits():
    """1,000 occurrences of 1: one by one in bf16, they would end at 256."""
    table = torch.zeros(4, 2, dtype=torch.bfloat16, requires_grad=True)
    rows, again = look_up(table, torch.tensor([[3] * 1000, [1] * 1000]))
    (rows.sum() + 8 * again.sum()).backward()
    assert table.grad.dtype == torch.bfloat16 and table.grad[:, 0].tolist() == [8, 1008, 8, 1008]


@pytest.mark.parametrize("p, dropped", [(0.1, 6554), (0.25, 16384), (1.5 / 2**16, 2), (1 - 2**-16, 65535)])
def test_the_probability_is_exact_to_a_16_bit_number(monkeypatch, p, dropped):
    """Of the numbers from -2^15 to 2^15 - 1, once each."""
    numbers = np.arange(-(2**15), 2**15, dtype=np.int16).view(np.uint64)
    monkeypatch.setattr(np.random, "SFC64", lambda _: SimpleNamespace(random_raw=lambda count: numbers[:count]))
    found = FairseqDropout(p)(torch.ones(2**16))
    assert int(found.eq(0).sum()) == dropped
    assert found.max().item() == pytest.approx(2**16 / (2**16 - dropped))


def test_dropout_in_inference_is_where_it_is_asked_for():
    """As by --retain-dropout."""
    module = FairseqDropout(0.5).eval()
    assert module(torch.ones(99)).eq(1).all()
    module.apply_during_inference = True
    torch.manual_seed(1)
    assert set(module(torch.ones(99)).tolist()) == {0, 2}
