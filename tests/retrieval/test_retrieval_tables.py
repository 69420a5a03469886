# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What retrieval prints, writes and leaves to its defaults."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_dictionary
from support.progress import Bar

from veco_fairseq.errors import UserError
from veco_fairseq.retrieval import states as pooling
from veco_fairseq.retrieval import tatoeba
from veco_fairseq.retrieval.mining import Pair, best_threshold, figures, mine, read_gold, read_sentences, write_pairs
from veco_fairseq.retrieval.search import Candidates, candidates
from veco_fairseq.retrieval.states import pooled_states, sentence_states


def test_pairs_are_written_with_their_scores(tmp_path):
    write_pairs(tmp_path / "pairs", [Pair(1, 0, 1.23456789), Pair(0, 2, -0.5)], ["x-0", "x-1"], ["y-0", "y-1", "y-2"])
    assert (tmp_path / "pairs").read_text() == "1.234568\tx-1\ty-0\n-0.500000\tx-0\ty-2\n"


def test_files_of_bucc_without_a_pair_or_a_source_are_told(tmp_path):
    path = tmp_path / "gold"
    path.write_text("")
    with pytest.raises(UserError, match="gold: is empty"):
        read_gold(path, ["a"], ["b"])
    path.write_text("a\tb\nc\tb\n")
    with pytest.raises(UserError, match="gold, line 2: there is no sentence c"):
        read_gold(path, ["a"], ["b", "c"])
    path.write_text("a\tone\ttwo\nb\t\n")
    assert read_sentences(path) == {"a": "one\ttwo", "b": ""}
    path.write_text("a\tb\n\nc\td\n\n \n")
    assert read_sentences(path) == {"a": "b", "c": "d"} and read_gold(path, ["c", "a"], ["b", "d"]) == {(1, 0), (0, 1)}
    path.write_text("\n")
    with pytest.raises(UserError, match="gold: is empty"):
        read_sentences(path)


def test_of_equal_scores_the_first_sentence_is_taken():
    same = torch.tensor([[0.5], [0.5]])
    mined = mine(Candidates(same, torch.tensor([[1], [1]])), Candidates(same, torch.tensor([[1], [0]])))
    assert [tuple(pair) for pair in mined] == [(0, 1, 0.5), (1, 0, 0.5)]
    # of both directions: x0, which y0 finds, comes before x1, which finds y0
    forward = Candidates(torch.tensor([[0.25], [0.5]]), torch.tensor([[1], [0]]))
    backward = Candidates(torch.tensor([[0.5], [0.25]]), torch.tensor([[0], [1]]))
    assert [tuple(pair) for pair in mine(forward, backward)] == [(0, 0, 0.5), (1, 1, 0.25)]
    assert best_threshold([Pair(0, 0, 0.75), Pair(1, 1, 0.25)], {(0, 0), (1, 1)}) == 0.25  # all are kept


def test_the_best_candidate_is_mined_and_not_the_nearest():
    """A margin can put the second of the nearest sentences first, of each side."""
    one, two = (
        Candidates(torch.tensor([[0.25, 0.75]]), torch.tensor([[0, 1]])),
        Candidates(torch.zeros(2, 1), torch.zeros(2, 1).long()),
    )
    assert [tuple(pair) for pair in mine(one, two)] == [(0, 1, 0.75)]
    assert [tuple(pair) for pair in mine(two, one)] == [(1, 0, 0.75)]


def test_a_threshold_is_chosen_by_what_it_can_keep():
    """The first pair alone would have F1 2/3, and cannot be had without the next three: 2/6; with all five it is 4/7."""
    scores, gold = (0.9, 0.9, 0.9, 0.9, 0.5), {(0, 0), (4, 4)}
    mined = [Pair(number, number if number in (0, 4) else number + 9, score) for number, score in enumerate(scores)]
    threshold = best_threshold(mined, gold)
    assert threshold == 0.5
    assert figures([pair for pair in mined if pair.score >= threshold], gold)["f1"] == pytest.approx(4 / 7)
    # F1 of the first n: 2/3, 2/4, 4/5
    assert best_threshold([Pair(0, 0, 0.9), Pair(1, 5, 0.8), Pair(4, 4, 0.6)], gold) == 0.6


def test_ten_neighbours_and_csls_are_the_defaults():
    x, y = (F.normalize(torch.randn(12, 4, generator=torch.Generator().manual_seed(seed)), dim=1) for seed in (1, 2))
    for found, expected in zip(candidates(x, y), candidates(x, y, "csls", 10), strict=True):
        assert found.scores.shape == (12, 10) and torch.equal(found.scores, expected.scores)


def test_accuracies_are_printed_by_layer_and_their_mean(monkeypatch, capsys):
    """At layer 0 both sides find each other; at layer 2 both x are nearest to y0, and each y to another x."""
    asked = []
    whole, hub = torch.eye(2), torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    states = {"x": torch.stack([whole, hub]), "y": torch.stack([whole, torch.tensor([[0.96, 0.28], [0.28, 0.96]])])}

    def sentences(pretrained, lines, *, layers, max_tokens, name):
        asked.append((pretrained, lines, layers, max_tokens, name))
        return states[lines[0]]

    monkeypatch.setattr(tatoeba, "sentence_states", sentences)
    sides = [(Path("a"), ["x"]), (Path("b"), ["y"])]
    options = {"layers": [0, 2], "score": "cosine", "neighbours": 2, "max_tokens": 77}
    found = tatoeba.evaluate("model", {"de": sides, "fr": sides[::-1]}, **options)
    assert asked[:2] == [("model", ["x"], [0, 2], 77, "a"), ("model", ["y"], [0, 2], 77, "b")]
    assert found == {"de": {"0": (1.0, 1.0), "2": (0.5, 1.0)}, "fr": {"0": (1.0, 1.0), "2": (1.0, 0.5)},
                     "mean": {"0": (1.0, 1.0), "2": (0.75, 0.75)}}  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "accuracy (%) by layer, to the target / to the source; score: cosine",
        "                     0             2",
        "de       100.0 / 100.0  50.0 / 100.0",
        "fr       100.0 / 100.0 100.0 /  50.0",
        "mean     100.0 / 100.0  75.0 /  75.0",
    ]
    options = {**options, "score": "csls"}  # by which x1 finds y1, too
    assert tatoeba.evaluate("model", {"de": sides}, **options) == {"de": {"0": (1.0, 1.0), "2": (1.0, 1.0)}}


def test_a_line_is_cut_to_the_models_positions_and_keeps_its_end(make_model, capsys, monkeypatch):
    model = make_model(max_positions=6)
    dictionary, shapes = make_dictionary(), []
    lines = {"fits": [0, 5, 6, 7, 8, 2], "long": [0, 9, 8, 7, 6, 5, 2], "cut": [0, 9, 8, 7, 6, 2]}

    def batch(rows):
        length = max(map(len, rows))
        shapes.append((len(rows), length))
        return torch.tensor([[*map(int, row), *[dictionary.pad()] * (length - len(row))] for row in rows])

    pretrained = SimpleNamespace(model=model, depth=3, dictionary=dictionary, batch=batch,
                                 sequences=lambda names: [np.array(lines[name]) for name in names])  # fmt: skip
    bars = Bar.put_into(monkeypatch, pooling)
    found = sentence_states(pretrained, ["fits", "long", "cut"], layers=[3, 1], max_tokens=17, name="text")
    assert shapes == [(2, 6), (1, 6)] and [(bar.desc, bar.total, bar.done) for bar in bars] == [("text", 3, 3)]
    assert capsys.readouterr().err == "text: lines cut, since the model has fewer positions: 1\n"
    with torch.no_grad():
        expected = F.normalize(pooled_states(model, batch([lines["fits"], lines["cut"], lines["cut"]])), dim=-1)
    assert torch.allclose(found, expected[[3, 1]], atol=1e-5)


@pytest.mark.parametrize("argument", ["de=a=b,c", "de=a,b,c"])
def test_a_pair_has_a_name_and_two_files(monkeypatch, argument):
    read = []
    monkeypatch.setattr(tatoeba, "read_translations", lambda *paths: read.extend(map(str, paths)) or (["s"], ["t"]))
    name, sides = tatoeba.read_pair(argument)
    first, second = ("a=b", "c") if "=b" in argument else ("a", "b,c")
    assert (name, read, sides) == ("de", [first, second], [(Path(first), ["s"]), (Path(second), ["t"])])
