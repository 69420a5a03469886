# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""translate.py's lines, parts and batches. That it translates as fairseq-generate does stands in test_end_to_end."""

import io
import logging
import runpy
import sys

import pytest
import torch
from conftest import REPOSITORY, error_line

from veco_fairseq.data.sentencepiece import MODEL_NAME, train_sentencepiece
from veco_fairseq.inference.translator import Translator, _pieces, split, translate_stream


@pytest.mark.parametrize(
    "text, longest, parts",
    [
        ("▁a b ▁c", 3, ["▁a b ▁c"]),
        ("▁a ▁b . ▁c ▁d ▁e", 4, ["▁a ▁b .", "▁c ▁d ▁e"]),  # after a sentence
        ("▁a . ▁b . ▁c ▁d", 5, ["▁a . ▁b .", "▁c ▁d"]),  # after the last that fits
        ("▁a ▁b c d ▁e", 3, ["▁a", "▁b c d", "▁e"]),  # before a word
        ("▁a b c d e", 2, ["▁a b", "c d", "e"]),  # a word that is too long
        ('▁a ." ▁b ▁c', 3, ['▁a ."', "▁b ▁c"]),
        ("", 3, []),
    ],
)
def test_split(text, longest, parts):
    assert [" ".join(part) for part in split(text.split(), longest)] == parts


class Upper:
    """Stands in for the model: no pieces but letters, and a translation in capitals."""

    def encode(self, lines, out_type):
        words = [line.split() for line in lines]
        return [[("" if i else "▁") + c for word in line for i, c in enumerate(word)] for line in words]

    def decode(self, pieces):
        return "".join(pieces).replace("▁", " ").strip()


@pytest.fixture
def translator():
    translator = Translator.__new__(Translator)
    translator.pieces, translator.max_pieces = Upper(), 6
    translator._translate = lambda sources: [Upper().decode(source).upper() for source in sources]
    return translator


def test_order_empty_lines_and_long_ones(translator):
    lines = ["ab", "", "abc def gh", "x", ""]
    notes = []
    found = list(translate_stream(translator, iter(lines), 2, notes.append))
    assert found == ["AB", "", "ABC DEF GH", "X", ""]
    assert notes == ["line 3: 8 pieces, the model takes 6: translated in 2 parts"]
    assert list(translate_stream(translator, [], 2, notes.append)) == []


def test_batches(translator):
    """Every sentence once, like lengths together, within both limits, a sentence beyond them by itself."""
    translator.batch_size, translator.max_tokens = 3, 20
    lengths = torch.tensor([3, 9, 4, 30, 2, 2, 5, 10])
    batches = list(translator._batches(lengths))
    assert batches == [[3], [7, 1], [6, 2, 0], [4, 5]]


def test_bad_input(run, tmp_path):
    command = "scripts/translate.py", "--cpu"
    assert "none.pt: no such checkpoint: check the path" in error_line(run(*command, "none.pt"))
    (tmp_path / "cut.pt").write_bytes(b"PK")
    assert "cut.pt: cannot be read (2 bytes)" in error_line(run(*command, tmp_path / "cut.pt"))
    assert "--buffer-size 0: must be at least 1" in error_line(run(*command, "none.pt", "--buffer-size", "0"))


def test_standard_input_is_utf_8_without_its_mark_and_lines_end_at_line_feeds_alone(monkeypatch):
    seen = []
    monkeypatch.setattr("veco_fairseq.inference.translator.Translator", lambda *positional, **named: None)
    monkeypatch.setattr(
        "veco_fairseq.inference.translator.translate_stream", lambda translator, lines, *rest: seen.extend(lines) or []
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeffä\rb\nc".encode()), encoding="latin-1"))
    monkeypatch.setattr(sys, "argv", ["translate.py", "a.pt"])
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with pytest.raises(SystemExit):
        runpy.run_path(str(REPOSITORY / "scripts/translate.py"), run_name="__main__")
    assert seen == ["ä\rb", "c"]


@pytest.mark.parametrize("size", [1, 2])
def test_with_a_buffer_of_one_line_each_translation_comes_out_at_once(monkeypatch, capsys, size):
    """Whoever asks line by line, and waits for an answer, would wait for ever."""
    written, seen = io.BytesIO(), []
    written.close = lambda: None

    def translations(translator, lines, buffer_size, note):
        note("of a long line")
        yield "a"
        seen.append(written.getvalue())
        yield "b"

    monkeypatch.setattr("veco_fairseq.inference.translator.Translator", lambda *positional, **named: None)
    monkeypatch.setattr("veco_fairseq.inference.translator.translate_stream", translations)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(written)))
    monkeypatch.setattr(sys, "argv", ["translate.py", "a.pt", "--buffer-size", str(size)])
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with pytest.raises(SystemExit):
        runpy.run_path(str(REPOSITORY / "scripts/translate.py"), run_name="__main__")
    assert seen == [b"a\n" if size == 1 else b""] and written.getvalue() == b"a\nb\n"
    assert capsys.readouterr().err == "of a long line\n"


def test_the_model_beside_the_checkpoint_goes_before_the_datas(tmp_path):
    """Both folders have one; the checkpoint's is the one that its training put there."""
    own, other = (train_sentencepiece(text_of(letters), 16, character_coverage=1.0) for letters in ("abcd", "efgh"))
    for name, model in (("checkpoint", own), ("data", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / MODEL_NAME).write_bytes(model)
    folders = [tmp_path / "checkpoint", tmp_path / "data"]
    assert _pieces(None, folders, []).serialized_model_proto() == own
    assert _pieces(None, folders[::-1], []).serialized_model_proto() == other
    (tmp_path / "checkpoint" / MODEL_NAME).unlink()
    assert _pieces(None, folders, []).serialized_model_proto() == other


def text_of(letters):
    return [f"{a}{b}{c} {c}{a}" for a in letters for b in letters for c in letters]
