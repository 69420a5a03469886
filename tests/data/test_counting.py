# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is said of a text while it is encoded and afterwards: speed, lines, documents, tokens, and the table."""

import numpy as np
import pytest

from veco_fairseq.data.prepare import encoding
from veco_fairseq.data.prepare.encoding import Clock, Counts
from veco_fairseq.data.prepare.preparation import report_table


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


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_rows_go_in_batches_of_one_size_and_the_rest(monkeypatch, count):
    """A split that has no line in a batch is left out of it."""
    monkeypatch.setattr(encoding, "LINES_A_BATCH", 2)
    rows = [("train", ("a", "x")), ("train", ("b", "y")), ("valid", ("c", "z"))][:count]
    keys = [(split, side) for split in ("train", "valid") for side in (0, 1)]
    batches = [(1, {("train", 0): b"a\n", ("train", 1): b"x\n"})] if count == 1 else [
        (2, {("train", 0): b"a\nb\n", ("train", 1): b"x\ny\n"}), (1, {("valid", 0): b"c\n", ("valid", 1): b"z\n"})][: count - 1]  # fmt: skip
    assert list(encoding.in_batches(iter(rows), keys)) == (batches if count else [])
