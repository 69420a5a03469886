# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Word alignment: transport against linear programming, links and error rates by hand, states against RoBERTa's."""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import error_line, save_with_vocabulary
from fairseq.models.roberta import RobertaModel
from scipy.optimize import linprog
from support.progress import Bar

from veco_fairseq.alignment import words as alignment
from veco_fairseq.alignment.gold import Gold, figures, read_gold
from veco_fairseq.alignment.transport import mutual, sinkhorn
from veco_fairseq.alignment.words import align, pharaoh, usual_layer
from veco_fairseq.errors import UserError
from veco_fairseq.files import split_words
from veco_fairseq.inference.batches import by_length
from veco_fairseq.inference.pretrained import load_pretrained

WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnr"]
LINES = [" ".join(WORDS[(7 * number + 3 * place) % len(WORDS)] for place in range(number % 6 + 1)) for number in range(48)]
SOURCE, TARGET = LINES[:24], LINES[26:] + LINES[24:26]  # of different lengths


@pytest.fixture
def saved(tmp_path, make_model):
    return save_with_vocabulary(tmp_path / "pretrained", make_model, LINES, 40)


def transport(*args, **options):
    return sinkhorn(*args, **options).exp()


def mass(*shares):
    return torch.tensor([shares], dtype=torch.double)


# ---------------------------------------------------------------------------------------------------------------------
# Transport


def test_one_iteration_by_hand():
    """u = (1/2, 1/2) / K v, v from (1/2, 1/2): (1/4, 1/2), K' u = (5/4, 3/4), v = (2/5, 2/3)."""
    cost = -torch.tensor([[[3.0, 1.0], [1.0, 1.0]]], dtype=torch.double).log()
    plan = transport(cost, mass(0.5, 0.5), mass(0.5, 0.5), regularisation=1.0, iterations=1)
    assert plan[0].flatten().tolist() == pytest.approx([3 / 10, 1 / 6, 1 / 5, 1 / 3])


def test_without_regularisation_it_is_the_linear_program():
    rng = np.random.default_rng(3)
    cost, a, b = rng.random((4, 5)), rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(5))
    rows, columns = np.kron(np.eye(4), np.ones(5)), np.kron(np.ones(4), np.eye(5))
    expected = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([a, b]))
    tensors = torch.from_numpy(cost)[None], mass(*a), mass(*b)
    plan = transport(*tensors, regularisation=1e-3, iterations=5000)
    assert torch.allclose(plan[0], torch.from_numpy(expected.x).view(4, 5), atol=1e-4)
    costs = [(transport(*tensors, regularisation=mu, iterations=5000) * tensors[0]).sum().item() for mu in (1.0, 0.1, 0.01)]
    assert costs[0] > costs[1] > costs[2] and costs[2] == pytest.approx(expected.fun, rel=0.05)


def test_marginals_and_optimality():
    rng = np.random.default_rng(4)
    cost, a, b = torch.from_numpy(rng.random((1, 3, 4))), mass(0.5, 0.3, 0.2), mass(0.1, 0.2, 0.3, 0.4)
    plan = transport(cost, a, b, regularisation=0.2, iterations=200)
    assert torch.allclose(plan.sum(2), a) and torch.allclose(plan.sum(1), b)
    assert torch.allclose(
        transport(cost, a, b, regularisation=0.2, iterations=1).sum(1), b
    )  # the columns from the first iteration on
    # At the optimum the objective's derivative, cost + regularisation (log A + 1), is a sum of a row's and a column's
    # part: whatever is moved around a rectangle changes nothing.
    slope = (cost + 0.2 * plan.log())[0]
    assert torch.allclose(slope[1:, 1:] - slope[:1, 1:] - slope[1:, :1] + slope[0, 0], torch.zeros(2, 3).double())


def test_padding_has_no_part_in_it():
    generator = torch.Generator().manual_seed(5)
    cost = torch.rand(2, 4, 5, generator=generator, dtype=torch.double)
    a = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0]], dtype=torch.double)
    b = torch.tensor([[0.2] * 5, [1 / 3] * 3 + [0, 0]], dtype=torch.double)
    plan = transport(cost, a, b, regularisation=0.1, iterations=3)
    alone = transport(cost[1:, :2, :3], a[1:, :2], b[1:, :3], regularisation=0.1, iterations=3)
    assert torch.allclose(plan[1, :2, :3], alone[0]) and plan[1].sum().item() == pytest.approx(alone.sum().item())
    places, i, j = mutual(plan)
    assert i[places == 1].max() < 2 and j[places == 1].max() < 3


@pytest.mark.parametrize("seed", [1, 17, 23])
def test_links_are_those_of_fp64_with_a_small_regularisation(seed):
    """Each best choice is better by 1e-9 or more. In fp32 numbers of hundreds cannot tell them apart, and whole rows are 0."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(3, 11, 16, generator=generator), torch.randn(3, 13, 16, generator=generator)
    cost = -(x @ y.transpose(1, 2)).clamp(min=1e-6).log()
    log_plan = -cost.double().numpy() / 0.02
    for axis in (2, 1, 2, 1):
        largest = log_plan.max(axis, keepdims=True)
        log_plan -= largest + np.log(np.exp(log_plan - largest).sum(axis, keepdims=True))
    best_y, best_x = log_plan.argmax(2), log_plan.argmax(1)
    expected = [(n, i, best_y[n, i]) for n in range(3) for i in range(11) if best_x[n, best_y[n, i]] == i]
    masses = torch.full((3, 11), 1 / 11), torch.full((3, 13), 1 / 13)
    links = mutual(sinkhorn(cost, *masses, regularisation=0.02, iterations=2))
    assert list(zip(*map(torch.Tensor.tolist, links))) == expected


def test_links_by_hand():
    """x0 and x1 both like y0 best, but x1 has no other choice: 9 * 2 < 8 * 8."""
    similarity = torch.tensor([[[9.0, 8.0, 1.0], [8.0, 2.0, 1.0]]])
    assert [numbers.tolist() for numbers in mutual(similarity)] == [[0], [0], [0]]
    third = torch.full((1, 3), 1 / 3)
    plan = transport(-similarity.log(), torch.full((1, 2), 0.5), third, regularisation=0.1, iterations=100)
    places, i, j = mutual(plan[:, :, :2])
    assert list(zip(i.tolist(), j.tolist())) == [(0, 1), (1, 0)] and places.tolist() == [0, 0]


# ---------------------------------------------------------------------------------------------------------------------
# Sentences


def test_words_are_between_spaces_and_tabs():
    assert split_words("  10\u00a0000  people\tsleep ") == ["10\u00a0000", "people", "sleep"]


def expected_links(pretrained, x, y, layer, apart):
    """One pair, in loops over what RoBERTa computes."""
    model, dictionary = pretrained.model, pretrained.dictionary
    roberta = RobertaModel.build_model(model.args, SimpleNamespace(source_dictionary=dictionary)).eval()
    roberta.load_state_dict({k: v for k, v in model.state_dict().items() if ".encoder_attn" not in k}, strict=True)
    ids, words = [], []
    for line in (x, y):
        pieces = [pretrained.encoder.model.encode(word, out_type=str) for word in line.split()]
        ids.append([dictionary.index(piece) for word in pieces for piece in word])
        words.append([number for number, word in enumerate(pieces) for _ in word])
    sequences = [[0, *side, 2] for side in ids] if apart else [[0, *ids[0], 2, 2, *ids[1], 2]]
    with torch.no_grad():
        states = [roberta(torch.tensor([row]), features_only=True, return_all_hiddens=True)[1] for row in sequences]
    states = [extra["inner_states"][layer][:, 0].numpy() for extra in states]
    of_x, of_y = (states[0][1:], states[1][1:]) if apart else (states[0][1:], states[0][len(ids[0]) + 3 :])
    k = np.maximum(of_x[: len(ids[0])] @ of_y[: len(ids[1])].T, 1e-6)
    for _ in range(2):  # as the paper has it: rows of 1, then columns of 1
        k = k / k.sum(1, keepdims=True)
        k = k / k.sum(0, keepdims=True)
    links = {
        (words[0][i], words[1][j])
        for i in range(len(ids[0])) for j in range(len(ids[1]))
        if j == k[i].argmax() and i == k[:, j].argmax()
    }  # fmt: skip
    return sorted(links)


@pytest.mark.parametrize("apart", [False, True], ids=["joined", "apart"])
def test_align_against_a_loop_over_robertas_states(saved, apart, monkeypatch):
    """A batch has the tokens of both sentences, and their ends."""
    pretrained = load_pretrained(str(saved), cpu=True)
    with torch.no_grad():  # as in trained models, states point to one side, and few of their products are negative
        pretrained.model.encoder.sentence_encoder.layers[1].final_layer_norm.bias.add_(0.7)
    found = align(pretrained, SOURCE, TARGET, layer=2, apart=apart)
    assert found == [expected_links(pretrained, x, y, 2, apart) for x, y in zip(SOURCE, TARGET)]
    asked = mock.Mock(side_effect=by_length)
    monkeypatch.setattr(alignment, "by_length", asked)
    bars = Bar.put_into(monkeypatch, alignment)
    assert align(pretrained, SOURCE, TARGET, layer=2, apart=apart, max_tokens=60) == found
    lengths = [sum(map(len, pretrained.sequences(pair))) for pair in zip(SOURCE, TARGET)]
    asked.assert_called_once_with(lengths, 60)  # some pairs a batch
    assert [(bar.total, bar.done) for bar in bars] == [(24, 24)]
    assert len(set(map(len, found))) > 1 and all(found)


def test_a_sentence_is_aligned_with_itself(saved):
    """By the embeddings, word by word; a word that SentencePiece knows nothing of is one, too."""
    lines = ["bal dem \u200b gur kon", "bal"]
    (links, short) = align(load_pretrained(str(saved)), lines, lines, layer=0, apart=True, regularisation=0.05)
    assert links == [(word, word) for word in range(5)] and short == [(0, 0)]
    assert pharaoh([links, short]) == "0-0 1-1 2-2 3-3 4-4\n0-0\n"


@pytest.mark.parametrize("iterations", [1, 2, 9])
def test_a_single_piece_is_linked_to_the_nearest(saved, iterations, monkeypatch):
    """Every plan gives each piece of the other side the same mass, so that rounding had chosen one."""
    pretrained, one, five = load_pretrained(str(saved)), "\u200b", " ".join(["\u200b"] * 5)  # a word that is <unk> alone
    alone, two = torch.tensor([[1.0, 0.0]]), f"{one} {one}"
    several = torch.tensor([[1.0, 0.3], [2.0, 1.0]])  # whose plan crosses: both have the largest product with the second
    monkeypatch.setattr(alignment, "by_length", lambda *_: [[0, 1, 2]])
    for place in range(5):
        near = torch.tensor([[0.3, 0.7, 0.9, 0.2, 0.89], [0.0] * 5]).t().roll(place, 0)
        monkeypatch.setattr(alignment, "_states", lambda *_, near=near: ([alone, several, near], [near, several.flip(0), alone]))
        found = align(pretrained, [one, two, five], [five, two, one], layer=1, iterations=iterations)
        nearest = (2 + place) % 5
        assert found == [[(0, nearest)], [(0, 1), (1, 0)], [(nearest, 0)]]


def test_costs_by_hand(monkeypatch):
    """As in the released aligner of XLM-Align: a similarity of -1 or of 0 costs as much as one of 1e-6, which is 13.8."""
    costs, x, y = [], torch.eye(2), torch.tensor([[1.0, 0.0], [-1.0, 0.5]])
    monkeypatch.setattr(alignment, "_sentences", lambda *_: [alignment.Sentence([5, 6], [0, 1])])
    for check in ("_check_lengths", "require_layers"):
        monkeypatch.setattr(alignment, check, lambda *_: None)
    monkeypatch.setattr(alignment, "_states", lambda *_: ([x.double()], [y.double()]))
    monkeypatch.setattr(alignment, "sinkhorn", lambda cost, *_, **__: costs.append(cost) or -cost)
    align(None, ["a b"], ["c d"], layer=1)
    assert costs[0].flatten().tolist() == pytest.approx([0, 13.81551, 13.81551, 0.693147], abs=1e-5)


@pytest.mark.parametrize("layers, expected", [(1, 1), (3, 2), (6, 3), (12, 9), (24, 12)])
def test_usual_layer(layers, expected):
    assert usual_layer(SimpleNamespace(depth=layers)) == expected


def test_lines_that_cannot_be_aligned(saved, monkeypatch):
    pretrained = load_pretrained(str(saved), cpu=True)
    with pytest.raises(UserError, match="y, line 2: is empty"):
        align(pretrained, ["bal", "bal"], ["bal", " "], layer=1)
    for layer in (-1, 4):
        with pytest.raises(UserError, match=f"^--layer {layer}: the model has layers 1 to 3, and 0 for the embeddings$"):
            align(pretrained, ["bal"], ["bal"], layer=layer)
    half, whole = " ".join(WORDS[:16]), " ".join(WORDS)
    with pytest.raises(UserError, match="x, line 1: has .* tokens with its translation, .* --apart"):
        align(pretrained, [half], [half], layer=1)
    assert align(pretrained, [half], [half], layer=1, apart=True)
    with monkeypatch.context() as patch:
        few = " ".join(WORDS[:3])
        number = len(pretrained.sequences([few])[0])  # with <s> and </s>
        for apart, longest in ((False, 2 * number), (True, number)):
            patch.setattr(pretrained.model.encoder, "max_positions", lambda longest=longest: longest)
            align(pretrained, [few], [few], layer=1, apart=apart)
            patch.setattr(pretrained.model.encoder, "max_positions", lambda longest=longest: longest - 1)
            with pytest.raises(UserError, match=rf"x, line 1: has {longest} tokens.* the model has {longest - 1} positions"):
                align(pretrained, [few], [few], layer=1, apart=apart)
    with pytest.raises(UserError, match=r"y, line 2: has \d+ tokens, but the model has 64 positions: shorten it"):
        align(pretrained, ["bal", "bal"], ["bal", whole], layer=1, apart=True)


# ---------------------------------------------------------------------------------------------------------------------
# Error rates


def test_figures_by_hand():
    """A has 5 links; |S| = 4, of which A has 2; A has 3 of P: 1 - (2 + 3) / (5 + 4), 3 / 5, 2 / 4."""
    golds = [Gold({(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)}), Gold({(0, 1), (2, 2)}, {(0, 1), (2, 2)})]
    found = [[(0, 0), (1, 2), (2, 2)], [(0, 1), (1, 1)]]
    assert figures(found, golds) == {"AER": pytest.approx(4 / 9), "precision": 3 / 5, "recall": 1 / 2}
    sure = [sorted(gold.sure) for gold in golds]
    assert figures(sure, golds) == {"AER": 0.0, "precision": 1.0, "recall": 1.0}
    assert figures([[], []], golds) == {"AER": 1.0, "precision": 0.0, "recall": 0.0}


def test_gold_files(tmp_path):
    path, source, target = tmp_path / "gold", ["a b c", "d"], ["e f", "g h"]
    path.write_text("0-0 2p1 1-1\n\n")
    assert read_gold(path, source, target) == [Gold({(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1)}), Gold(set(), set())]
    path.write_text("1-1\n1p2 1-2\n")
    assert read_gold(path, source, target, first=1) == [Gold({(0, 0)}, {(0, 0)}), Gold({(0, 1)}, {(0, 1)})]
    for text, first, message in (
        ("0-0\n", 0, "gold: has 1 lines, but there are 2 pairs"),
        ("0-0\n0-0 0:1\n", 0, "gold, line 2: 0:1 is no link"),
        ("0-0\n-1-0\n", 0, "gold, line 2: -1-0 is no link"),
        ("3-0\n\n", 0, r"gold, line 1: 3-0: the source sentence has words 0 to 2 \(--gold-from-1"),
        ("0-0\n0p2\n", 0, "gold, line 2: 0p2: the target sentence has words 0 to 1"),
        ("1-0\n\n", 1, "gold, line 1: 1-0: the target sentence has words 1 to 2$"),
        ("0p0\n\n", 0, "gold: has no sure link"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_gold(path, source, target, first)
    path.write_text("0-0\n\n")
    with pytest.raises(UserError, match="gold, line 1: 0-0: the target sentence has no words$"):
        read_gold(path, source, ["", "g h"])


def test_command(saved, tmp_path, run):
    for name, lines in (("x", SOURCE), ("y", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    command = ("scripts/align.py", saved, "--source", tmp_path / "x", "--target", tmp_path / "y", "--cpu")
    result = run(*command)
    found = align(load_pretrained(str(saved)), SOURCE, TARGET, layer=2)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", pharaoh(found))

    (tmp_path / "gold").write_text("".join(" ".join(f"{i + 1}-{j + 1}" for i, j in row) + "\n" for row in found))
    gold = ("--gold", tmp_path / "gold", "--gold-from-1")
    result = run(*command, *gold, "--output", tmp_path / "links", "--layer", "2")
    assert (tmp_path / "links").read_text() == pharaoh(found), result.stderr
    links = sum(map(len, found))
    assert result.stdout == f"layer 2: AER 0.00, precision 100.00, recall 100.00 (%), {links} links in 24 pairs\n"

    assert "--layer 4: the model has layers 1 to 3" in error_line(run(*command, "--layer", "4"))
    for value, said in {"0": "above 0", "1e30": "at most 1e+09", "nan": "a finite number"}.items():
        assert f"--regularisation {value}: must be {said}" in error_line(run(*command, "--regularisation", value))
    assert "--iterations 0: must be at least 1" in error_line(run(*command, "--iterations", "0"))
    message = "--gold-from-1: is for --gold, which is missing: leave it out"
    assert message in error_line(run(*command, "--gold-from-1"))
    (tmp_path / "y").write_text("".join(f"{line}\n" for line in ["", *TARGET[1:]]))
    assert "y, line 1: is empty" in error_line(run(*command, "--output", tmp_path / "none"))
    (tmp_path / "y").write_text("bal\n")
    message = error_line(run(*command, "--output", tmp_path / "none"))
    assert "x has 24 lines and" in message and "y has 1: line N of the one must be the translation" in message
    assert not (tmp_path / "none").exists()
