# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Retrieval: pooled states against fairseq's RoBERTa, search and margins against loops, mining worked out by hand."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import error_line, make_dictionary, save_with_vocabulary
from fairseq.models.roberta import RobertaModel

from veco_fairseq.errors import UserError
from veco_fairseq.inference.pretrained import chosen_layers, load_pretrained
from veco_fairseq.retrieval import search
from veco_fairseq.retrieval.mining import Pair, best_threshold, figures, mine, read_gold, read_sentences
from veco_fairseq.retrieval.search import Candidates, accuracy, candidates
from veco_fairseq.retrieval.states import pooled_states, sentence_states
from veco_fairseq.retrieval.tatoeba import read_pair

PAD = make_dictionary().pad()
WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnr"]
LINES = [" ".join(WORDS[(7 * number + 3 * place) % len(WORDS)] for place in range(number % 5 + 1)) for number in range(30)]


@pytest.fixture
def saved(tmp_path, make_model):
    return save_with_vocabulary(tmp_path / "pretrained", make_model, LINES, 40)


def unit(n, dim, seed):
    return F.normalize(torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_pooled_states_are_the_means_of_robertas(make_model):
    model = make_model()
    roberta = RobertaModel.build_model(model.args, SimpleNamespace(source_dictionary=make_dictionary())).eval()
    roberta.load_state_dict({k: v for k, v in model.state_dict().items() if ".encoder_attn" not in k}, strict=True)
    tokens = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 10, 2, PAD, PAD]])
    with torch.no_grad():
        found = pooled_states(model, tokens)
        _, extra = roberta(tokens, features_only=True, return_all_hiddens=True)
        inner = [state.transpose(0, 1) for state in extra["inner_states"]]
        assert len(found) == len(inner) == 4
        for pooled, states in zip(found, inner, strict=True):
            assert torch.allclose(pooled[0], states[0].mean(0), atol=1e-5)
            assert torch.allclose(pooled[1], states[1, :4].mean(0), atol=1e-5)
        assert torch.allclose(pooled_states(model, tokens[1:, :4])[:, 0], found[:, 1], atol=1e-5)
    assert not any(layer._forward_hooks for layer in model.encoder.sentence_encoder.layers)


def test_sentence_states_keep_the_order_and_do_not_depend_on_the_batch(saved, capsys):
    pretrained = load_pretrained(str(saved), cpu=True)
    together = sentence_states(pretrained, LINES, layers=[0, 3])
    assert together.shape == (2, 30, 16) and torch.allclose(together.norm(dim=-1), torch.ones(2, 30))
    assert torch.allclose(sentence_states(pretrained, LINES, layers=[0, 3], max_tokens=1), together, atol=1e-6)
    alone = sentence_states(pretrained, LINES[17:18], layers=[3])
    assert torch.allclose(alone[0, 0], together[1, 17], atol=1e-6)
    assert capsys.readouterr().err == ""
    found = sentence_states(pretrained, ["", " ".join(LINES), " \u200b"], layers=[3], name="text")[0]
    assert found.isfinite().all() and found[0].equal(found[2])
    assert capsys.readouterr().err == (
        "text: empty lines: 2; all have the same states, so leave them out in both texts\n"
        "text: lines cut, since the model has fewer positions: 1\n"
    )


def test_search_by_chunks_is_exact(monkeypatch):
    x, y = unit(7, 5, seed=1), unit(23, 5, seed=2)
    expected = (x @ y.t()).topk(4)
    for queries, keys in ((1024, 65536), (3, 2), (1, 23)):
        monkeypatch.setattr(search, "QUERIES_A_CHUNK", queries)
        monkeypatch.setattr(search, "KEYS_A_CHUNK", keys)
        similarities, indices = search._nearest_by_chunks(x, y, 4)
        assert torch.allclose(similarities, expected.values) and torch.equal(indices, expected.indices)
    assert search.nearest(x, y[:3], 10)[1].shape == (7, 3)


def test_search_by_faiss_is_the_same():
    pytest.importorskip("faiss", reason="faiss is not installed: pip install faiss-cpu")
    x, y = unit(7, 5, seed=1), unit(23, 5, seed=2)
    (found, places), (expected, indices) = search.nearest(x, y, 4), search._nearest_by_chunks(x, y, 4)
    assert torch.allclose(found, expected, atol=1e-6) and torch.equal(places, indices)


@pytest.mark.parametrize("by_faiss", [True, False])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_states_may_be_of_any_type_and_on_another_device_than_new_tensors(kind, by_faiss, monkeypatch):
    """The similarities are those of fp32; what carries gradients is searched, too."""

    def knn(queries, keys, k, metric):
        assert (queries.dtype, keys.dtype, metric) == (np.float32, np.float32, "inner product")
        places = (-queries @ keys.T).argsort(1)[:, :k]
        return np.take_along_axis(queries @ keys.T, places, 1), places

    faiss = SimpleNamespace(knn=knn, METRIC_INNER_PRODUCT="inner product")
    monkeypatch.setitem(sys.modules, "faiss", faiss if by_faiss else None)
    x, y = (states.to(kind).requires_grad_() for states in (unit(9, 5, seed=1), unit(9, 5, seed=2)))
    expected = (x.float() @ y.float().t()).topk(4)
    with torch.device("meta"):  # where a tensor without a place of its own would be made
        found, places = search.nearest(x, y, 4)
        forward, backward = candidates(x, y, "cosine", 4)
        share = accuracy(forward)
    assert found.dtype == torch.float32 and torch.allclose(found, expected.values, atol=1e-6)
    assert torch.equal(places, expected.indices) and share == (places[:, 0] == torch.arange(9)).sum() / 9
    assert len(mine(forward, backward)) > 3


@pytest.mark.parametrize("score", ["cosine", "csls", "ratio"])
def test_scores_against_a_loop(score):
    x, y, k = unit(6, 4, seed=3), unit(9, 4, seed=4), 3
    cosine = x @ y.t()
    forward, backward = candidates(x, y, score, k)
    for i in range(6):
        for j in range(9):
            r_x = sum(sorted(cosine[i].tolist())[-k:]) / k
            r_y = sum(sorted(cosine[:, j].tolist())[-k:]) / k
            c = cosine[i, j].item()
            expected = {"cosine": c, "csls": 2 * c - r_x - r_y, "ratio": c / ((r_x + r_y) / 2)}[score]
            for found, row, column in ((forward, i, j), (backward, j, i)):
                for value in found.scores[row][found.indices[row] == column].tolist():
                    assert value == pytest.approx(expected, abs=1e-5)
    assert forward.indices.shape == (6, k) and backward.indices.shape == (9, k)


def test_a_margin_passes_a_hub_by():
    """y0 is the nearest to everything; the margin finds x1's own translation."""
    x = torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    y = torch.tensor([[0.96, 0.28], [0.28, 0.96]])
    # cosines: x0: 0.96, 0.28; x1: 0.936, 0.8. r(x) = 0.62, 0.868; r(y) = 0.948, 0.54
    assert accuracy(candidates(x, y, "cosine", 2)[0]) == 0.5
    forward, _ = candidates(x, y, "csls", 2)
    assert forward.scores[1].tolist() == pytest.approx([2 * 0.936 - 0.868 - 0.948, 2 * 0.8 - 0.868 - 0.54], abs=1e-5)
    assert accuracy(forward) == 1.0
    with pytest.raises(UserError, match="--score dot: there is cosine, csls, ratio"):
        candidates(x, y, "dot")


def test_mining_by_hand():
    forward = Candidates(torch.tensor([[0.9, 0.1], [0.8, 0.7], [0.2, 0.1]]), torch.tensor([[1, 0], [1, 2], [2, 0]]))
    backward = Candidates(torch.tensor([[0.1], [0.9], [0.7]]), torch.tensor([[0], [0], [1]]))
    # best of x: 0-1 (0.9), 1-1 (0.8), 2-2 (0.2); of y: 0-0 (0.1), 1-0 (0.9), 2-1 (0.7).
    # 0-1 first; 1-1 has y1 taken; 1-2 (0.7) from y2's side; 2-2 has y2 taken; 0-0 has x0 taken.
    mined = mine(forward, backward)
    assert [(pair.x, pair.y) for pair in mined] == [(0, 1), (1, 2)]
    assert [pair.score for pair in mined] == pytest.approx([0.9, 0.7])


def test_threshold_by_hand():
    mined = [Pair(0, 0, 0.9), Pair(1, 5, 0.8), Pair(2, 2, 0.6), Pair(3, 7, 0.4), Pair(4, 8, 0.2)]
    gold = {(0, 0), (2, 2), (9, 9)}
    # F1 of the first n: 2/4, 2/5, 4/6, 4/7, 4/8
    assert best_threshold(mined, gold) == pytest.approx(0.5)
    found = figures([pair for pair in mined if pair.score >= 0.5], gold)
    assert found == {"precision": pytest.approx(2 / 3), "recall": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}
    tied = [Pair(0, 0, 0.9), Pair(1, 5, 0.9)]  # one cannot be had without the other
    assert best_threshold(tied, gold) == 0.9
    assert figures([], gold) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_tatoeba(saved, tmp_path, run):
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in dict.fromkeys(LINES)))
    (tmp_path / "b").write_text((tmp_path / "a").read_text())
    command = ("scripts/retrieve.py", "tatoeba", saved, "--pairs")
    pair = f"same={tmp_path}/a,{tmp_path}/b"
    result = run(*command, pair, f"again={tmp_path}/b,{tmp_path}/a", "--json", tmp_path / "x.json", "--cpu")
    assert result.returncode == 0, result.stderr
    of_layers = json.loads((tmp_path / "x.json").read_text())
    of_layers = of_layers["accuracy"]
    assert set(of_layers) == {"same", "again", "mean"} and set(of_layers["mean"]) == set("0123")
    assert all(value == [1.0, 1.0] for value in of_layers["mean"].values())
    assert result.stdout.splitlines()[-1].split()[:4] == ["mean", "100.0", "/", "100.0"]
    chosen = run(*command, pair, "--layers", 3, 1, 3, "--cpu")  # each once, in order
    assert [line.split() for line in chosen.stdout.splitlines()[1:]] == [["1", "3"], ["same", *["100.0", "/", "100.0"] * 2]]

    (tmp_path / "b").write_text("one\n")
    assert "b has 1: line N of the one must be the translation" in error_line(run(*command, pair))
    for wrong in ("same", "same=a", "a,b"):
        with pytest.raises(UserError, match=f"--pairs {wrong}: not NAME=SRC,TGT"):
            read_pair(wrong)
    with pytest.raises(UserError, match="no such file"):
        read_pair(f"same={tmp_path}/none,{tmp_path}/b")
    with pytest.raises(UserError, match="--layers 4: the model has layers 1 to 3"):
        chosen_layers(load_pretrained(str(saved)), ["1", "4"], "--layers")


def test_bucc(saved, tmp_path, run):
    lines = list(dict.fromkeys(LINES))
    for side, numbers in (("x", range(len(lines))), ("y", reversed(range(5, len(lines))))):
        (tmp_path / side).write_text("".join(f"{side}-{number}\t{lines[number]}\n" for number in numbers))
    (tmp_path / "gold").write_text("".join(f"x-{number}\ty-{number}\n" for number in range(5, len(lines))))
    command = ("scripts/retrieve.py", "bucc", saved, "--source", tmp_path / "x", "--target", tmp_path / "y", "--cpu")
    files = ("--output", tmp_path / "pairs", "--json", tmp_path / "x.json")
    result = run(*command, "--gold", tmp_path / "gold", "--score", "cosine", *files)
    assert result.returncode == 0 and "precision 100.0, recall 100.0, f1 100.0" in result.stdout, result.stderr
    assert f", of {len(lines)} and {len(lines) - 5} sentences\n" in result.stdout
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["f1"] == 1.0 and found["pairs"] == len(lines) - 5 and found["layer"] == 3
    pairs = [line.split("\t")[1:] for line in (tmp_path / "pairs").read_text().splitlines()]
    assert all(x[1:] == y[1:] for x, y in pairs) and len(pairs) == len(lines) - 5
    assert "give --gold" in error_line(run(*command))


def test_the_files_of_bucc(tmp_path):
    gold = tmp_path / "gold"
    gold.write_text("x-1\ty-2\n")
    assert read_gold(gold, ["x-0", "x-1"], ["y-0", "y-1", "y-2"]) == {(1, 2)}
    with pytest.raises(UserError, match="gold, line 1: there is no sentence y-2"):
        read_gold(gold, ["x-1"], ["y-1"])
    gold.write_text("x-1 y-2\n")
    with pytest.raises(UserError, match="gold, line 1: has no tab"):
        read_gold(gold, ["x-1"], ["y-2"])
    text = tmp_path / "x"
    text.write_text("x-1\tone\nx-1\ttwo\n")
    with pytest.raises(UserError, match="x, line 2: the id x-1 is there twice"):
        read_sentences(text)
    text.write_text("")
    with pytest.raises(UserError, match="x: is empty"):
        read_sentences(text)


def test_layers_are_chosen_by_number_and_the_last_one_is_one_of_them(saved):
    pretrained = load_pretrained(str(saved), cpu=True)
    assert chosen_layers(pretrained, None, "--layers") == [0, 1, 2, 3]
    assert chosen_layers(pretrained, ["3", "0"], "--layers") == [3, 0]
    for word in ("4", "-1", "x"):
        with pytest.raises(UserError, match=f"--layers {word}: the model has layers 1 to 3, and 0 for the embeddings"):
            chosen_layers(pretrained, [word], "--layers")
    for layer in (-1, 4):  # of which the first had been the last layer
        with pytest.raises(UserError, match=f"^--layers {layer}: the model has layers 1 to 3, and 0 for the embeddings$"):
            sentence_states(pretrained, LINES[:1], layers=[3, layer])


def test_a_head_can_be_trained_on_sentence_states(saved):
    """They had been tensors of PyTorch's inference mode, which autograd refuses."""
    (states,) = sentence_states(load_pretrained(str(saved)), LINES[:2], layers=[3])
    weight = torch.ones(states.shape[1], requires_grad=True)
    (states @ weight).sum().backward()
    assert torch.equal(weight.grad, states.sum(0)) and not states.requires_grad
