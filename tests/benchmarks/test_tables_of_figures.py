# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What bench.py prints of rounds whose figures are made up: medians, the largest memory, ratios by round, and units."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from veco_fairseq.benchmarks import comparison, generation, kernels, loading, reading, softmax

GIB = 2**30


@pytest.fixture
def rounds(monkeypatch):
    """Makes the jobs give these figures; tells which jobs were asked for, with their commands, and how often."""
    asked = []

    def rounds(module, **of_jobs):
        def in_turn(jobs, count, peers=()):
            asked.append((jobs, count, list(peers)))
            return {name: of_jobs[name.replace(" ", "_").replace(",", "")] for name in jobs if "write" not in jobs}

        monkeypatch.setattr(module, "in_turn", in_turn)
        return asked

    return rounds


def columns(seconds, **others):
    """Rounds with these seconds, and of the others one value each."""
    return [{"seconds": s, **{key: values[place] for key, values in others.items()}} for place, s in enumerate(seconds)]


@pytest.mark.parametrize("device, autocast, mfu", [
    ("cpu", "none", [0.05, 0.02, 0.025]), ("cpu", "bf16", [0.01, 0.02, 0.005]), ("cuda", "bf16", [0.01, 0.004, 0.005]),
])  # fmt: skip
def test_trainings_are_compared_round_by_round(rounds, monkeypatch, capsys, device, autocast, mfu):
    monkeypatch.setattr(comparison, "import_transformers", lambda: True)
    # Before and after the rounds: the best counts.
    rates = {torch.float32: iter([1e11, 7e10]), torch.bfloat16: iter([2e11, 5e11])}
    monkeypatch.setattr(comparison, "matmul_rate", lambda *shape, dtype, device: next(rates[dtype]))
    same = {"operations": [2e10] * 3, "tokens": [3000] * 3, "parameters": [7] * 3}
    asked = rounds(
        comparison,
        a=columns([4.0, 2.0, 5.0], peak_bytes=[GIB, 3 * GIB, 2 * GIB], **same),
        b=columns([10.0, 8.0, 30.0], peak_bytes=[GIB] * 3, **same),
        c=columns([2.0, 8.0, 15.0], peak_bytes=[GIB] * 3, **same),
    )
    args = Namespace(command="pretrain", tokens=64, rounds=3, device=device, autocast=autocast)
    found = comparison.compared(args, ("a", "b", "c"), Namespace(encoder_embed_dim=8, encoder_ffn_embed_dim=32))
    ((jobs, count, peers),) = asked
    assert (list(jobs), count, list(peers)) == (["a", "b", "c"], 3, ["b", "c"])
    assert [found[name]["seconds"] for name in "abc"] == [4, 10, 8] and found["a"]["peak_bytes"] == 3 * GIB
    assert [found[name]["mfu"] for name in "abc"] == pytest.approx(mfu)
    assert found["ratios"] == {"b": 4, "c": 3}  # of 2.5, 4 and 6; of 0.5, 4 and 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["matrix products (64 x 8 x 32), fp32: 100 GFLOP/s", "matrix products (64 x 8 x 32), bf16: 500 GFLOP/s"]
    assert lines[3].split() == ["a", "4.00", "0.02", "5", f"{mfu[0]:.1%}", "750", "3.00"]
    assert lines[6] == "operations a second, a to b: 4.00 (by round: 2.50, 4.00, 6.00)"


def test_a_comparison_without_transformers(rounds, monkeypatch):
    monkeypatch.setattr(comparison, "import_transformers", lambda: None)
    monkeypatch.setattr(comparison, "matmul_rate", lambda *shape, dtype, device: 1e11)
    one = columns([1.0], operations=[1], tokens=[1], parameters=[1], peak_bytes=[1])
    rounds(comparison, a=one, b=one)
    args = Namespace(command="pretrain", tokens=64, rounds=1, device="cpu", autocast="none")
    found = comparison.compared(args, ("a", "b", "c"), Namespace(encoder_embed_dim=8, encoder_ffn_embed_dim=32))
    assert found.keys() == {"matmul_rate", "a", "b", "ratios"}


def test_reading(rounds, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(reading, "read_checkpoint", lambda path: None)  # the file of this test is none
    path = tmp_path / "a.pt"
    path.write_bytes(bytes(20_000_000))
    jobs = {
        "torch.load": [4.0, 2.0, 9.0],
        "CRC-32": [0.5, 9.0, 1.0],
        "NaN_infinity": [3.0, 2.0, 1.0],
        "read_checkpoint": [7.0] * 3,
    }
    rounds(reading, **{job: columns(seconds, cpu_seconds=[1.0, 6.0, 5.0]) for job, seconds in jobs.items()})
    found = reading.read(Namespace(command="read", job=None, file=path, arch="x", rounds=3))
    assert (
        found["torch.load"] == {"seconds": 4, "cpu_seconds": 5} and found["ratio"] == (1 + 2) / 4 and found["gigabytes"] == 0.02
    )
    head, first, *_, last = capsys.readouterr().out.splitlines()
    assert head == "0.02 GB, median of 3 rounds: seconds, and those of all processors together"
    assert first.split() == ["torch.load", "4.00", "5.00"]
    assert last == "both checks take 0.75 times as long as torch.load alone"


def test_softmaxes(rounds, capsys):
    peak = {"peak_bytes": [GIB, 5 * GIB // 2, 9 * GIB]}
    more = {"vocabulary": [9000, 8000, 1000], "due": [30, 10, 1200], "look_up_seconds": [0.5, 0.25, 0.1]}
    rounds(softmax, full_softmax=columns([12.0, 4.0, 9.0], **peak), fused_full_softmax=columns([6.0, 5.0, 3.0], **peak),
           **{"k-NN_k_5": columns([3.0, 1.0, 1.0], **peak, **more)})  # fmt: skip
    found = softmax.knn(Namespace(command="knn", job=None, arch="veco_tiny", neighbours=[5], rounds=3))
    assert found["fused full softmax"]["speed to full softmax"] == 2  # of 2, 0.8 and 3
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["full", "softmax", "9.00", "1.00x", "0.50x", "2.50"]  # of 0.5, 1.25 and 1 / 3
    assert lines[3] == ["k-NN,", "k", "5", "1.00", "4.00x", "3.00x", "2.50", "8,000", "30", "25.0%"]


def test_loaders_and_trainings(rounds, capsys):
    rounds(loading, camlm=columns([2.0, 1.0, 4.0], tokens=[4000] * 3), a_loader=columns([1.0, 0.5, 0.1], tokens=[5000] * 3))
    found = loading.data(Namespace(command="data", job=None, arch="veco_tiny", rounds=3))
    assert found == {"camlm": 2000, "a loader": 10_000, "ratio": 5}
    assert [line.split() for line in capsys.readouterr().out.splitlines()[:2]] == [
        ["camlm", "2,000", "tokens/s"], ["a", "loader", "10,000", "tokens/s"]
    ]  # fmt: skip


def test_the_start_of_a_training(rounds, capsys):
    sizes = {
        "sentences": [1500] * 3,
        "peak_bytes": [2_000_000_000, 1, 1],
        "own_bytes": [30_000_000] * 3,
        "sizes_bytes": [6_000_000] * 3,
    }
    asked = rounds(
        loading, start=columns([3.0, 1.0, 2.0], **sizes), inspect=columns([5.0, 70.0, 6.0], peak_bytes=[8_000_000] * 3)
    )
    args = Namespace(command="start", job=None, root=None, rounds=3, no_inspect=False, languages=2)
    loading.start(args)
    assert [(list(jobs), count) for jobs, count, _ in asked] == [(["write"], 1), (["start", "inspect"], 3)]
    assert capsys.readouterr().out.splitlines()[1:] == [
        "1,500 sentences: 2.0 s, 2,000 MB with the index files that are mapped, 30 MB of the process's own "
        "(6 MB are the sentences' sizes)",
        "inspect_data.py: 6.0 s, 8 MB",
    ]


def test_heads(rounds, capsys):
    peak = {"peak_bytes": [10_000_000, 30_000_000, 20_000_000]}
    asked = rounds(kernels, chunked_80_rows=columns([8.0, 9.0, 1.0], **peak), chunked_20_rows=columns([2.0, 4.0, 9.0], **peak),
                   plain_20_rows=columns([5.0, 6.0, 7.0], **peak))  # fmt: skip
    found = kernels.head(Namespace(command="head", job=None, rows=80, plain_rows=20, rounds=3))
    assert found["ratio"] == 6 / 4 and found["chunked, 80 rows"] == {"seconds": 8, "peak_bytes": 30_000_000}
    words = [" ".join(map(str, command)) for command in asked[0][0].values()]
    assert ["--rows 80" in words[0], "--rows 20" in words[1], "--rows 20" in words[2]] == [True] * 3
    assert ["--job chunked" in line for line in words] == [True, True, False] and "--job plain" in words[2]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=3)[3] == "8.00 s    0.03 GB beyond inputs, weights and gradients"
    assert lines[3] == "speed at 20 rows, ours to plain: 1.50"


def test_heads_of_as_many_rows_as_the_plain_one(rounds, capsys):
    rounds(kernels, chunked_20_rows=columns([2.0, 4.0], peak_bytes=[1, 1]), plain_20_rows=columns([6.0, 6.0], peak_bytes=[1, 1]))
    found = kernels.head(Namespace(command="head", job=None, rows=20, plain_rows=20, rounds=2))
    assert found["ratio"] == 2 and capsys.readouterr().out.splitlines()[-1] == "speed at 20 rows, ours to plain: 2.00"


def test_attention_is_told_in_milliseconds(monkeypatch, capsys):
    monkeypatch.setattr(kernels, "attention_seconds", lambda length, args: {"ours, fp32": length / 4000, "fairseq, fp32": 0.5})
    assert kernels.attention(Namespace(lengths=[8, 16])) == {
        "8": {"ours, fp32": 0.002, "fairseq, fp32": 0.5}, "16": {"ours, fp32": 0.004, "fairseq, fp32": 0.5}
    }  # fmt: skip
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3 and lines[1:] == [["8", "2.0", "500.0"], ["16", "4.0", "500.0"]]


def test_translators(capsys, tmp_path):
    (tmp_path / "reference").write_text("a b c d e\nf\n")
    first = columns([1.0, 2.0, 4.0], sentences=[8] * 3, memory=[2**20] * 3, translations=[["a b c d e", "f"]] * 3)
    other = columns([0.5, 4.0, 1.0], sentences=[8] * 3, memory=[2**21, 2**23, 2**22], latency=[0.02, 0.01, 0.4],
                    translations=[["a b c d e", "g"], ["", ""], ["", ""]])  # fmt: skip
    args = Namespace(reference=Path(tmp_path / "reference"), lang="de")
    found = generation.generate_table("title", {"x": first, "y": other}, args)
    assert found["y"]["ratio"] == 2  # of 2, 0.5 and 4
    assert found["x"]["bleu"]["score"] > found["y"]["bleu"]["score"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "title" and "of x" in lines[1]
    assert lines[2].split() == ["x", "4.00", "1.00", "1", "100.00", "0"]
    bleu = f"{found['y']['bleu']['score']:.2f}"
    assert lines[3].split() == ["y", "8.00", "2.00", "20", "8", bleu, "1"]
    generation.generate_table("title", {"x": first}, Namespace(reference=None))
    assert capsys.readouterr().out.splitlines()[2].split() == ["x", "4.00", "1.00", "1", "0"]
