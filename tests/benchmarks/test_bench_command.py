# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What bench.py does with the figures of each measurement."""

import json
import os
import re
import shlex
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY

from veco_fairseq.arguments import Parser
from veco_fairseq.benchmarks import finetuning, generation, kernels, loading, reading, softmax, training, understanding
from veco_fairseq.commands import bench
from veco_fairseq.errors import UserError

MEASURES = {"pretrain": (training, "pretrain"), "knn": (softmax, "knn"), "generate": (generation, "generate"), "data": (loading, "data"),
            "start": (loading, "start"), "read": (reading, "read"), "head": (kernels, "head"), "attention": (kernels, "attention"),
            "finetune": (finetuning, "finetune"), "finetune --arch veco_nlu_tiny": (understanding, "finetune")}  # fmt: skip


@pytest.fixture
def measure(monkeypatch):
    """Runs the command with measurements that only tell which one was asked for, and where."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for words, (module, name) in MEASURES.items():
        monkeypatch.setattr(module, name, lambda args, words=words: {"measured": words, "on": args.device})

    def measure(words):
        parser = Parser()
        bench.add_arguments(parser)
        bench.main(parser.parse_args(words.split()))

    return measure


@pytest.mark.parametrize("words", MEASURES)
def test_each_is_measured_by_its_own_function(measure, capsys, words):
    measure(f"{words} --device cpu --job one")
    assert capsys.readouterr().out == json.dumps({"measured": words, "on": "cpu"}) + "\n"


@pytest.mark.parametrize("there, words, device", [(True, "", "cuda"), (False, "", "cpu"), (True, "--device cpu", "cpu")])
def test_a_gpu_is_taken_where_there_is_one(measure, monkeypatch, capsys, there, words, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    measure(f"head {words} --job one")
    assert json.loads(capsys.readouterr().out)["on"] == device
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ("0" if device == "cuda" else "")  # fairseq's norm goes to a GPU that it sees


def test_the_file_has_the_options_and_the_figures(measure, tmp_path, capsys):
    path, checkpoint = tmp_path / "j", tmp_path / "a.pt"
    checkpoint.touch()
    measure(f"read --file {checkpoint} --rounds 7 --device cpu --json {path}")
    assert json.loads(path.read_text()) == {
        "options": {"command": "read", "arch": "veco_large", "file": str(checkpoint), "vocabulary": 250_002, "rounds": 7,
                    "threads": None, "device": "cpu"},
        "measured": "read", "on": "cpu",
    }  # fmt: skip
    for words in ("start --root x", "generate --folder x"):  # where a measurement of its own process has its files
        measure(f"{words} --json {path} --device cpu")
        assert not json.loads(path.read_text())["options"].keys() & {"root", "folder", "json", "job"}
    assert capsys.readouterr().out == ""


def test_the_measurements_of_the_documents_are_taken():
    """... by the options' borders; those of trained models need their files."""
    parser, taken = Parser(), []
    bench.add_arguments(parser)
    for page in sorted(REPOSITORY.glob("docs/**/*.md")):
        lines = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for words in re.findall(r"^(?:    .*)?veco bench (.+)$", lines, re.MULTILINE):
            if "--checkpoint" not in words and words.count("`") == 0:
                taken.append(parser.parse_args(shlex.split(words, comments=True)))
    assert [args.sentences for args in taken if args.command == "start"] == [20_000_000, 1_000_000, 10_000_000]
    assert len(taken) > 18 and {args.command for args in taken} == {words.split()[0] for words in MEASURES} - {"read"}


@pytest.mark.parametrize("words, told", [
    ("pretrain --length 3", "--length 3: must be at least 4"), ("data --length 3", "must be at least 4"),
    ("knn --vocabulary 5", "--vocabulary 5: must be at least 6"), ("generate --vocabulary 5", "must be at least 6"),
    ("finetune --arch veco_mt_tiny --length 513", "--length 513: --arch veco_mt_tiny takes up to 512 tokens"),
    ("finetune --arch veco_nlu_tiny --length 600", "--arch veco_nlu_tiny takes up to 512 tokens"),
    ("read --file FILE", "FILE: cannot be read"),
    ("generate --checkpoint FILE --data FILE --sentencepiece FILE --source FILE", "FILE: has no text to translate"),
])  # fmt: skip
def test_sizes_and_files_are_looked_at_first(tmp_path, monkeypatch, capsys, words, told):
    """... and not by the processes that measure, which had ended in tracebacks or not at all."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    file = tmp_path / "file"
    file.write_text(" \n\n")
    parser = Parser(prog="bench")
    bench.add_arguments(parser)
    try:
        bench.main(parser.parse_args([*words.replace("FILE", str(file)).split(), "--device", "cpu"]))
    except UserError as error:
        found = str(error)
    except SystemExit:
        found = capsys.readouterr().err
    assert told.replace("FILE", str(file)) in found


def test_the_peak_is_that_of_the_process_itself(monkeypatch):
    """... and not of the larger one that started it, as getrusage has it."""
    monkeypatch.setattr(kernels.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=2**40))
    assert 2**20 < kernels.peak_bytes("cpu") < 2**40
