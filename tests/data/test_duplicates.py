# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which pairs veco clean has seen before."""

from unicodedata import normalize

import numpy as np
from data.test_cleaning import dropped, run_clean

from veco_fairseq.data.cleaning.cleaner import Seen


def test_a_pair_is_another_one_if_its_sides_end_elsewhere(tmp_path):
    """With the same text of both sides together."""
    pairs = [("ab", "cd"), ("abc", "d"), ("a", "bcd")]
    kept, report = run_clean(tmp_path, [*pairs, ("ab", "cd")])
    assert kept == pairs and dropped(report) == {"duplicate": 1}


def test_letters_that_are_composed_otherwise_are_the_same(tmp_path):
    """SentencePiece composes them, so that the model sees the same pair; what is kept stays as it is written."""
    apart = normalize("NFD", "Das Café öffnet")
    pairs = [("The café opens", apart), ("The cafe opens", apart)]
    again = [(normalize("NFD", source), normalize("NFC", target)) for source, target in pairs]
    kept, report = run_clean(tmp_path, [*pairs, *again, ("das CAFÉ öffnet", apart)])
    assert kept == pairs and dropped(report) == {"duplicate": 2, "copy": 1}
    assert apart != normalize("NFC", apart) and report["examples"]["copy"] == [(5, "das CAFÉ öffnet", apart)]


def test_numbers_that_were_there_before():
    rng = np.random.default_rng(1)
    seen, known = Seen(), set()
    for _ in range(60):
        numbers = rng.integers(0, 300_000, 5_000).astype(np.uint64) << np.uint64(rng.integers(0, 3) * 20)
        expected = []
        for number in numbers.tolist():
            expected.append((number or 1) not in known)
            known.add(number or 1)
        assert seen.add(numbers).tolist() == expected
    assert seen.count == len(known) and len(seen.table) == 2**19 and seen.add(np.array([], dtype=np.uint64)).tolist() == []


def test_the_number_0_is_seen_too():
    seen = Seen()
    assert [seen.add(np.array([0], dtype=np.uint64)).tolist() for _ in range(2)] == [[True], [False]]


def test_the_table_grows_when_it_is_three_quarters_full():
    seen = Seen()
    seen.add(np.arange(1, 3 * 2**14 + 1, dtype=np.uint64))
    assert len(seen.table) == 2**16
    assert seen.add(np.array([2**40, 7], dtype=np.uint64)).tolist() == [True, False] and len(seen.table) == 2**17
