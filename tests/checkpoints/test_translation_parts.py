# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is read of a translation model's checkpoint, and where its SentencePiece model is looked for."""

import re
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from conftest import changed
from support.exported import make_translation

from veco_fairseq.checkpoints.ct2 import export_ct2
from veco_fairseq.checkpoints.task_state import is_only_converted
from veco_fairseq.checkpoints.translation import (
    Translation,
    build_translation,
    find_sentencepiece,
    read_translation,
    require_translation,
)
from veco_fairseq.data.sentencepiece import train_sentencepiece
from veco_fairseq.errors import UserError


def translation(source=(), target=(), langs=("aa", "bb"), state=None, **options):
    return Translation(Path("mt.pt"), {}, Namespace(**options), [*source], [*target], langs, Path("."), state or {})


@pytest.mark.parametrize("source, target, langs, there", [
    (["[aa]"], ["[bb]"], ("aa", "bb"), True),
    (["[bb]"], ["[aa]"], ("aa", "bb"), False),
    (["[aa]"], ["x"], ("aa", "bb"), False),
    (["x"], ["[bb]"], ("aa", "bb"), False),
    (["[aa]"], ["[bb]"], ("aa", None), False),
    (["[aa]", "[None]"], ["[bb]", "[None]"], (None, "bb"), False),
])  # fmt: skip
def test_language_tokens_are_each_in_its_own_dictionary(source, target, langs, there):
    found = translation(source, target, langs)
    assert found.has_language_tokens is there
    assert (found.source_end, found.target_end) == ((["</s>", "[aa]"], "[bb]") if there else (["</s>"], "</s>"))


def test_directions_and_the_head():
    assert translation(state={"task_state": {"lang_pairs": ["de-en", "en-de"]}}).directions == ["de-en", "en-de"]
    assert translation(state={"task_state": None}).directions == translation().directions == []
    assert translation(keep_lm_head=True).keeps_lm_head is True and translation().keeps_lm_head is False


@pytest.mark.parametrize("arch, task, state, problem", [
    ("veco_tiny", {"_name": "camlm"}, None, ": is a VecoModel, not a translation model: make one with veco convert, and fine-tune it"),
    ("veco_nlu_tiny", {"source_lang": "aa"}, None, ": is a VecoNluModel, not a translation model: make one with veco convert, and fine-tune it"),
    ("veco_mt_tiny", {"source_lang": None}, {"symbols": ["a"]}, ": was not trained to translate yet: fine-tune it first (fairseq-train"),
    ("veco_mt_tiny", {"source_lang": "aa"}, None, None),
    ("veco_mt_tiny", {"source_lang": None}, {"languages": ["aa", "bb"]}, None),
    ("veco_transformer_tiny", {"source_lang": None}, {"lang_pairs": ["aa-bb"]}, None),
    ("of_another_plug_in", {"source_lang": "aa"}, None, None),
])  # fmt: skip
def test_what_does_not_translate_is_told(monkeypatch, arch, task, state, problem):
    found = {"cfg": {"model": {"_name": arch}, "task": task}, "task_state": state}
    monkeypatch.setattr("veco_fairseq.checkpoints.translation.read_checkpoint", lambda path, mapped: found)
    with nullcontext() if problem is None else pytest.raises(UserError, match=re.escape(f"m.pt{problem}")):
        require_translation("m.pt")


@pytest.mark.parametrize("known, converted", [
    ({}, False),
    ({"symbols": ["a"]}, True),
    ({"symbols": ["a"], "languages": ["aa", "bb"]}, False),
    ({"symbols": ["a"], "languages": [None, None]}, False),  # of veco import
    ({"symbols": ["a"], "lang_pairs": ["aa-bb"]}, False),
])  # fmt: skip
def test_which_model_was_only_converted(known, converted):
    assert is_only_converted(known) is converted


def test_what_is_read(make_model, tmp_path):
    """In half precision, with one language token, and without a word on languages: the token is a token like others."""
    path = make_translation(tmp_path, make_model, words=lambda pieces: [*pieces, "[aa]"])
    with changed(path) as state:
        state["model"] = {name: tensor.half() for name, tensor in state["model"].items()}
        del state["task_state"]["languages"]
        state["cfg"]["task"].update(source_lang=None, target_lang=None)
    found = read_translation(path)
    assert found.langs == (None, None) and found.target_end == "</s>" and found.source[-1] == "[aa]"
    assert (found.folder, found.path) == (tmp_path, path)
    assert {tensor.dtype for tensor in found.weights.values()} == {torch.float32}
    assert not [name for name in found.weights if name.endswith("version")]
    model = build_translation(found)
    assert not model.training and torch.equal(
        model.decoder.layers[1].fc1.bias, state["model"]["decoder.layers.1.fc1.bias"].float()
    )

    pieces, folder = tmp_path / "sentencepiece.bpe.model", tmp_path / "data"
    folder.mkdir()
    (folder / pieces.name).write_bytes(pieces.read_bytes())
    elsewhere = found._replace(folder=folder)
    assert find_sentencepiece(elsewhere, None) == pieces
    assert find_sentencepiece(elsewhere, tmp_path / "pre" / pieces.name) == tmp_path / "pre" / pieces.name
    pieces.write_bytes(train_sentencepiece(["x y z xy yz zx"] * 9, 10, character_coverage=1.0))  # not the dictionary's
    assert find_sentencepiece(elsewhere, None) == folder / pieces.name
    pieces.unlink()
    assert find_sentencepiece(elsewhere, None) == folder / pieces.name
    (folder / pieces.name).unlink()
    assert find_sentencepiece(elsewhere, None) is None


def test_without_ctranslate2(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ctranslate2.converters", None)
    with pytest.raises(UserError, match="ctranslate2 is not installed: pip install ctranslate2"):
        export_ct2(tmp_path / "none.pt", tmp_path / "ct2")
