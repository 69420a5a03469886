# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What one job of a benchmark makes and measures, by a clock that the test turns on."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDataset

from veco_fairseq.benchmarks import generation, kernels, loading, reading
from veco_fairseq.checkpoints.integrity import WrongBytes
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.errors import UserError
from veco_fairseq.modules.masked_loss import masked_loss


@pytest.fixture
def clock(monkeypatch):
    """Of a module: the times that it is told, one after the other."""

    def clock(module, *times, cpu=()):
        seconds, of_cpu = iter(times), iter(cpu)
        monkeypatch.setattr(
            module, "time", SimpleNamespace(perf_counter=lambda: next(seconds), process_time=lambda: next(of_cpu))
        )

    return clock


@pytest.fixture
def memory(monkeypatch):
    """Of a module: the bytes that it is told, one after the other."""

    def memory(module, *peaks, anonymous=()):
        peak, own = iter(peaks), iter(anonymous)
        monkeypatch.setattr(module, "peak_bytes", lambda device: next(peak))
        monkeypatch.setattr(module, "status_bytes", lambda name: {"RssAnon": lambda: next(own)}[name](), raising=False)

    return memory


# Data


SIZES = Namespace(tokens=256, length=16, vocabulary=300, updates=2)


def test_a_root_of_random_tokens(tmp_path):
    """Three samples of 256 tokens: 30 sentences of 25 tokens and 50 to spare; 3 times 8 pairs of twice 16 with <s>."""
    loading.write_root(tmp_path, SIZES, 3)
    assert len(read_dictionary(tmp_path / "dict.txt")) == 300
    for name, lines, length in (
        ("mono/aa/train", 80, 25),
        ("bitext/aa-bb/train.aa-bb.aa", 24, 15),
        ("bitext/aa-bb/train.aa-bb.bb", 24, 15),
    ):
        tokens = np.array([line.tolist() for line in MMapIndexedDataset(str(tmp_path / name))])
        assert tokens.shape == (lines, length) and (tokens[:, -1] == 2).all()
        assert 4 <= tokens[:, :-1].min() < 20 and 280 < tokens[:, :-1].max() < 299  # neither special nor <mask>
        assert len(np.unique(tokens, axis=0)) == lines


def test_a_loader_is_timed_without_its_first_sample(clock):
    """Samples of 3 seconds and of 1; eight pairs of bitext are 256 tokens, and monolingual ones are not many fewer."""
    clock(loading, 100.0, 103.0, 110.0, 111.0, 120.0)
    found = loading.feed(SIZES)
    assert found["seconds"] == 2 and 256 + 200 < found["tokens"] <= 512


@pytest.fixture
def hollow(tmp_path):
    loading.write_hollow_root(tmp_path / "root", 2, 3, 240)
    return tmp_path / "root"


def test_a_root_whose_files_are_holes(hollow):
    """Language and pair k have 240 / k sentences, at least 100; a document of a language ends every 30 lines."""
    sizes = {}
    for path in sorted(hollow.rglob("*.idx")):
        index = MMapIndexedDataset.Index(str(path))
        of = np.array(index.sizes)
        sizes[str(path.relative_to(hollow).with_suffix(""))] = len(of)
        ends = np.zeros(len(of), dtype=bool)
        if path.is_relative_to(hollow / "mono"):
            ends[30::30] = True
        assert (of[ends] == 1).all() and of[~ends].min() >= 5 and 40 < of[~ends].max() < 50
        assert path.with_suffix(".bin").stat().st_size == 4 * of.sum()
    trained = {f"mono/l{number}": 240 // (number + 1) for number in range(2)}
    for number, pair in enumerate(("s0-t0", "s1-t1", "s2-t2")):
        trained |= {f"bitext/{pair} {lang}": max(100, 240 // (number + 1)) for lang in pair.split("-")}
    expected = {}
    for name, count in trained.items():
        folder, _, lang = name.partition(" ")
        ending = f".{folder.rpartition('/')[2]}.{lang}" if lang else ""
        expected |= {f"{folder}/{split}{ending}": of for split, of in (("train", count), ("valid", 100))}
    assert sizes == expected and len(read_dictionary(hollow / "dict.txt")) == 1000


def test_what_getting_ready_takes(hollow, clock, memory):
    """Of the languages 240 and 120 sentences, of the pairs 240, 120 and 100 on both sides; four bytes tell a length."""
    clock(loading, 7.0, 9.5)
    memory(loading, 100, 170, anonymous=(5, 45))
    sentences = 240 + 120 + 2 * (240 + 120 + 100)
    assert loading.get_ready(hollow) == {
        "seconds": 2.5, "sentences": sentences, "peak_bytes": 70, "own_bytes": 40, "sizes_bytes": 4 * sentences
    }  # fmt: skip


def test_what_an_inspection_takes(clock, memory, monkeypatch):
    asked = []
    monkeypatch.setattr(loading, "inspect_root", lambda *given, model: asked.append((*given, model)) or iter("ab"))
    clock(loading, 7.0, 9.5)
    memory(loading, 100, 130)
    assert loading.inspect(Path("root")) == {"seconds": 2.5, "peak_bytes": 30}
    ((root, options, max_tokens, model),) = asked
    assert (root, options.data, max_tokens, model.arch) == (Path("root"), "root", 16384, "veco_small")


def test_each_job_of_the_data_is_done(monkeypatch):
    for name in ("feed", "train", "pretraining", "write_hollow_root", "get_ready", "inspect"):
        monkeypatch.setattr(loading, name, lambda *given, name=name: (name, *given))
    feed, camlm = Namespace(job="a loader"), Namespace(job="camlm")
    assert (loading.data(feed), loading.data(camlm)) == (("feed", feed), ("train", ("pretraining", "camlm", camlm)))
    args = {"root": "root", "languages": 2, "pairs": 3, "sentences": 4}
    done = [loading.start(Namespace(job=job, **args)) for job in ("write", "start", "inspect")]
    assert done == [{}, ("get_ready", "root"), ("inspect", "root")]


# Checkpoints


def test_a_checkpoint_that_the_disk_has_no_room_for_is_one_line(tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 18368 vs 18260")

    monkeypatch.setattr(torch, "save", full)
    args = Namespace(job="write", file=tmp_path / "a.pt", arch="veco_tiny", vocabulary=60)
    with pytest.raises(
        UserError, match=r"a\.pt: cannot be written \(the write failed\): free some space or choose another folder"
    ):
        reading.read(args)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_is_written_read_and_compared(tmp_path):
    path = tmp_path / "a.pt"
    args = {"file": path, "arch": "veco_tiny", "vocabulary": 60}
    assert reading.read(Namespace(job="write", **args)) == {}
    model = read_checkpoint(path)["model"]
    assert len(model["encoder.sentence_encoder.embed_tokens.weight"]) == 60
    assert reading.load(path).keys() == model.keys() and torch.equal(
        reading.load(path)["encoder.lm_head.bias"], model["encoder.lm_head.bias"]
    )
    reading.check_crc(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(WrongBytes):
        reading.check_crc(path)


@pytest.mark.parametrize("job", reading.JOBS)
def test_a_job_with_a_checkpoint_is_timed(clock, monkeypatch, job):
    """What is there in memory for the weights to be looked at is read before."""
    given = []
    monkeypatch.setattr(reading, "load", lambda path: given.append("read") or {"a": path})
    monkeypatch.setitem(reading.JOBS, job, lambda *words: given.append(words))
    clock(reading, 5.0, 7.5, cpu=(20.0, 29.0))
    assert reading.read(Namespace(job=job, file="a.pt")) == {"seconds": 2.5, "cpu_seconds": 9}
    assert given == (["read", ("a.pt", {"a": "a.pt"})] if job == "NaN, infinity" else [("a.pt",)])


# Kernels


@pytest.mark.parametrize("autocast", ["none", "bf16"])
@pytest.mark.parametrize("job", ["chunked", "plain"])
def test_a_head_is_measured_after_a_first_call(clock, memory, monkeypatch, job, autocast):
    called = []

    def noted(name, function):
        def call(rows, weight, bias, gold):
            shapes = tuple(map(len, (rows, weight, bias, gold)))
            called.append((name, shapes, torch.is_autocast_enabled("cpu"), weight.grad is not None))
            return function(rows, weight, bias, gold)

        return call

    monkeypatch.setattr(kernels, "masked_loss", noted("chunked", kernels.plain_loss))
    monkeypatch.setattr(kernels, "plain_loss", noted("plain", kernels.plain_loss))
    clock(kernels, 5.0, 7.5)
    memory(kernels, 1000, 1250)
    args = Namespace(job=job, rows=64, dim=6, vocabulary=30, autocast=autocast, device="cpu")
    assert kernels.head(args) == {"seconds": 2.5, "peak_bytes": 250}
    assert called == [(job, (rows, 30, 30, rows), autocast == "bf16", True) for rows in (8, 64)]


def test_both_heads_have_the_same_losses():
    generator = torch.Generator().manual_seed(1)
    rows, weight, bias = (torch.randn(shape, generator=generator) for shape in ((5, 4), (9, 4), (9,)))
    gold = (rows @ weight.t() + bias).argmax(1)
    gold[:2] = 3 - gold[:2] % 2  # some are wrong
    for plain, ours in zip(kernels.plain_loss(rows, weight, bias, gold), masked_loss(rows, weight, bias, gold), strict=True):
        torch.testing.assert_close(plain, ours)


# Translation


@pytest.mark.parametrize(
    "job, system",
    [
        ("translate", "with_fairseq"),
        ("fairseq-generate", "with_generate"),
        ("ctranslate2", "with_ctranslate2"),
        ("transformers", "with_transformers"),
    ],
)
def test_a_trained_model_translates_its_text(monkeypatch, tmp_path, job, system):
    """Translations have 1 to 200 pieces, as fairseq-generate's have by default."""
    asked, folder = [], tmp_path / "made"
    (tmp_path / "source").write_text("a b\nc\n")
    monkeypatch.setattr(generation, system, lambda *given, **more: asked.append((given, more)) or {})
    monkeypatch.setattr(generation, "load_sentencepiece", lambda path: ("pieces of", path))
    args = {
        "job": job,
        "checkpoint": Path("m.pt"),
        "data": Path("bin"),
        "sentencepiece": Path("spm"),
        "source": tmp_path / "source",
    }
    more = {"quantization": ["int8"], "decoder_layers": [3], "beam": 4, "batch_size": 7, "device": "cpu", "inter_threads": 2}
    more["to"] = "nl"
    generation.generate_job(Namespace(folder=folder, **args, **more))
    ((given, options),) = asked
    pieces, lines = ("pieces of", Path("spm")), ["a b", "c"]
    assert given == {"ctranslate2": (folder / "int8", pieces, lines), "transformers": (folder / "hugging-face", lines)}.get(
        job, (Path("m.pt"), Path("bin"), pieces, lines)
    )
    assert options.pop("search") == generation.Search(1, 200, 4, 7, "nl")
    assert options == {"device": "cpu", **({"inter_threads": 2} if job == "ctranslate2" else {})}


def test_a_trained_model_is_exported_for_transformers(monkeypatch):
    asked = []
    monkeypatch.setattr(generation, "exported_translation", lambda path, data: (path, data))
    monkeypatch.setattr(generation, "export_translation", lambda *given, sentencepiece: asked.append((*given, sentencepiece)))
    args = {"folder": Path("f"), "checkpoint": "m.pt", "data": "bin", "sentencepiece": "spm", "quantization": ["int8"]}
    assert generation.generate_job(Namespace(job="export-hf", decoder_layers=[3], **args)) == {}
    assert asked == [(("m.pt", "bin"), Path("f/hugging-face"), "spm")]
