# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is said of a text while it is encoded and afterwards: speed, lines, documents, tokens, and the table."""

import gzip

import numpy as np
import pytest

from veco_fairseq.data.prepare import encoding
from veco_fairseq.data.prepare.encoding import Clock, Counts, Position, Text
from veco_fairseq.data.prepare.preparation import report_table
from veco_fairseq.errors import UserError


def test_the_clock_tells_the_speed_of_this_run_and_when_to_note(monkeypatch, capsys):
    """It began at 1,000 seconds, after 100 lines of a run before."""
    now = [1000.0]
    monkeypatch.setattr(encoding.time, "time", lambda: now[0])
    clock, said = Clock("xx", 123_456, 100), []
    for seconds, done, has_come in (
        (10, 600, False), (12.5, 100_100, False), (22.5, 100_200, False), (25, 100_100, False), (30, 100_150, False),
        (30.5, 100_160, True), (60.5, 100_170, False), (61, 100_180, True),
    ):  # fmt: skip
        now[0] = 1000 + seconds
        assert clock.has_come(done) == has_come, seconds
        said.append(capsys.readouterr().out)
    assert said[1] == "xx: 100,100 of about 123,456 lines, 8,000 a second\n"
    assert said[3] == "xx: 100,100 of about 123,456 lines, 4,000 a second\n"
    assert [bool(words) for words in said] == [False, True, False, True, False, False, True, False]


def test_documents_go_on_from_one_batch_to_the_next():
    """Texts of 2, 0, 0, 1 | 3 | 0 | 0, 1 tokens beside </s>: documents of one line, of two, and of one; 3 is <unk>."""
    counts = Counts()
    for ids in ([[5, 3, 2], [2], [2], [6, 2]], [[3, 3, 7, 2]], [[2]], [[2], [8, 2]]):
        counts.add(np.concatenate(ids), np.array([len(line) for line in ids], dtype=np.int32), 3)
    assert counts == Counts(lines=4, documents=3, tokens=7, unknown=3, in_document=True)


def test_the_table_of_a_root_by_hand():
    """Pairs have no documents, dropped pairs stand beside the training split, and a part without splits has no row."""
    numbers = {"lines": 1234, "tokens": 40_000, "unknown": 250}
    reports = {
        "vocabulary": {"tokens": 5},
        "mono/xx": {"dropped": 0, "splits": {"train": {"xx": {**numbers, "documents": 1000}},
                                             "valid": {"xx": {"lines": 1, "documents": 1, "tokens": 1, "unknown": 1}}}},
        "bitext/xx-yy": {"dropped": 1500, "splits": {"train": {"yy": numbers}, "valid": {"yy": dict.fromkeys(numbers, 0)}}},
    }  # fmt: skip
    assert report_table(reports).split("\n") == [
        "part          split  language  lines  documents  dropped  tokens  unknown  unknown %",
        "bitext/xx-yy  train  yy        1,234          -    1,500  40,000      250      0.625",
        "bitext/xx-yy  valid  yy            0          -        -       0        0      0.000",
        "mono/xx       train  xx        1,234      1,000        -  40,000      250      0.625",
        "mono/xx       valid  xx            1          1        -       1        1    100.000",
    ]


def pair_of_texts(folder, name, lines):
    paths = folder / f"{name}.xx", folder / f"{name}.yy.gz"
    paths[0].write_text("".join(f"{line} x\n" for line in lines))
    with gzip.open(paths[1], "wt") as file:
        file.write("\n".join(f"{line} y" for line in lines))  # the last line has no end
    return paths


@pytest.mark.parametrize("rows", range(8))
def test_blocks_go_on_after_any_row_of_any_text(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(encoding, "LINES_A_BATCH", 2)
    texts = [Text(pair_of_texts(tmp_path, "a", "abcde"), "train"), Text(pair_of_texts(tmp_path, "b", "fg"), "valid")]
    position = Position(0, rows, 0, rows) if rows < 6 else Position(1, rows - 5, 0, rows)
    found = list(encoding._blocks(texts, position))
    assert [letter for _, _, (left, right) in found for letter in left.decode().replace(" x\n", "")] == list("abcdefg"[rows:])
    assert [number for number, count, _ in found for _ in range(count)] == ([0] * 5 + [1] * 2)[rows:]
    for _, count, (left, right) in found:
        assert left.decode().replace("x", "y").split("\n")[:count] == right.decode().split("\n")[:count]
    assert max((count for _, count, _ in found), default=2) == (2 if rows != 6 else 1)


def test_a_side_that_lost_lines_is_told(tmp_path):
    paths = pair_of_texts(tmp_path, "a", "abc")
    paths[0].write_text("a x\n")
    with pytest.raises(UserError, match=rf"{paths[0]} and {paths[1]}: were changed while they were read: start again"):
        list(encoding._blocks([Text(paths, "train")], Position()))


def test_the_position_counts_the_rows_of_each_text():
    position = Position()
    for text, rows, kept in ((0, 5, 3), (0, 4, 4), (1, 2, 1), (1, 6, 0)):
        position.add(text, rows, kept)
    assert position == Position(text=1, rows=8, kept=1, done=17)


def test_rows_go_to_their_split_by_the_number_among_those_that_are_kept():
    text = Text((), "train", lambda numbers: numbers % 3 == 1)
    sides = [(np.array([1, 2, 3, 4, 5, 6]), np.array([2, 1, 3])), (np.array([7, 8, 9]), np.array([1, 1, 1]))]
    found = {key: (ids.tolist(), sizes.tolist()) for key, (ids, sizes) in encoding._by_split(text, 11, sides)}
    assert found == {
        ("train", 0): ([1, 2, 3], [2, 1]), ("train", 1): ([7, 8], [1, 1]),  # of the numbers 11 and 12
        ("valid", 0): ([4, 5, 6], [3]), ("valid", 1): ([9], [1]),  # and 13
    }  # fmt: skip
    assert [key for key, _ in encoding._by_split(Text((), "test"), 0, sides)] == [("test", 0), ("test", 1)]
    assert [key for key, _ in encoding._by_split(text, 0, [(np.array([1, 1]), np.array([2]))])] == [("train", 0)]
    assert list(encoding._by_split(text, 1, [(np.array([]), np.array([]))])) == []
