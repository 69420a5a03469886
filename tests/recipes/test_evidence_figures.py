# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which lines of results count."""

import json

import pytest
from support.modules import load_script

from recipes import RECIPES
from veco_fairseq.errors import UserError

figures = load_script(RECIPES / "evidence/figures.py")


def test_of_several_settings_the_tables_have_those_that_validation_prefers():
    """By the mean of an arm's runs with the same text: one lucky run does not decide. Other kinds of results are as they were."""
    lines = [
        {"place": place, "kind": "translation", "arm": arm, "data": data, "lr": lr, "dropout": dropout, "valid_loss": loss}
        for place, (arm, data, lr, dropout, loss) in enumerate([
            ("veco", "d.8", "1e-3", "0.1", 4.0), ("veco", "d.8", "1e-3", "0.3", 4.4), ("veco", "d.8", "1e-3", "0.1", 5.0),
            ("veco", "d.8", "1e-3", "0.3", 4.5), ("veco", "d.8", "2e-3", "0.3", 4.6), ("veco", "d.9", "1e-3", "0.1", 4.7),
            ("xlm", "d.8", "1e-3", "0.1", 4.9), ("xlm", "d.8", "2e-3", "0.1", 4.8),
        ])
    ]  # fmt: skip
    bible = {"place": 8, "kind": "translation", "set": "bible", "arm": "xlm", "data": "d.8", "valid_loss": 5.0}
    cost = {"place": 9, "kind": "cost", "arm": "xlm"}
    assert [line["place"] for line in figures.of_best_settings([*lines, bible, cost])] == [1, 3, 5, 7, 8, 9]


def test_what_tells_two_lines_apart(tmp_path):
    """A retrieval has no seed of fine-tuning, and a cost only that of pre-training. A machine stands where two ran the same seeds."""
    file = tmp_path / "results.jsonl"
    kinds = {
        "translation": {"arm": "nmt", "data": "d", "pretraining": "1", "seed": "1"},
        "understanding": {"task": "t", "arm": "nmt", "plug": "out", "pretraining": "1", "seed": "1"},
        "retrieval": {"task": "t", "arm": "nmt", "pretraining": "1"},
        "cost": {"arm": "nmt", "seed": "1"},
    }
    lines = [
        {"kind": kind, **of, **change}
        for kind, of in kinds.items()
        for change in ({}, {}, *({name: "xlm" if name == "arm" else "2"} for name in of))
    ]
    file.write_text("".join(json.dumps({**line, "place": place}) + "\n" for place, line in enumerate(lines)))
    again = {0, 6, 13, 18}  # the first line of each kind is there twice
    assert [line["place"] for line in figures.read_results(file)] == [place for place in range(22) if place not in again]
    file.write_text(
        "".join(json.dumps({**lines[0], "kind": "cost", **of}) + "\n" for of in ({}, {"set": "bible"}, {"set": "captions"}))
    )
    assert [line.get("set") for line in figures.read_results(file)] == ["captions", "bible"]
    elsewhere = [lines[0], {**lines[0], "machine": "A"}, {**lines[0], "machine": "B"}, {**lines[0], "machine": "A"}]
    file.write_text("".join(json.dumps({**line, "place": place}) + "\n" for place, line in enumerate(elsewhere)))
    assert [line["place"] for line in figures.read_results(file)] == [0, 3, 2]  # the same seeds on three machines
    tried = [lines[0], {**lines[0], "lr": "1e-3"}, {**lines[0], "lr": "1e-3", "dropout": "0.3"}, {**lines[0], "lr": "1e-3"}]
    file.write_text("".join(json.dumps({**line, "place": place}) + "\n" for place, line in enumerate(tried)))
    assert [line["place"] for line in figures.read_results(file)] == [0, 3, 2]  # the same seeds with three settings
    file.write_text("")
    with pytest.raises(UserError, match=r"results.jsonl: has no results: run compare.sh first"):
        figures.read_results(file)
    file.write_text(json.dumps(lines[0]) + "\n[1]\n")
    with pytest.raises(UserError, match="results.jsonl, line 2: is not a line of results: remove it"):
        figures.read_results(file)
