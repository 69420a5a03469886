# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Numbers of our commands, at and beyond their borders."""

import re
import sys
from argparse import ArgumentTypeError, Namespace

import pytest

from veco_fairseq import arguments as kinds
from veco_fairseq.arguments import COUNT, FINITE, Number, Parser

BORDERS = {  # values that are taken, and those beyond
    "WHOLE": ("-7", "7.5"), "COUNT": ("1", "0"), "FROM_0": ("0", "-1"), "SIZE": ("1 65536", "0 65537"),
    "WORKERS": ("1 1024", "0 1025"), "SEED": ("0", "-1"), "FINITE": ("-1e30 1e30", "inf nan"), "NOT_NEGATIVE": ("0 1e9", "-0.001"),
    "POSITIVE": ("0.001", "0 -1"), "SHARE": ("0 1", "-0.01 1.01"), "POSITIVE_SHARE": ("0.001 1", "0 1.01"), "EXPONENT": ("0 10", "-0.01 10.01"),
    "LENGTH_PENALTY": ("-100 100", "-100.5 100.5"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BORDERS)
def test_borders_of_each_kind_of_number(kind):
    number, (taken, refused) = getattr(kinds, kind), (text.split() for text in BORDERS[kind])
    assert [number(text) for text in taken] == [float(text) for text in taken]
    for text in refused:
        with pytest.raises(ArgumentTypeError, match=re.escape(text)):
            number(text)


def test_whole_numbers_that_are_larger_than_any_float():
    """One of 400 digits had ended in an OverflowError."""
    for kind, text, message in (
        (COUNT, "9" * 400, "must be at most 2147483647"),
        (COUNT, "-" + "9" * 400, "must be at least 1"),
        (FINITE, "9" * 400, "must be a finite number"),
    ):
        with pytest.raises(ArgumentTypeError, match=f": {message}$"):
            kind(text)
        assert kind.problem(int(text)) == message  # of a checkpoint's option


def test_no_kind_of_number_is_missing():
    assert {name for name, value in vars(kinds).items() if isinstance(value, Number)} == set(BORDERS)


def test_numbers_of_our_commands(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["here.py"])
    parser = Parser()
    parser.add_argument("--beam", type=COUNT)
    parser.add_argument("--score", type=FINITE)
    parser.add_argument("--share", type=Number(above=0, most=1))
    parser.add_argument("--lang")
    parser.add_argument("--title", type=str)
    for arguments, words in (
        (["--beam", "0"], "--beam 0: must be at least 1"),
        (["--beam", "9" * 20], f"--beam {'9' * 20}: must be at most 2147483647"),
        (["--beam", "1.0"], "--beam 1.0: is not a whole number"),
        (["--score", "nan"], "--score nan: must be a finite number"),
        (["--score", "1e999"], "--score 1e999: must be a finite number"),
        (["--share", "0"], "--share 0: must be above 0"),
        (["--share", "1.01"], "--share 1.01: must be at most 1"),
        (["--lang", ""], "argument --lang: is empty: give a value, or leave it out"),
        (["--bea", "1"], "unrecognized arguments: --bea 1: did you mean --beam?"),
        (["--xyz", "1"], "unrecognized arguments: --xyz 1"),
    ):
        with pytest.raises(SystemExit) as end:
            parser.parse_args(arguments)
        assert (end.value.code, capsys.readouterr().err) == (2, f"here.py: error: {words}\n")
    assert parser.parse_args(["--beam", "3", "--score", "-0.5", "--share", "1", "--title", ""]) == Namespace(
        beam=3, score=-0.5, share=1.0, lang=None, title=""
    )
