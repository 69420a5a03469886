# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Gold links in the form of the shared tasks on word alignment."""

import pytest

from veco_fairseq.alignment.gold import Gold, read_gold
from veco_fairseq.errors import UserError

SOURCE, TARGET = ["a b c", "d", "e"], ["f g", "h i", "j"]


def test_each_line_is_a_link(tmp_path):
    """... of the pair of that number; all count from 1, S is the default, a word 0 is none, and a confidence may follow."""
    path = tmp_path / "gold"
    path.write_text("0001 1 1 S\n0001 3 2 P\n0003 1 1\n\n0001 2 0 S\n0001 0 2 P\n0002 1 2 S 0.75\n1 1 2 P\n")
    for first in (0, 1):
        assert read_gold(path, SOURCE, TARGET, first) == [
            Gold({(0, 0)}, {(0, 0), (2, 1), (0, 1)}), Gold({(0, 1)}, {(0, 1)}), Gold({(0, 0)}, {(0, 0)}),
        ]  # fmt: skip


@pytest.mark.parametrize("text, message", [
    ("1 1 1 S\n4 1 1 S\n", "line 2: 4 1 1 S: there are pairs 1 to 3: give the texts that these links are of"),
    ("0 1 1 S\n", "line 1: 0 1 1 S: there are pairs 1 to 3"),
    ("1 1 1 S\n2 2 1 P\n", "line 2: 2 2 1 P: the source sentence has words 1 to 1$"),
    ("1 1 1 S\n1-1\n", "line 2: 1-1 is no link as those before: PAIR i j S, or P"),
    ("1 1 1 P\n", "gold: has no sure link"),
])  # fmt: skip
def test_what_is_no_link_of_these_texts(tmp_path, text, message):
    (tmp_path / "gold").write_text(text)
    with pytest.raises(UserError, match=message):
        read_gold(tmp_path / "gold", SOURCE, TARGET)
