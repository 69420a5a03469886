# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The curves that plot_curves.py finds in what fairseq-train printed, and the figures of plot_scores.py and
plot_layers.py."""

import json

import matplotlib.pyplot as plt
import pytest
import sacrebleu
import torch
from conftest import error_line, lines_of, save_with_vocabulary

from veco_fairseq.commands.plot_curves import with_unit
from veco_fairseq.commands.plot_scores import read_score
from veco_fairseq.curves import read_curve
from veco_fairseq.errors import UserError
from veco_fairseq.inference.pretrained import load_pretrained
from veco_fairseq.plots import plot_attention, plot_bars, plot_curves
from veco_fairseq.retrieval.tatoeba import read_accuracies

START = "2026-11-21 10:00:00 | INFO |"
SIMPLE = [
    f"{START} train_inner | epoch 001:     20 / 227 loss=11.9, nll_loss=11.763, ppl=3475.83, num_updates=20, lr=1e-05",
    f"{START} train_inner | epoch 001:     40 / 227 loss=8, nll_loss=7.763, ppl=nan, num_updates=40, lr=1e-05",
    f"{START} valid | epoch 001 | valid on 'valid' subset | loss 5.5 | ppl 9 | num_updates 40 | best_loss 5.5",
]
RESUMED = [  # after a kill, from the checkpoint of update 20, with a line for each 10 updates
    f"{START} train_inner | epoch 001:     30 / 227 loss=9.5, nll_loss=9.25, ppl=608.87, num_updates=30, lr=1e-05",
    f"{START} train_inner | epoch 001:     40 / 227 loss=8.25, nll_loss=8, ppl=256, num_updates=40, lr=1e-05",
    f"{START} valid | epoch 001 | valid on 'valid' subset | loss 5.75 | ppl 10 | num_updates 30 | best_loss 5.5",
    f"{START} valid | epoch 001 | valid on 'valid' subset | loss 5.25 | ppl 8 | num_updates 40 | best_loss 5.25",
]
JSON = [
    f'{START} train_inner | {{"epoch": 1, "update": 0.1, "loss": "11.9", "num_updates": "20"}}',
    f'{START} train_inner | {{"epoch": 1, "update": 0.2, "loss": "8", "num_updates": "40"}}',
    f'{START} valid | {{"epoch": 1, "valid_loss": "5.5", "valid_ppl": "9", "valid_num_updates": "40"}}',
]


def test_pictures_do_not_depend_on_the_backend_of_a_notebook(run, tmp_path):
    """MPLBACKEND, which a notebook exports, names a package that need not be here: the import of matplotlib failed."""
    (tmp_path / "log").write_text("\n".join(SIMPLE) + "\n")
    given = [f"a={tmp_path}/log", "--output", tmp_path / "a.png"]
    result = run("scripts/plot_curves.py", *given, MPLBACKEND="module://matplotlib_inline.backend_inline")
    assert (result.returncode, result.stderr) == (0, "") and (tmp_path / "a.png").stat().st_size > 9000


@pytest.mark.parametrize("lines", [SIMPLE, JSON], ids=["simple", "json"])
def test_read_curve(tmp_path, lines):
    log = tmp_path / "log"
    # killed and resumed: the lines after the checkpoint come twice
    log.write_text("\n".join([*lines, "noise", *lines[1:]]) + "\n")
    assert read_curve(log, "loss") == [(40, 5.5)]
    assert read_curve(log, "loss", training=True) == [(20, 11.9), (40, 8)]
    if lines is SIMPLE:
        assert read_curve(log, "lr", training=True) == [(20, 1e-5), (40, 1e-5)]
    with pytest.raises(UserError, match="no validation in it has bleu: give one that is there "):
        read_curve(log, "bleu")
    with pytest.raises(UserError, match="no training line in it has bleu: give one that is there "):
        read_curve(log, "bleu", training=True)


def test_the_set_to_validate_on_may_have_any_name_in_json_lines_too(tmp_path):
    """Of several, the first counts; training's lines of a whole epoch are of none."""
    log, line = tmp_path / "log", START + ' {0} | {{"epoch": 1, "{0}_loss": "{1}", "{0}_num_updates": "{2}"}}\n'
    log.write_text(line.format("train", 9, 40) + line.format("dev_2", 3.5, 40) + line.format("valid", 4.5, 40))
    assert read_curve(log, "loss") == [(40, 3.5)]
    log.write_text(line.format("train", 9, 40))
    with pytest.raises(UserError, match="has no validation in it: give what fairseq-train printed"):
        read_curve(log, "loss")
    log.write_text("a text\n")
    with pytest.raises(UserError, match="has no training line in it: give what fairseq-train printed, as by . tee FILE$"):
        read_curve(log, "loss", training=True)


def test_of_a_part_that_was_trained_again_the_curve_has_the_later_values_in_order(tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join([*SIMPLE, *RESUMED]) + "\n")
    assert read_curve(log, "loss") == [(30, 5.75), (40, 5.25)]
    assert read_curve(log, "loss", training=True) == [(20, 11.9), (30, 9.5), (40, 8.25)]


def test_of_several_sets_the_first_counts(tmp_path):
    """By which training chooses checkpoints, as with --valid-subset valid,test."""
    lines = [*SIMPLE, SIMPLE[-1].replace("'valid'", "'test'").replace("5.5", "6.5")]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    assert read_curve(tmp_path / "log", "loss") == [(40, 5.5)]


def test_two_trainings_in_one_log_are_not_one_curve(tmp_path):
    """... though the older one was longer; what a resumed one has done twice stays as it is."""
    line = f"{START} train_inner | epoch 001: 1 / 9 {{}}, num_updates={{}}\n"
    longer = [line.format(f"loss={9 - update / 40}", update) for update in (20, 40, 60, 80)]
    newer = [line.format("ppl=7", 20), *(line.format(f"loss={update / 10}", update) for update in (40, 60))]
    log = tmp_path / "log"
    log.write_text("".join(longer + newer))
    assert read_curve(log, "loss", training=True) == [(40, 4.0), (60, 6.0)]
    log.write_text("".join(longer + longer[2:]))
    assert read_curve(log, "loss", training=True) == [(20, 8.5), (40, 8.0), (60, 7.5), (80, 7.0)]


@pytest.mark.parametrize("metric, label", [
    ("loss", "loss (bits)"), ("bitext_s_loss", "bitext_s_loss (bits)"), ("mono_h_ppl", "mono_h_ppl (perplexity)"),
    ("bitext_h_acc", "bitext_h_acc (share that is right)"), ("en_score", "en_score (%)"), ("lr", "lr"), ("loss_scale", "loss_scale"),
])  # fmt: skip
def test_a_metric_has_its_unit(metric, label):
    assert with_unit(metric) == label


def test_letters_that_no_font_has_are_told_in_one_line(tmp_path, caplog, recwarn):
    plot_bars({"b\ue001": {"de\ue000": 1.0, "fr\ue000": 2.0}}, "BLEU", "title", tmp_path / "bars.png")
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{tmp_path / 'bars.png'}: has boxes for \ue000\ue001: no font here has them")
    assert not [each for each in recwarn if "missing from" in str(each.message)]


def test_bars(tmp_path, monkeypatch):
    """Every value stands in its name's colour over its group."""
    monkeypatch.setattr(plt, "close", lambda figure: None)
    bars = {"last": {"en-fr": 30.0, "en-de": 40.0}, "first": {"en-de": 35.0}}  # in the order in which they are given
    plot_bars(bars, "BLEU", "title", tmp_path / "bars.png")
    axes = plt.gcf().axes[0]
    last, first = (sorted((bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in drawn) for drawn in axes.containers)
    # side by side around the group's place, each 0.4 wide
    assert [round(place, 6) for place, _ in last] == [-0.2, 0.8] and [height for _, height in last] == [30.0, 40.0]
    assert [(round(place, 6), height) for place, height in first] == [(1.2, 35.0)]
    assert axes.get_axisbelow() is True  # no line of the grid crosses a bar
    assert [label.get_text() for label in axes.get_xticklabels()] == ["en-fr", "en-de"]
    assert plt.imread(tmp_path / "bars.png").shape[:2] == (600, 960)  # 6.4 by 4 inches
    legend, picture = axes.get_legend().get_window_extent(), axes.figure.bbox
    assert axes.bbox.x1 < legend.x0 < legend.x1 < picture.x1  # beside the bars, and not cut off


@pytest.mark.parametrize("number, beside", [(1, False), (5, False), (6, True)])
def test_the_legend_of_many_curves_hides_none(tmp_path, monkeypatch, number, beside):
    monkeypatch.setattr(plt, "close", lambda figure: None)
    curves = {f"curve number {which}": [(1, which), (9, 2 * which)] for which in range(number)}
    plot_curves(curves, ylabel="y", title="title", output=tmp_path / "x.png")
    axes = plt.gcf().axes[0]
    legend, picture = axes.get_legend().get_window_extent(), axes.figure.bbox
    assert bool(axes.bbox.x1 < legend.x0) == beside and legend.x1 < picture.x1
    assert plt.imread(tmp_path / "x.png").shape[:2] == (600, 1440 if beside else 960)


def test_plot_scores(tmp_path, run, drawn):
    score, first = tmp_path / "score.json", tmp_path / "first.json"
    score.write_text(json.dumps({"sacrebleu": {"score": 30.0}, "tokenised_bleu": {"score": 29.0}}))
    first.write_text(json.dumps({"sacrebleu": {"score": 25.5}}))
    (axes,) = drawn("scripts/plot_scores.py", f"en-de/last 3={score}", f"en-de/first={first}", "--output", tmp_path / "bars.png")
    assert {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers} == {
        "last 3": [30.0],
        "first": [25.5],
    }
    assert [label.get_text() for label in axes.get_xticklabels()] == ["en-de"] and (tmp_path / "bars.png").exists()
    (axes,) = drawn("scripts/plot_scores.py", f"a/b={score}", "--metric", "tokenised_bleu", "--output", tmp_path / "bars.png")
    assert [bar.get_height() for bar in axes.containers[0]] == [29.0] and "okenised" in axes.get_ylabel()
    assert axes.get_title() == "Test sets"
    (axes,) = drawn("scripts/plot_scores.py", f"a/b={score}", "--title", "WMT", "--output", tmp_path / "bars.png")
    assert axes.get_title() == "WMT"
    score.write_text(json.dumps({"sacrebleu": {"score": 30.0}}))
    for value in (-1, 100.5, "much", None):
        first.write_text(json.dumps({"sacrebleu": {"score": value}}))
        with pytest.raises(UserError, match="first.json: has no sacrebleu: is it a file of veco score --json"):
            read_score(first, "sacrebleu")
    perfect = sacrebleu.corpus_bleu(["a b c d e"], [["a b c d e"]]).score
    assert perfect > 100  # by rounding
    for value in (0, 100, perfect):
        first.write_text(json.dumps({"sacrebleu": {"score": value}}))
        (axes,) = drawn("scripts/plot_scores.py", f"a/b={first}", "--output", tmp_path / "bars.png")
        assert [bar.get_height() for bar in axes.containers[0]] == [value]
    other = ("--metric", "tokenised_bleu", "--output", tmp_path / "other.png")
    assert "has no tokenised_bleu" in error_line(run("scripts/plot_scores.py", f"a/b={score}", *other))
    assert not (tmp_path / "other.png").exists()


def test_accuracies_by_layer(tmp_path, run, drawn):
    """A pair's, as retrieve.py tatoeba --json leaves them, layers and directions in order; a wrong file is named."""
    file = tmp_path / "retrieval.json"
    de = {"2": [0.3, 0.3], "10": [0.3, 0.5], "0": [0.1, 0.2]}  # in the order of --layers
    file.write_text(json.dumps({"score": "csls", "accuracy": {"de": de, "fr": de}}))
    with pytest.raises(UserError, match="has no pair mean .there is: de, fr."):
        read_accuracies(file, "mean")
    file.write_text(json.dumps({"score": "csls", "accuracy": {"de": de}}))
    for pair in ("de", "mean"):
        assert list(read_accuracies(file, pair).items()) == [(0, (0.1, 0.2)), (2, (0.3, 0.3)), (10, (0.3, 0.5))]
    command = ("scripts/plot_layers.py", f"VECO={file}", "--output", tmp_path / "layers.png")
    (axes,) = drawn(*command)  # of the only pair
    assert (
        lines_of(axes) == {"VECO": [(0, pytest.approx(15)), (2, pytest.approx(30)), (10, pytest.approx(40))]}
        and axes.get_xlabel() == "layer"
    )
    assert (
        axes.get_title() == "Retrieval by layer (0: the embeddings)"
        and axes.get_ylabel() == "accuracy, mean of both directions (%)"
    )
    assert (tmp_path / "layers.png").exists()
    assert drawn(*command, "--pair", "de", "--title", "By layer")[0].get_title() == "By layer"
    file.write_text('{"accuracy": {"mean": {"last": [0.1, 0.2]}}}')
    assert "is not a file of veco retrieve tatoeba --json" in error_line(run(*command))


@pytest.fixture
def saved(tmp_path, make_model):
    lines = [f"{a}{b}n {b}{a}t" for a in "bdfgk" for b in "aeiou"]
    return save_with_vocabulary(tmp_path / "pretrained", make_model, lines, 22)


def test_self_attention_over_a_pair_is_softmax_of_the_products(saved):
    pretrained = load_pretrained(str(saved), cpu=True)
    x, y = pretrained.encode("ban abt"), pretrained.encode("dun udt")
    both = pretrained.join(x, y)
    assert both[0, : x.size(1)].equal(x[0]) and both[0, x.size(1) + 1 :].equal(y[0, 1:])
    assert both[0, x.size(1)] == pretrained.dictionary.eos()
    layers = pretrained.model.encoder.sentence_encoder.layers
    attention = layers[0].self_attn
    with torch.no_grad():
        states, _ = pretrained.model.encoder.sentence_encoder.forward_embedding(both)
        q, k = attention.q_proj(states)[0], attention.k_proj(states)[0]
        heads = [(a @ b.t() / 4**0.5).softmax(1) for a, b in zip(q.split(4, 1), k.split(4, 1))]  # 4 heads of 4
    assert torch.allclose(pretrained.self_attention(both, 0), sum(heads) / 4, atol=1e-5)
    with pytest.raises(UserError, match="--layer 3: the model has layers 0 to 2"):
        pretrained.self_attention(both, 3)


def labels(axes):
    """Under the columns and beside the rows."""
    return [[label.get_text() for label in ticks] for ticks in (axes.get_xticklabels(), axes.get_yticklabels())]


def test_plot_attention(saved, tmp_path, drawn):
    command = ("scripts/plot_attention.py", saved, "--source", "ban abt", "--target", "dun", "--attention", "self")
    (axes,) = drawn(*command, "--output", tmp_path / "x.png")
    pretrained = load_pretrained(str(saved), cpu=True)
    both = pretrained.join(pretrained.encode("ban abt"), pretrained.encode("dun"))
    x, y = pretrained.encode("ban abt"), pretrained.encode("dun")
    assert labels(axes) == [pretrained.tokens(both[0])] * 2
    assert [axes.get_ylabel(), axes.get_xlabel()] == ["attends from (x and y)", "attends to (x and y)"]
    assert axes.get_title() == "Self-attention over a pair, layer 1"  # the middle one
    shown = torch.tensor(axes.images[0].get_array().tolist())
    assert torch.allclose(shown, pretrained.self_attention(both, 1), atol=1e-5) and (tmp_path / "x.png").exists()
    (axes,) = drawn(*command, "--attention", "cross", "--layer", "2", "--output", tmp_path / "x.png")
    assert labels(axes) == [pretrained.tokens(y[0]), pretrained.tokens(x[0])]  # x looks at y
    width, height = (len(tokens[0]) for tokens in (y, x))  # a third of an inch for each token
    assert axes.figure.get_size_inches().tolist() == pytest.approx([2 + 0.35 * width, 1.5 + 0.35 * height])
    assert [axes.get_ylabel(), axes.get_xlabel()] == ["attends from (x)", "attends to (y)"]
    assert axes.get_title() == "VECO cross-attention, layer 2"
    shown = torch.tensor(axes.images[0].get_array().tolist())
    assert torch.allclose(shown, pretrained.cross_attention(x, y, 2), atol=1e-5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_attention_of_any_type_is_drawn(tmp_path, monkeypatch, kind):
    """Also with gradients, as somebody's own code may compute it."""
    monkeypatch.setattr(plt, "close", lambda figure: None)
    weights = torch.tensor([[0.75, 0.25, 0.0], [0.125, 0.375, 0.5]], dtype=kind, requires_grad=True)
    plot_attention(weights, ["a", "b"], ["c", "d", "e"], title="", output=tmp_path / "x.png")
    axes = plt.gcf().axes[0]
    assert axes.images[0].get_array().tolist() == weights.tolist() and labels(axes) == [["c", "d", "e"], ["a", "b"]]


@pytest.mark.parametrize("missing, message", [
    ("sentencepiece.bpe.model", r"sentencepiece\.bpe\.model: no such file: it must be beside the checkpoint"),
    ("checkpoint_last.pt", r"checkpoint_last\.pt: no such checkpoint"),
])  # fmt: skip
def test_what_is_missing_beside_a_checkpoint_is_named(tmp_path, make_model, missing, message):
    saved = save_with_vocabulary(tmp_path / "pretrained", make_model, [f"{a}{b}n" for a in "bdg" for b in "aeiou"], 16)
    (saved.parent / missing.replace("checkpoint_last.pt", saved.name)).unlink()
    with pytest.raises(UserError, match=message.replace("checkpoint_last", saved.stem)):
        load_pretrained(str(saved))
