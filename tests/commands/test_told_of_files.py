# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What exports tell of the models that they have written, where a case is not the usual one; and when answers are shown."""

import io
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from unittest.mock import call

import pytest

from veco_fairseq.checkpoints import bart, ct2, huggingface, translation
from veco_fairseq.commands import export_ct2, export_hf, translate
from veco_fairseq.compat import texts
from veco_fairseq.errors import UserError
from veco_fairseq.inference import translator

EXPORT = {"checkpoint": Path("a.pt"), "data": None, "output": Path("o"), "sentencepiece": Path("m")}


@pytest.mark.parametrize("read", [None, "the translation model"])
@pytest.mark.parametrize("difference, told", [
    (None, "transformers is not installed, so the outputs were not compared: pip install transformers"),
    (0.0, "largest difference between an output and that of transformers' model: 0.0e+00"),
])  # fmt: skip
def test_export_hf(monkeypatch, capsys, read, difference, told):
    """A translation model is exported and compared as one; nothing is said of parameters that were not dropped."""
    export, asked = SimpleNamespace(notes=["one", "two"], dropped=0, folder="o"), []

    def record(name, result):
        return lambda *given, **more: asked.append((name, *given, more)) or result

    monkeypatch.setattr(translation, "read_translation", lambda path, *, data, trust: read)
    for module, name in ((bart, "export_translation"), (huggingface, "export_hf")):
        monkeypatch.setattr(module, name, record(name, export))
    for module, name in ((bart, "largest_translation_difference"), (huggingface, "largest_difference")):
        monkeypatch.setattr(module, name, record(name, difference))
    export_hf.main(Namespace(**EXPORT, scores=[], trust_checkpoint=True))
    assert capsys.readouterr().out == f"note: one\nnote: two\nwrote o\n{told}\n"
    more = {"sentencepiece": Path("m"), "scores": asked[0][-1]["scores"]}
    assert asked == ([("export_translation", read, Path("o"), more), ("largest_translation_difference", read, "o", {})] if read
                     else [("export_hf", Path("a.pt"), Path("o"), True, more), ("largest_difference", Path("a.pt"), "o", True, {})])  # fmt: skip


@pytest.mark.parametrize("read", [None, "the translation model"])
def test_export_hf_takes_the_folder_that_its_errors_ask_for(monkeypatch, read):
    """... of dictionaries that the checkpoint of a translation model lacks; of another one it is refused."""
    folders = []
    monkeypatch.setattr(translation, "read_translation", lambda path, *, data, trust: folders.append(data) or read)
    monkeypatch.setattr(bart, "export_translation", lambda *given, **more: SimpleNamespace(notes=[], dropped=0, folder="o"))
    monkeypatch.setattr(bart, "largest_translation_difference", lambda *given: None)
    args = Namespace(**{**EXPORT, "data": Path("d")}, scores=[], trust_checkpoint=False)
    if read is None:
        with pytest.raises(UserError, match="^--data d: is for translation models, and a.pt is none: leave it out$"):
            export_hf.main(args)
    else:
        export_hf.main(args)
    assert folders == [Path("d")]


def test_export_ct2_without_language_tokens_and_with_many_positions(monkeypatch, capsys):
    positions = SimpleNamespace(max_source_positions=1024, max_target_positions=257)
    exported = SimpleNamespace(has_language_tokens=False, model=positions, state={}, notes=["one"])
    monkeypatch.setattr(ct2, "export_ct2", lambda *given, **more: exported)
    monkeypatch.setattr(ct2, "largest_ct2_difference", lambda *given: 0.25)
    export_ct2.main(Namespace(**EXPORT, quantization="int16"))
    difference = "largest difference of a token's log-probability to fairseq's model: 2.5e-01"
    assert capsys.readouterr().out == f"wrote o (int16)\nnote: one\n{difference}\n"


@pytest.mark.parametrize("size, flushed", [(1, ["0\n", "1\n"]), (2, ["0\n1\n"]), (3, [])])
def test_translate_answers_a_reader_who_waits_for_a_buffer_of_lines(monkeypatch, size, flushed):
    """With --buffer-size 2, whoever gave two lines and waited for both had waited for ever. How far it is, a bar on a terminal shows."""

    class Output(io.BytesIO):
        def flush(self):
            shown.append(self.getvalue().decode().removeprefix("".join(shown)))

    shown, output, progress = [], Output(), mock.MagicMock()
    monkeypatch.setattr("tqdm.tqdm", progress)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=output))
    monkeypatch.setattr(texts, "standard_input", lambda: [])
    monkeypatch.setattr(translator, "Translator", lambda *given, **more: None)
    monkeypatch.setattr(translator, "translate_stream", lambda *given, translated, **more: translated(2) or ["h", "h"])
    progress.return_value.__enter__.return_value.update.return_value = None
    monkeypatch.setattr("veco_fairseq.inference.requests.in_lines", lambda number, hypotheses, **more: [str(number)])
    parser = translate.Parser()
    translate.add_arguments(parser)
    translate.main(parser.parse_args([__file__, "--buffer-size", str(size)]))
    assert shown == flushed and output.getvalue() == b"0\n1\n"
    assert progress.call_args.kwargs["disable"] is None  # shown on a terminal alone
    assert progress.return_value.__enter__.return_value.update.call_args_list == [call(2)]
