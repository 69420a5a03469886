# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How long a literal may be, what is shown of one, and where in a checkpoint options are looked for."""

from argparse import Namespace

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.options.literals import NO_LITERAL, literal, refuse_code, shown


def test_a_literal_makes_at_most_10_000_items():
    assert literal("[7] * 10000") == [7] * 10_000 and literal("10000 * (7,)") == (7,) * 10_000
    assert literal("200 * 300") == 60_000 and literal("'a' + 'b' * 2") == "abb"
    for text in ("[7] * 10001", "10001 * [7]", "[1, 2] * 5001", "'ab' * 5001"):
        with pytest.raises(ValueError, match="^more than 10,000 items$"):
            literal(text)


@pytest.mark.parametrize(
    "text", ["[1] - [2]", "2 ** 3", "(" * 300 + ")" * 300, "-" * 50_000 + "1", "1 + " * 5000 + "1", "[1] + 2"]
)
def test_what_is_no_literal_ends_in_an_error_that_is_caught(text):
    with pytest.raises(NO_LITERAL):
        literal(text)


def test_of_a_long_text_the_first_60_characters_are_shown():
    assert shown("a" * 60) == f"'{'a' * 60}'" and shown("a" * 60 + "b") == f"'{'a' * 60}'..."
    assert shown("a\nb") == "'a\\nb'"


CODE = "f()"


@pytest.mark.parametrize("state, place", [
    ({"args": Namespace(lamb_betas=CODE)}, "args.lamb_betas"), ({"cfg": {"x": ({}, {"lamb_betas": CODE})}}, "cfg.x.1.lamb_betas"),
    ({"cfg": {"x": [[{"lamb_betas": CODE}]]}}, "cfg.x.0.0.lamb_betas"), ({"args": {"a": 1}, "cfg": {"lamb_betas": CODE}}, "cfg.lamb_betas"),
    ({"cfg": {"x": Namespace(y=Namespace(lamb_betas=CODE))}}, "cfg.x.y.lamb_betas"),
])  # fmt: skip
def test_options_are_found_wherever_they_stand(state, place):
    with pytest.raises(UserError) as caught:
        refuse_code("a.pt", state)
    assert str(caught.value).startswith(f"a.pt: refused: its option {place} is 'f()', which fairseq would evaluate, but only a ")


@pytest.mark.parametrize(
    "value", ["a/${oc.env:HOME}", "${x} ${oc.env:HOME}", "${oc.env:${y}}", "${oc.${y}:HOME}", "${${y}:HOME}"]
)
def test_a_resolver_is_refused_anywhere_in_a_text(value):
    with pytest.raises(
        UserError, match=r"^a\.pt: refused: its option cfg\.x\.0 is '.+', for which OmegaConf may call a resolver: "
    ):
        refuse_code("a.pt", {"cfg": {"x": (value,)}})


def test_the_same_list_twice_and_a_nest_without_an_end_are_read():
    nest = {"lamb_betas": "(0.9, 0.98)", "other": CODE, "lamb": "${optimization.lr}: x"}
    nest["itself"] = [nest, nest]
    refuse_code("a.pt", {"cfg": nest, "args": None})
