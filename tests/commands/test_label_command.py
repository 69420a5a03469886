# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What veco label says of its teacher and of the language, and which words it sees."""

from argparse import Namespace
from types import SimpleNamespace

import pytest

from veco_fairseq.commands import label as command
from veco_fairseq.errors import UserError
from veco_fairseq.inference import evaluation, finetuned
from veco_fairseq.understanding.teaching import ids_like, read_words


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


@pytest.mark.parametrize("given, told", [("de", False), ("deu", False), ("en", False), ("xx", True), ("tur", True)])
def test_a_language_that_moses_does_not_know_is_told(tmp_path, caplog, given, told):
    """It is cut all the same, as Moses' own script does, which warns."""
    (tmp_path / "text").write_text("Um ca. 3 Uhr, z.B. heute.\n")
    (words,) = read_words(tmp_path / "text", given)
    assert words == ["Um", *(["ca."] if given in ("de", "deu") else ["ca", "."]), "3", "Uhr", ",", "z.B.", "heute", "."]
    line = f"--tokenize {given}: Moses has no abbreviations of this language, and takes those of English: is it the code?"
    assert [record.getMessage() for record in caplog.records] == [line] * told


@pytest.mark.parametrize("lang", [None, "en"])
def test_what_cannot_be_seen_is_no_word(tmp_path, lang):
    path = tmp_path / "text"
    path.write_text("the \u200b dog\ufeff \u200d\u00ad sees\n\u2060 x\n")
    assert [[word.strip("\ufeff") for word in words] for words in read_words(path, lang)] == [["the", "dog", "sees"], ["x"]]
    path.write_text("the dog\n\u200b \ufeff\n")
    with pytest.raises(UserError, match="text, line 2: has no word"):
        read_words(path, lang)


def test_originals_with_one_id_are_refused(tmp_path):
    """The translations of both would have had it, and --plug in does not take such files."""
    path = tmp_path / "train-en.tsv"
    path.write_text("# sent_id = x\na\tD\n\n# sent_id = y\nb\tN\n\n# sent_id = y\nc\tN\n")
    with pytest.raises(UserError, match="^--like .*train-en.tsv: the id y is there twice, by which --plug in finds translations"):
        ids_like(path, tmp_path / "de.txt", 3)
    path.write_text(path.read_text().replace("= y\nc", "= z\nc"))
    assert ids_like(path, tmp_path / "de.txt", 3) == ["x", "y", "z"]
