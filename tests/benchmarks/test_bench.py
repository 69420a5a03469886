# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""bench.py's figures: that they are there and fit together; how large they are is no test's business."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from conftest import REPOSITORY, error_line
from support.exported import LINES, make_translation
from support.here import run_here

from veco_fairseq.arguments import Parser
from veco_fairseq.benchmarks import comparison, kernels, turns
from veco_fairseq.benchmarks.softmax import due_rows
from veco_fairseq.benchmarks.systems import Memory, Search, with_fairseq, with_generate, with_transformers
from veco_fairseq.checkpoints.bart import export_translation
from veco_fairseq.checkpoints.huggingface import import_transformers
from veco_fairseq.checkpoints.translation import read_translation
from veco_fairseq.commands import bench
from veco_fairseq.data.sentencepiece import load_sentencepiece


@pytest.fixture
def in_forks(monkeypatch, request):
    """The jobs of a measurement run in forks, which need no seconds to import; of test_pretrain, the first has its own process."""
    own = [None] * getattr(request, "param", 0)
    start = subprocess.run

    def run(command, *, stdout, text):
        if own:
            own.pop()
            return start(command, stdout=stdout, text=text)
        result = run_here([str(REPOSITORY / "scripts/bench.py"), *command[command.index("bench") + 1 :]], REPOSITORY)
        sys.stderr.write(result.stderr)
        return result

    monkeypatch.setattr(turns.subprocess, "run", run)
    monkeypatch.setattr(comparison, "matmul_rate", partial(comparison.matmul_rate, seconds=0.02))


@pytest.mark.parametrize("words, threads", [(["--threads", "3"], 3), ([], None)])
def test_threads_are_those_asked_for(monkeypatch, words, threads):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(kernels, "head", lambda args: {})
    parser = Parser()
    bench.add_arguments(parser)
    bench.main(parser.parse_args(["head", *words]))
    assert asked == [threads] * (threads is not None)


PRETRAIN = "--arch veco_tiny --vocabulary 300 --tokens 64 --length 8 --updates 1 --rounds 1 --device cpu".split()


@pytest.mark.parametrize("in_forks", [1], indirect=True)
def test_pretrain(run, tmp_path, in_forks):
    result = run("scripts/bench.py", "pretrain", *PRETRAIN, "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert figures["options"]["arch"] == "veco_tiny" and figures["options"]["tokens"] == 64
    ours, peer = figures["camlm"], figures["fairseq masked_lm"]
    assert ours["tokens"] == 2 * peer["tokens"] == 128  # a monolingual and a bitext batch
    # The same encoder; cross-attention is ours alone, and fairseq's RoBERTa is of today's sizes otherwise.
    assert ours["operations"] > 4 * peer["operations"] and ours["parameters"] > peer["parameters"]
    for figure in (ours, peer):
        assert figure["rate"] == pytest.approx(figure["operations"] / figure["seconds"])
        assert figure["mfu"] == pytest.approx(figure["rate"] / figures["matmul_rate"]["fp32"])
    assert figures["ratios"]["fairseq masked_lm"] == pytest.approx(ours["rate"] / peer["rate"])
    assert "operations a second, camlm to fairseq masked_lm: " in result.stdout


def test_profile_of_pretraining(run, tmp_path, in_forks):
    result = run("scripts/bench.py", "pretrain", *PRETRAIN, "--profile", "--json", tmp_path / "profile.json")
    shares = {key: value for key, value in json.loads((tmp_path / "profile.json").read_text()).items() if key != "options"}
    assert result.stdout.splitlines()[1].endswith(max(shares, key=shares.get)) and "aten::mm" in shares
    assert sum(shares.values()) == pytest.approx(1)


def test_transformers_trains_the_same_model(run, tmp_path, in_forks):
    """Its useful operations are those of fairseq's model, which multiplies the masked rows alone."""
    pytest.importorskip("transformers")
    result = run("scripts/bench.py", "pretrain", *PRETRAIN, "--autocast", "bf16", "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    fairseq, other = (figures[name] for name in ("fairseq masked_lm", "transformers XLMRobertaForMaskedLM"))
    assert other["parameters"] == fairseq["parameters"] + 192  # of the one type of token
    assert other["tokens"] == fairseq["tokens"]
    assert other["operations"] == pytest.approx(fairseq["operations"], rel=0.02)
    assert other["mfu"] == pytest.approx(other["rate"] / figures["matmul_rate"]["bf16"])


def test_finetune(run, tmp_path, in_forks):
    pytest.importorskip("transformers")
    options = "--arch veco_mt_tiny --decoder-layers 1 --vocabulary 300 --tokens 64 --length 8 --updates 1 --rounds 1 --device cpu"
    result = run("scripts/bench.py", "finetune", *options.split(), "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    ours, fairseq, other = (figures[name] for name in ("fairseq with veco_fairseq", "fairseq", "transformers BART"))
    assert ours["tokens"] == 64 and ours["parameters"] == fairseq["parameters"] == pytest.approx(other["parameters"], rel=0.01)
    assert ours["operations"] == pytest.approx(fairseq["operations"], rel=0.02) == pytest.approx(other["operations"], rel=0.02)
    assert figures["ratios"]["fairseq"] == pytest.approx(ours["rate"] / fairseq["rate"])
    result = run("scripts/bench.py", "finetune", "--arch", "veco_tiny")
    assert "--arch veco_tiny: is no translation model and no veco_nlu_*; translation models are veco_mt_base, " in error_line(
        result
    )


def test_finetune_of_understanding(run, tmp_path, in_forks):
    pytest.importorskip("transformers")
    options = "--arch veco_nlu_tiny --vocabulary 300 --tokens 64 --length 8 --updates 1 --rounds 1 --device cpu".split()
    result = run("scripts/bench.py", "finetune", *options, "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    ours, fairseq, other = (figures[name] for name in ("veco_nlu", "fairseq RoBERTa", "transformers XLM-R"))
    head = 192**2 + 192 + 2 * 192 + 300  # fairseq's RoBERTa keeps its LM head
    assert ours["tokens"] == 64 and ours["parameters"] == fairseq["parameters"] - head == pytest.approx(
        other["parameters"], rel=0.01
    )
    assert ours["operations"] == pytest.approx(fairseq["operations"], rel=0.02) == pytest.approx(other["operations"], rel=0.02)
    assert figures["ratios"]["transformers XLM-R"] == pytest.approx(ours["rate"] / other["rate"])
    assert "has no decoder: leave it out" in error_line(run("scripts/bench.py", "finetune", *options, "--decoder-layers", 2))
    wrong = run("scripts/bench.py", "finetune", "--arch", "veco_nlu_huge")
    assert "--arch veco_nlu_huge: there is veco_nlu_base, " in error_line(wrong)


def test_knn(run, tmp_path, in_forks):
    options = "--arch veco_tiny --vocabulary 300 --tokens 64 --length 8 --updates 1 --rounds 1 --device cpu".split()
    result = run(
        "scripts/bench.py",
        "knn",
        *options,
        "--neighbours",
        "2",
        "--refresh",
        "5",
        "--rest",
        "9",
        "--json",
        tmp_path / "bench.json",
    )
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    plain, fused, few = (figures[name] for name in ("full softmax", "fused full softmax", "k-NN, k 2"))
    assert 0 < few["due"] < few["vocabulary"] < 300
    assert few["speed to fused full softmax"] == pytest.approx(fused["seconds"] / few["seconds"])
    assert plain["speed to full softmax"] == 1


def test_rows_that_are_made_anew_at_an_update():
    # Against a long run: 40 targets an update, each row used for 20 updates, 495 tokens whose r-th is as frequent as 1 / r.
    rng = np.random.default_rng(1)
    made_at, made = np.full(496, -20), []
    for update in range(2000):
        targets = np.unique(np.exp(rng.uniform(0, np.log(496), 40)).astype(int))
        old = targets[update - made_at[targets] >= 20]
        made_at[old] = update
        made.append(len(old))
    assert due_rows(40, 500, 20) == pytest.approx(np.mean(made[200:]), rel=0.02)


@pytest.mark.slow
def test_data(run, tmp_path):
    options = "--arch veco_tiny --vocabulary 300 --tokens 256 --length 16 --updates 2 --rounds 1 --device cpu".split()
    result = run("scripts/bench.py", "data", *options, "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert figures["ratio"] == pytest.approx(figures["a loader"] / figures["camlm"])


@pytest.mark.slow
def test_start(run, tmp_path):
    options = "--languages 2 --pairs 3 --sentences 120000 --rounds 1 --device cpu".split()
    result = run("scripts/bench.py", "start", *options, "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    sentences = 120_000 + 60_000 + 2 * (120_000 + 60_000 + 40_000)  # more memory than Python may have had before
    assert figures["start"]["sentences"] == sentences and figures["start"]["sizes_bytes"] == 4 * sentences
    assert set(figures["inspect"]) == {"seconds", "peak_bytes"}
    assert "620,000 sentences: " in result.stdout and "inspect_data.py: " in result.stdout
    assert 0 < figures["start"]["own_bytes"] <= figures["start"]["peak_bytes"]
    result = run("scripts/bench.py", "start", *options, "--no-inspect")
    assert result.returncode == 0 and "620,000 sentences: " in result.stdout and "inspect" not in result.stdout


@pytest.mark.slow
def test_read(run, tmp_path):
    options = "--arch veco_tiny --vocabulary 1000 --rounds 1 --device cpu".split()
    result = run("scripts/bench.py", "read", *options, "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    seconds = {job: figures[job]["seconds"] for job in ("torch.load", "CRC-32", "NaN, infinity", "read_checkpoint")}
    checks = seconds["CRC-32"] + seconds["NaN, infinity"]
    assert figures["ratio"] == pytest.approx(checks / seconds["torch.load"]) and seconds["read_checkpoint"] > 0
    assert "both checks take" in result.stdout


@pytest.mark.slow
def test_head(run):
    options = "--rows 64 --plain-rows 32 --dim 8 --vocabulary 100 --rounds 1 --device cpu".split()
    result = run("scripts/bench.py", "head", *options)
    assert result.returncode == 0 and "speed at 32 rows, ours to plain: " in result.stdout


def test_failed_job_is_told_in_a_line(run):
    result = run("scripts/bench.py", "pretrain", "--arch", "veco_huge", "--rounds", "1", "--device", "cpu")
    assert "--arch veco_huge: there is veco_" in error_line(result)


@pytest.mark.slow
def test_attention(run):
    options = "--arch veco_tiny --tokens 64 --lengths 8 16 --rounds 1 --device cpu".split()
    result = run("scripts/bench.py", "attention", *options)
    assert result.returncode == 0, result.stderr
    head, *rows = result.stdout.splitlines()
    assert "fairseq, bf16" in head and [row.split()[0] for row in rows] == ["8", "16"]


def test_systems_translate_alike(tmp_path, make_model):
    """Of a model in a folder whose name has a space."""
    tmp_path = tmp_path / "a space"
    tmp_path.mkdir()
    checkpoint = make_translation(tmp_path, make_model, updates=40)
    export_translation(read_translation(checkpoint), tmp_path / "hf")
    pieces, search = load_sentencepiece(tmp_path / "sentencepiece.bpe.model"), Search(1, 200, beam=3, batch_size=7)
    how = {"search": search, "device": "cpu"}
    found = [system(checkpoint, tmp_path, pieces, LINES, **how) for system in (with_generate, with_fairseq)]
    if import_transformers() is not None:
        found.append(with_transformers(tmp_path / "hf", LINES, **how))
    assert len(set(found[0]["translations"])) > 15
    for one in found:
        assert one["translations"] == found[0]["translations"] and one["sentences"] == 45 and one["memory"] >= 0
    assert ["latency" in one for one in found] == [False, True, True][: len(found)]


def test_memory_is_what_is_taken_from_then_on():
    first = np.ones(20_000_000)  # 160 MB
    memory = Memory()
    assert memory.taken() < 20_000_000
    del first
    second = np.ones(10_000_000)
    assert 0 <= memory.taken() < 120_000_000 and len(second)


@pytest.mark.slow
def test_generate_with_a_trained_model(run, tmp_path, make_model):
    """Every system gives the translations of fairseq-generate, which comes first."""
    pytest.importorskip("ctranslate2")
    checkpoint = make_translation(tmp_path, make_model, updates=40)
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in LINES))
    options = ["--checkpoint", checkpoint, "--data", tmp_path, "--sentencepiece", tmp_path / "sentencepiece.bpe.model"]
    options += ["--source", tmp_path / "source", "--reference", tmp_path / "source", "--rounds", "1", "--device", "cpu"]
    result = run("scripts/bench.py", "generate", *options, "--quantization", "float32", "--json", tmp_path / "bench.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())[str(checkpoint)]
    systems = ["fairseq-generate", "veco translate", "CTranslate2 float32"]
    assert list(figures) == systems + ["transformers"] * (import_transformers() is not None)
    assert [found["other"] for found in figures.values()] == [0] * len(figures)
    assert figures["fairseq-generate"]["ratio"] == 1 and "latency" not in figures["fairseq-generate"]
    assert len({found["bleu"]["score"] for found in figures.values()}) == 1
    table = [line.split() for line in result.stdout.splitlines()[-len(figures) :]]
    assert [row[-1] for row in table] == ["0"] * len(figures)


def test_generate(run, tmp_path, in_forks):
    pytest.importorskip("ctranslate2")
    options = "--arch veco_tiny --decoder-layers 2 --vocabulary 60 --sentences 3 --length 5 --rounds 1".split()
    options += ["--quantization", "float32", "--device", "cpu", "--json", str(tmp_path / "bench.json")]
    result = run("scripts/bench.py", "generate", *options)
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    fairseq, other = figures["veco_tiny, 2 decoder layers, random weights"].values()
    assert fairseq["ratio"] == 1 and fairseq["other"] == 0
    assert other["ratio"] == pytest.approx(other["sentences_a_second"] / fairseq["sentences_a_second"])
    assert "give all of them, or none" in error_line(run("scripts/bench.py", "generate", "--data", tmp_path))
