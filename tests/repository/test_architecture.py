# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""docs/architecture.md: the words that lead to each equation are in their files, and the rooms are those that there are."""

import re

import pytest
from conftest import REPOSITORY
from support.house import FLOORS

TEXT = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (VECO|XLM-E|VoCap) \| (.+?) \| `(\S+?)` \| `(.+)` \|$", TEXT, re.MULTILINE)
CORE = ("modules/layer", "modules/encoder", "models/veco", "modules/prediction", "criterions/camlm", "criterions/base")


@pytest.mark.parametrize("paper, equation, file, words", ROWS)
def test_the_words_are_found_once(paper, equation, file, words):
    code = (REPOSITORY / "veco_fairseq" / file).read_text(encoding="utf-8")
    assert code.count(words.replace(r"\|", "|")) == 1


def test_every_numbered_equation_has_a_row():
    found = {paper: set() for paper in ("VECO", "XLM-E", "VoCap")}
    for paper, equation, _, _ in ROWS:
        for first, last in re.findall(r"^(\d+)(?:-(\d+))?", equation):
            found[paper].update(range(int(first), int(last or first) + 1))
        found[paper].update(int(number) for number in re.findall(r"^\d+ and (\d+)", equation))
    assert found["VECO"] == set(range(1, 14)) and found["VoCap"] == set(range(1, 7))
    assert found["XLM-E"] == {1, 2, 3, 4, 5, 7, 9, 10}  # 6 and 8 are the attention of every Transformer


def test_every_room_is_in_the_table():
    rooms = {room for floor in FLOORS for room in floor} - {"__init__"}
    table = TEXT[TEXT.index("| layer |") : TEXT.index("## VECO in half an hour")]
    assert {
        name.strip("/").removesuffix(".py")
        for line in table.splitlines()[2:]
        if line
        for name in re.findall(r"`(\S+?)`", line.split("|")[2])
    } == rooms


def test_the_core_is_700_lines_at_most_and_veco_alone():
    files = [(REPOSITORY / f"veco_fairseq/{name}.py").read_text(encoding="utf-8") for name in CORE]
    assert sum(len(text.splitlines()) for text in files) <= 700
    assert not [
        name for name, text in zip(CORE, files, strict=True) for word in ("xlme", "nlu", "KnnTarget", "sampler") if word in text
    ]
