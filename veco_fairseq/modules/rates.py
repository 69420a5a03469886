# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How fast a device multiplies matrices, and whether bf16 is faster than fp32 on this processor."""

import time

import torch


def matmul_rate(rows: int, inner: int, columns: int, *, dtype: torch.dtype, device: str, seconds: float = 1.0) -> float:
    """The best rate of this machine at a product of this shape, in operations a second."""
    a = torch.randn(rows, inner, dtype=dtype, device=device)
    b = torch.randn(inner, columns, dtype=dtype, device=device)
    a @ b  # the first one also prepares the others
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < seconds:
        begun, done = time.perf_counter(), 0
        for _ in range(5):
            a @ b
            done += 1
            if time.perf_counter() - begun > seconds:
                break
        wait(device)
        best = min(best, (time.perf_counter() - begun) / done)
    return 2 * rows * inner * columns / best


def wait(device: str) -> None:
    """Until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def bf16_on_cpu() -> tuple[bool, str]:
    """Return whether bf16 makes the matrix products of this processor faster, and the two rates as text; takes 0.2 to 1 s.

    Instructions alone do not tell: with avx512_bf16 but without AMX, AMD's processors are two to four times as fast as
    in fp32, and Intel's half as fast. One thread is measured, because others wait for each other where a core is busy.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        best = {torch.float32: 0.0, torch.bfloat16: 0.0}
        with torch.random.fork_rng(devices=()):
            for dtype in 4 * list(best):  # in turn, because a core can be slow for a moment
                best[dtype] = max(best[dtype], matmul_rate(512, 256, 1024, dtype=dtype, device="cpu", seconds=0.02))
                if dtype == torch.bfloat16 and 10 * best[dtype] < best[torch.float32]:
                    break  # it is emulated: a product of it takes as long as all of those in fp32
    finally:
        torch.set_num_threads(threads)
    fp32, bf16 = best.values()
    return bf16 > fp32, f"on one core, matrix products have {bf16 / 1e9:,.0f} GFLOP/s in bf16 and {fp32 / 1e9:,.0f} in fp32"
