# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is done to a text is done by as many processes, or threads, as were asked for; its result does not tell."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.preparation import (
    options_with,
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data import sentencepiece
from veco_fairseq.data.cleaning import cleaning
from veco_fairseq.data.cleaning.rules import Options
from veco_fairseq.data.prepare import binarizing, preparation
from veco_fairseq.data.prepare.binarizing import binarize, parse_splits
from veco_fairseq.data.sentencepiece import Encoder, encode_text, load_sentencepiece, trim
from veco_fairseq.data.symbols import read_symbols
from veco_fairseq.vocab import vocap


@pytest.fixture
def asked(monkeypatch):
    """How many processes each module has asked for, and for what; all is done in this one."""
    asked = []

    def in_these(make, items, workers):
        asked.append(workers)
        return (result for result in map(make(), items))

    @contextmanager
    def kept(workers):
        asked.append(workers)
        yield lambda make, items: asked.append(make.func.__name__) or map(make(), items)

    monkeypatch.setattr(cleaning, "in_processes", in_these)
    for module in (preparation, binarizing):
        monkeypatch.setattr(module, "kept_processes", kept)
    return asked


@pytest.fixture
def files(tmp_path, vocabulary):  # noqa: F811
    texts = [write_lines(tmp_path / f"in.{lang}", text_lines(lang, 9)) for lang in ("xx", "yy")]
    return SimpleNamespace(texts=texts, model=vocabulary / "spm.model", dictionary=vocabulary / "dict.txt", folder=vocabulary)


def test_cleaning(asked, files, tmp_path):
    cleaning.clean(tuple(files.texts), (tmp_path / "a", tmp_path / "b"), Options("xx", "yy"), workers=3)
    assert asked == [3]


def test_binarizing(asked, files, tmp_path):
    splits = parse_splits("xx", "yy", train=f"{tmp_path}/in", valid=f"{tmp_path}/in,{tmp_path}/in")
    binarize(splits, files.model, files.dictionary, tmp_path / "bin", workers=3)
    assert asked == [3, "_encodes", "_encodes", "_encodes"]


@pytest.mark.parametrize("border, reading", [(10_000, []), (0, ["partial"])], ids=["little text", "much text"])
def test_preparing(asked, files, tmp_path, monkeypatch, border, reading):
    """Of little text, to start processes for a survey would take longer than the survey."""
    monkeypatch.setattr(preparation, "BYTES_FOR_PROCESSES", border)
    mono = [f"xx={files.texts[0]}", f"yy={files.texts[1]}"]
    preparation.prepare_root(replace(options_with(files.folder, tmp_path / "root", mono), workers=3))
    assert asked == [3, *reading, "_encodes", "_encodes"]


def test_vocabularies_of_languages(files, tmp_path, monkeypatch):
    asked, begun = [], []
    monkeypatch.setattr(vocap, "in_parallel", lambda calls, workers: asked.append((list(calls), workers)) or [])
    options = vocap.Options({"xx": files.texts[:1], "yy": files.texts[1:]}, tmp_path / "out", 20, workers=3)
    manifest = SimpleNamespace(is_done=lambda *_: False, start=lambda language, files: begun.append((language, files[0])))
    vocap._make_languages(options, manifest, print)
    assert asked == [(["xx", "yy"], 3)] and begun == [("xx", "languages/xx.model"), ("yy", "languages/yy.model")]


class Model:
    """A SentencePiece model that notes with how many threads it encodes."""

    def __init__(self, path):
        self.model, self.threads = load_sentencepiece(path), []

    def encode(self, lines, *, num_threads, **how):
        self.threads.append(num_threads)
        return self.model.encode(lines, **how)

    def __len__(self):
        return len(self.model)

    def __getattr__(self, name):
        return getattr(self.model, name)


def test_threads(files, tmp_path, monkeypatch):
    model = Model(files.model)
    trim(model, files.texts[:1], 30, workers=3)
    monkeypatch.setattr(sentencepiece, "load_sentencepiece", lambda path: model)
    encode_text(files.model, files.texts[0], tmp_path / "pieces", 4)
    encoder = Encoder(model, read_symbols(files.dictionary), 5)
    encoder(["ab"])
    encoder.words(["ab"])
    assert model.threads == [3, 4, 5, 5]
