# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""prepare_root.py: which lines the vocabulary is learnt from, what is said, and validation files that are bad."""

import pytest
from support.preparation import (
    decoded,
    options_with,
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data.prepare import preparation
from veco_fairseq.data.prepare.preparation import prepare_root
from veco_fairseq.data.prepare.text import Options, Survey, is_drawn, parse_parts, survey_bitext, survey_mono
from veco_fairseq.errors import UserError


def test_validation_files_do_not_move_what_is_learnt_from(tmp_path):
    """Of xx 8 lines, 3 to take: the third, fifth and eighth; of yy 4, 3 to take: all but the first."""
    texts = {
        "x": ["a0", "a1", "", "a2", "a3"],
        "vx": ["v0", "v1", "v2"],
        "px": ["b0", "b1", "b2", "b3"],
        "py": ["c0", "c1", "c2", "c3"],
    }
    x, vx, px, py = (write_lines(tmp_path / name, lines) for name, lines in texts.items())
    parts = parse_parts([f"xx={x}"], [f"xx-yy={px},{py}"], [f"xx={vx}"])
    options = Options(tmp_path / "root", parts, valid_lines=0, vocab_size=9, vocab_lines=6)
    surveys = {"mono/xx": survey_mono(x, 0), "bitext/xx-yy": survey_bitext((px, py), 0)}
    assert list(preparation.training_lines(options, surveys)) == ["a2", "b0", "c1", "c2", "b3", "c3"]


def test_held_out_lines_are_counted_and_not_learnt_from(tmp_path):
    """Of xx 6 lines, 3 to take: the second, fourth and sixth, but the second and the sixth, b3, are held out.

    The third stands for the second. Of yy 4 lines, the second, third and fourth, c3, which is held out.
    """
    texts = {"x": ["a0", "", "a1"], "px": ["b0", "b1", "b2", "b3"], "py": ["c0", "c1", "c2", "c3"]}
    x, px, py = (write_lines(tmp_path / name, lines) for name, lines in texts.items())
    options = Options(
        tmp_path / "root", parse_parts([f"xx={x}"], [f"xx-yy={px},{py}"]), valid_lines=1, vocab_size=9, vocab_lines=6
    )
    surveys = {"mono/xx": survey_mono(x, 1), "bitext/xx-yy": survey_bitext((px, py), 1)}
    assert list(preparation.training_lines(options, surveys)) == ["b0", "b1", "c1", "c2"]


def test_as_many_lines_to_learn_from_as_are_held_out(tmp_path):
    """Of each language 10 of 100, the very lines that are held out: those after them are learnt from."""
    files = [write_lines(tmp_path / name, [f"{name}{number}" for number in range(100)]) for name in "ab"]
    options = Options(
        tmp_path / "root", parse_parts([], ["xx-yy={},{}".format(*files)]), valid_lines=10, vocab_size=9, vocab_lines=20
    )
    held = [number for number in range(100) if is_drawn(number, 10, 100)]
    after = [number + 1 for number in held]
    assert not set(held) & set(after) and after[-1] < 100
    learnt = list(preparation.training_lines(options, {"bitext/xx-yy": survey_bitext(tuple(files), 10)}))
    assert learnt == [f"{name}{number}" for number in after for name in "ab"]


def test_pairs_are_counted_with_those_that_have_an_empty_side(tmp_path):
    a, b = write_lines(tmp_path / "a", ["a", "", "c", " ", "e"]), write_lines(tmp_path / "b", ["u", "v", "\t", "", "z"])
    assert survey_bitext((a, b), 1) == Survey(rows=5, kept=2, valid_start=5, dropped=3)
    with pytest.raises(UserError, match="a: has 2 usable lines, too few to hold out --valid-lines 2"):
        survey_bitext((a, b), 2)


@pytest.mark.parametrize("bad", ["mono_valid", "bitext_valid"])
def test_a_bad_validation_file_is_told_before_anything_is_written(tmp_path, vocabulary, bad):
    a, b = (write_lines(tmp_path / lang, text_lines(lang, 9)) for lang in ("xx", "yy"))
    (tmp_path / "bad").write_bytes(b"ab\n\xff\n")
    valid = {"mono_valid": [f"xx={tmp_path / 'bad'}"], "bitext_valid": [f"xx-yy={tmp_path / 'bad'},{b}"]}
    options = options_with(vocabulary, tmp_path / "root", [f"xx={a}"], [f"xx-yy={a},{b}"], **{bad: valid[bad]})
    with pytest.raises(UserError, match="bad, line 2: not UTF-8"):
        prepare_root(options)
    assert not (tmp_path / "root").exists()


def test_validation_files_are_made_of_what_has_some_though_nothing_is_held_out(tmp_path, vocabulary):
    a, b, v = (write_lines(tmp_path / name, text_lines(name[:2], 9)) for name in ("xx", "yy", "xx-valid"))
    prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={a}"], [f"xx-yy={a},{b}"], mono_valid=[f"xx={v}"]))
    assert decoded(tmp_path / "root/mono/xx/valid", vocabulary) == text_lines("xx", 9)
    names = sorted(path.name for path in (tmp_path / "root/bitext/xx-yy").iterdir())
    assert names == [f"train.xx-yy.{lang}.{suffix}" for lang in ("xx", "yy") for suffix in ("bin", "idx")]


@pytest.mark.parametrize("rows, warned", [(30, True), (60, False)])
def test_a_dictionary_of_few_of_the_models_pieces_is_said(tmp_path, vocabulary, capsys, rows, warned):
    """The model has 80 pieces; the dictionary 30 or 60 of them."""
    dictionary = write_lines(tmp_path / "dict", (vocabulary / "dict.txt").read_text(encoding="utf-8").splitlines()[:rows])
    source = write_lines(tmp_path / "x", text_lines("xx", 5))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={source}"])
    options.dictionary = dictionary
    prepare_root(options)
    assert ("warning: most pieces of the SentencePiece model are not in the dictionary" in capsys.readouterr().out) == warned


@pytest.mark.parametrize("lines, cut", [(["ab", "cd", "ef"], True), (["ab", "", "cd"], False)])
def test_a_document_that_is_cut_for_validation_is_said(tmp_path, vocabulary, capsys, lines, cut):
    source = write_lines(tmp_path / "x", lines)
    prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={source}"], valid_lines=1))
    told = capsys.readouterr().out
    assert f"mono/xx: reading {source}\n" in told and ("mono/xx: is one document (no blank line before" in told) == cut
