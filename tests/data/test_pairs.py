# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Segments and pairs, with numbers worked out by hand."""

import numpy as np
import pytest
from conftest import random_lines, write_tokens

from veco_fairseq.data.pairs import AdjacentSegments, BitextPairs
from veco_fairseq.data.tokens import load_tokens
from veco_fairseq.errors import UserError


def segments(tmp_path, lines, max_length):
    write_tokens(tmp_path / "train", lines)
    return AdjacentSegments("aa", load_tokens(tmp_path / "train"), max_length)


def read(source):
    return [(x.tolist(), y.tolist()) for x, y in (source[i] for i in range(len(source)))]


def test_lines_are_packed_and_neighbours_pair_up(tmp_path):
    # Capacity 5: lines of 3, 2 | 4, 1 | 1, 3 | 5 tokens make segments of 5, 5, 4, 5.
    lines = [[10, 11, 12], [13, 14], [15, 16, 17, 18], [19], [20], [21, 22, 23], [24, 25, 26, 27, 28]]
    source = segments(tmp_path, lines, max_length=7)
    assert read(source) == [
        ([10, 11, 12, 13, 14], [15, 16, 17, 18, 19]),
        ([20, 21, 22, 23], [24, 25, 26, 27, 28]),
    ]
    assert source.lengths.tolist() == [[7, 7], [6, 7]]
    assert (source.sentences, source.documents, source.dropped) == (7, 1, 0)


def test_a_lone_last_segment_is_halved_or_dropped(tmp_path):
    source = segments(tmp_path, [[10, 11, 12], [13, 14, 15], [16, 17, 18], [], [19], [], [20, 21]], max_length=5)
    assert read(source) == [([10, 11, 12], [13, 14, 15]), ([16], [17, 18]), ([20], [21])]
    assert source.dropped == 1
    assert read(segments(tmp_path, [list(range(10, 17))], max_length=9)) == [([10, 11, 12], [13, 14, 15, 16])]


def test_a_segment_of_one_token_keeps_its_partner(tmp_path):
    assert read(segments(tmp_path, [[10, 11, 12], [13]], max_length=5)) == [([10, 11, 12], [13])]


def test_a_long_line_is_cut(tmp_path):
    source = segments(tmp_path, [[10, 11], list(range(20, 31)), [12]], max_length=6)
    assert read(source) == [([10, 11], [20, 21, 22, 23]), ([24, 25, 26, 27], [28, 29, 30, 12])]
    one_too_long = segments(tmp_path, [[10, 11, 12, 13, 14], [15]], max_length=6)
    assert read(one_too_long) == [([10, 11, 12, 13], [14, 15])]


def test_segments_never_cross_documents_and_keep_every_token(tmp_path):
    rng = np.random.default_rng(3)
    lines, document = [], 0
    for line in random_lines(rng, 400, longest=30):
        if rng.random() < 0.2:
            lines.append([])
            document += 1
        lines.append([4 + document] * len(line))  # a token tells its document
    source = segments(tmp_path, lines, max_length=20)
    tokens = 0
    for (x, y), lengths in zip(read(source), source.lengths.tolist(), strict=True):
        assert len(set(x + y)) == 1, "a pair of two documents"
        assert lengths == [len(x) + 2, len(y) + 2] and max(lengths) <= 20 and min(lengths) >= 3
        tokens += len(x) + len(y)
    assert tokens + source.dropped == sum(len(line) for line in lines)
    assert 0 < len(source) and source.documents == document + 1


@pytest.mark.parametrize("lines", [[[5], [], [6]], [[]], [[], []]], ids=["single tokens", "a blank line", "blank lines"])
def test_no_pair_is_an_error(tmp_path, lines):
    with pytest.raises(UserError, match="aa: no document of at least two tokens"):
        segments(tmp_path, lines, max_length=8)


def bitext(tmp_path, source, target, max_length=6):
    for side, lines in (("aa", source), ("bb", target)):
        write_tokens(tmp_path / side, lines)
    return BitextPairs("aa-bb", load_tokens(tmp_path / "aa"), load_tokens(tmp_path / "bb"), max_length)


def test_long_and_empty_pairs_are_dropped_and_counted(tmp_path):
    pairs = bitext(tmp_path, [[10], [11] * 5, [12, 13], [], [14]], [[20, 21], [22], [23] * 4, [24], [25] * 5])
    assert read(pairs) == [([10], [20, 21]), ([12, 13], [23] * 4)]
    assert (pairs.sentences, pairs.dropped, pairs.lengths.tolist()) == (2, 3, [[3, 4], [4, 6]])


def test_no_pair_that_is_short_enough_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"aa-bb: no pair has at most 6 tokens a side \(--bitext-max-length\)"):
        bitext(tmp_path, [[10] * 5, [11]], [[20], [21] * 5])


def test_unequal_sides_are_an_error(tmp_path):
    with pytest.raises(UserError, match=r"aa-bb: 2 lines on one side .*aa.* and 1 on the other"):
        bitext(tmp_path, [[10], [11]], [[12]])


def test_a_truncated_token_file_is_an_error(tmp_path):
    write_tokens(tmp_path / "train", [[10, 11], [12]])
    data = (tmp_path / "train.bin").read_bytes()
    (tmp_path / "train.bin").write_bytes(data[:-2])
    with pytest.raises(UserError, match="has 8 bytes where its index says 10"):
        load_tokens(tmp_path / "train")
    (tmp_path / "train.idx").write_bytes(b"not an index at all")
    with pytest.raises(UserError, match="not an index"):
        load_tokens(tmp_path / "train")
