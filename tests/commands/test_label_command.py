# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What veco label says of its teacher."""

from argparse import Namespace
from types import SimpleNamespace

import pytest

from veco_fairseq.commands import label as command
from veco_fairseq.inference import evaluation, finetuned


@pytest.mark.parametrize("plug_in", [True, False])
def test_a_plugged_in_teacher_has_no_translations(monkeypatch, capsys, tmp_path, plug_in):
    (tmp_path / "de.txt").write_text("der Hund\nein Hund ist hier\n")
    teacher = SimpleNamespace(task=SimpleNamespace(plug_in=plug_in))
    monkeypatch.setattr(finetuned, "load_finetuned", lambda *arguments: teacher)
    monkeypatch.setattr(
        evaluation, "label", lambda of, sentences, tokens, name: of is teacher and [["N"] * len(words) for words in sentences]
    )
    output = tmp_path / "train-de.conllu"
    command.main(
        Namespace(teacher=tmp_path, input=tmp_path / "de.txt", tokenize=None, like=None, output=output, max_tokens=9, cpu=True)
    )
    note = "predicted without a translation to look at: 2 (a teacher of --plug out needs none)\n"
    assert capsys.readouterr().out == f"wrote {output}: 2 sentences, 6 words\n" + note * plug_in
