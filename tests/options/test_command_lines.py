# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the one line about a wrong command line says: the user's option, value and path, and not too much of them."""

import sys
from pathlib import Path

import pytest

from veco_fairseq.arguments import INPUT, NAMED_INPUTS, WHOLE, Output, Parser, require_apart
from veco_fairseq.errors import UserError

MANY = [f"word{number:03}" for number in range(100)]
WHOLE_LINE = f"unrecognized arguments: {' '.join(MANY)}"


@pytest.fixture
def parser(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["here.py"])
    monkeypatch.chdir(tmp_path)
    parser = Parser()
    parser.add_argument("-s", "--source-lang")
    parser.add_argument("--langs", nargs="+")
    parser.add_argument("--layer", type=WHOLE)
    parser.add_argument("--input", type=INPUT)
    parser.add_argument("--pairs", type=NAMED_INPUTS, nargs="+")
    parser.add_argument("--few", choices=["int8", *"abcdefg"])
    parser.add_argument("--many", choices=["int8", *"abcdefgh"])
    parser.add_argument("--arch", choices=["veco_xl", "veco_large", "veco_tiny", "veco_base", *"abcdef"])
    return parser


@pytest.mark.parametrize("words, said", [
    (["-s", ""], "argument --source-lang: is empty: give a value, or leave it out\n"),
    (["--langs", "de", ""], "argument --langs: is empty: give a value, or leave it out\n"),
    (["--layer", "-2147483648"], "--layer -2147483648: must be at least -2147483647\n"),
    (["--layer", "x" * 60], f"--layer {'x' * 60}: is not a whole number\n"),
    (["--layer", "a" * 40 + "b" * 11 + "c" * 10], f"--layer {'a' * 40}...{'c' * 10}: is not a whole number\n"),
    (["--input", " "], "argument --input: is an empty path: name a file or folder"),
    (["--input", "a\0b"], "argument --input: has a NUL character, which no path can have\n"),
    (["--pairs", "n=a,b", "m=a,"], "argument --pairs: is an empty path: name a file or folder in m=a,\n"),
    (["--few", "int9"], "argument --few: invalid choice: 'int9' (choose from "),  # all eight of them
    (["--many", "int9"], "argument --many: invalid choice: 'int9': did you mean int8?\n"),
    (["--many", "xyz"], "argument --many: invalid choice: 'xyz' (choose from "),
    (["--arch", "veco_tine"], "argument --arch: invalid choice: 'veco_tine': did you mean veco_tiny or veco_base or veco_large?\n"),
    (["--inptu"], "unrecognized arguments: --inptu: did you mean --input?\n"),
    (["--pear"], "unrecognized arguments: --pear\n"),  # too far from --pairs
    (["x" * 476], f"unrecognized arguments: {'x' * 476}\n"),
    (MANY, f"{WHOLE_LINE[:400]} ... {WHOLE_LINE[-60:]}\n"),
])  # fmt: skip
def test_a_wrong_command_line_is_one_line(parser, capsys, words, said):
    with pytest.raises(SystemExit) as end:
        parser.parse_args(words)
    line = capsys.readouterr().err
    assert end.value.code == 2 and line.startswith(f"here.py: error: {said}") and line.count("\n") == 1


@pytest.mark.parametrize("words, said", [
    (["--reed", "-1", "--output", "a"], "unrecognized arguments: --reed: did you mean --read?\n"),
    (["--outptu=a", "--read", "b", "--zz"], "unrecognized arguments: --outptu --zz: did you mean --output?\n"),
    (["--read", "a"], "the following arguments are required: --output\n"),
])  # fmt: skip
def test_a_misspelt_option_is_told_of_before_the_required_one_that_it_hides(monkeypatch, capsys, words, said):
    monkeypatch.setattr(sys, "argv", ["here.py"])
    parser = Parser()
    for name in ("--read", "--output"):
        parser.add_argument(name, required=True)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert capsys.readouterr().err == f"here.py: error: {said}"


def test_a_negative_number_is_a_value(parser, capsys):
    """... as a score is printed that a threshold is taken from."""
    parser.add_argument("--threshold", type=float)
    for word in ("-5e-05", "-1.25E+3", "-.5", "-7", "-2.", "-3e7"):
        assert parser.parse_args(["--threshold", word]).threshold == float(word)
    for word in ("-5e", "-5x", "-e5", "-s"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--threshold", word])
        assert "argument --threshold: expected one argument\n" in capsys.readouterr().err


def test_advice_for_what_is_no_option(parser, capsys):
    """... such as how a text is given; not for a misspelt option."""
    parser.advice = ": give it with < FILE"
    for words, said in ((["some.txt"], "some.txt: give it with < FILE"), (["--inptu"], "--inptu: did you mean --input?")):
        with pytest.raises(SystemExit):
            parser.parse_args(words)
        assert capsys.readouterr().err == f"here.py: error: unrecognized arguments: {said}\n"


def test_a_file_with_a_comma_in_its_name_is_one_file(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert NAMED_INPUTS.paths("n=a,b") == [Path("a"), Path("b")]
    Path("a,b").touch()
    assert NAMED_INPUTS.paths("n=a,b") == [Path("a,b")] and NAMED_INPUTS.paths("n=c") == [Path("c")]
    assert NAMED_INPUTS.paths("a,b") == []  # no name: the command says so itself


def test_a_file_where_a_folder_is_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="--output .*/file: is a file, where a folder is needed"):
        require_apart([], [Output("--output", tmp_path / "file", ("*",))])
