# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What stands in a picture beside its points: labels, units, scales and legends; and which lines of a log have points."""

import logging
import warnings

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.figure import Figure

from veco_fairseq.curves import read_curve
from veco_fairseq.errors import UserError
from veco_fairseq.plots import plot_attention, plot_bars, plot_curves


@pytest.fixture
def axes(monkeypatch, tmp_path):
    """Draw without the time that the picture's file takes, and give the axes; the figure itself is closed then."""
    figures = []
    close = plt.close
    close("all")  # of earlier tests
    monkeypatch.setattr(plt, "close", lambda figure: (figures.append(figure), close(figure)))
    monkeypatch.setattr(Figure, "tight_layout", lambda figure: None)
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: path.write_text(str(options)))

    def axes(draw, *arguments, **options):
        draw(*arguments, **options, output=tmp_path / "new/x.png")
        assert not plt.get_fignums() and (tmp_path / "new/x.png").read_text() == "{'dpi': 150, 'format': 'png'}"
        return figures[-1].axes[0]

    return axes


def texts(labels):
    return [label.get_text() for label in labels]


def test_curves_have_their_names_titles_and_scales(axes):
    curves = {"long": [(n, 2.0 * n) for n in range(1, 51)], "short": [(n, 3.0) for n in range(2, 51)]}
    found = axes(plot_curves, curves, ylabel="loss (bits)", title="a title")
    assert (found.get_xlabel(), found.get_ylabel(), found.get_title()) == ("updates", "loss (bits)", "a title")
    assert texts(found.get_legend().get_texts()) == ["long", "short"]
    assert [line.get_marker() for line in found.lines] == ["None", "o"]  # dots would hide a line of many
    assert (found.get_xscale(), found.get_yscale()) == ("linear", "linear")
    assert all(place == int(place) for place in found.xaxis.get_major_locator().tick_values(1, 2))
    assert found.figure.get_size_inches().tolist() == [6.4, 4.0]


def test_logarithmic_axes_have_plain_numbers(axes):
    curves = {"a": [(100, 2.0), (2000, 4.0)], "b": [(100, 3.0), (700, 50.0)]}
    found = axes(plot_curves, curves, ylabel="y", title="t", log=True, log_x=True, xlabel="pairs")
    assert (found.get_xscale(), found.get_yscale(), found.get_xlabel()) == ("log", "log", "pairs")
    assert texts(found.get_xticklabels()) == ["100", "700", "2,000"]
    assert [found.yaxis.get_major_formatter()(value) for value in (2, 20)] == ["2", "20"]
    narrow = axes(plot_curves, {"a": [(200, 2.0), (700, 6.0)]}, ylabel="y", title="t", log=True, log_x=True)
    for axis in (narrow.xaxis, narrow.yaxis):  # small ticks have no numbers, which would stand on the others
        assert set(texts(axis.get_minorticklabels())) == {""}
    assert {2, 5, 10, 20, 50} <= set(found.yaxis.get_major_locator().tick_values(2, 50).round(6))


def test_a_variant_is_dashed_and_has_the_colour_of_its_curve_and_zero_has_a_line(axes):
    curves = {"a": [(1, 2.0)], "b": [(1, 3.0), (2, 0.0)], "a, more": [(2, 2.5)], "c, more": [(2, 9.0)]}
    found = axes(plot_curves, curves, ylabel="y", title="t", variants={"a, more": "a", "c, more": "c"})
    a, b, a_more, c_more = found.lines  # nothing is below zero, which has no line
    assert a_more.get_color() == a.get_color() and len({line.get_color() for line in (a, b, c_more)}) == 3
    assert [line.get_linestyle() for line in found.lines] == ["-", "-", "--", "--"]
    zero = axes(plot_curves, {**curves, "d": [(1, 1.0), (2, -0.5)]}, ylabel="y", title="t").lines[-1]
    assert list(zero.get_ydata()) == [0, 0] and zero.get_color() == "black"


def test_bars_have_their_values_and_names(axes):
    bars = {"ours": {"de": 30.26, "fr": 7.0}, "theirs": {"de": 25.0}}
    found = axes(plot_bars, bars, "BLEU", "Test sets")
    assert (found.get_ylabel(), found.get_title()) == ("BLEU", "Test sets")
    many = axes(plot_bars, {name: dict.fromkeys("abcdefghij", 1.0) for name in "xyz"}, "BLEU", "Test sets")
    assert many.figure.get_size_inches().tolist() == [18.5, 4.0]  # room for the value on each of the 30
    assert texts(found.texts) == ["30.3", "7.0", "25.0"] and texts(found.get_legend().get_texts()) == ["ours", "theirs"]


def test_no_attention_is_white(axes):
    found = axes(plot_attention, torch.tensor([[0.5, 0.2], [0.3, 0.4]]).numpy(), ["a", "b"], ["c", "d"], title="t")
    assert found.images[0].get_clim() == (0, 0.5) and found.images[0].get_cmap().name == "Greys"
    assert found.figure.axes[1].get_ylabel() == "attention weight"
    assert {(label.get_rotation(), label.get_ha()) for label in found.get_xticklabels()} == {
        (60.0, "right")
    }  # ends at its column
    assert found.get_title() == "t" and found.get_xlabel() == "attends to (y)" and found.get_ylabel() == "attends from (x)"


def test_points_are_numbers_of_lines_with_their_updates(tmp_path):
    log = tmp_path / "log"
    lines = ["loss=-1.5, zeta=2, num_updates=10", "loss=.25, num_updates=20", "loss=3", "loss=nan, num_updates=30",
             "loss=1e-05, num_updates=40", "loss=71234567890.5, num_updates=45", "loss=inf, num_updates=50", "loss=2., alpha=x, num_updates=60",
             "loss=2.58e+120, num_updates=62", "loss=1e+999, num_updates=64"]  # fmt: skip
    whole = '{"epoch": 1, "loss": "2.5", "num_updates": "70"}'
    rest = [whole, whole.replace("70", "80")[:40]]  # the last line of a training that was killed
    log.write_text("".join(f"INFO | train_inner | {line}\n" for line in [*lines, *rest]))
    assert read_curve(log, "loss", training=True) == [
        (10, -1.5),
        (20, 0.25),
        (40, 1e-05),
        (45, 71234567890.5),
        (60, 2.0),
        (62, 2.58e120),
        (70, 2.5),
    ]
    with pytest.raises(
        UserError, match=r"no training line in it has bleu: give one that is there \(epoch, loss, num_updates, zeta\)$"
    ):
        read_curve(log, "bleu", training=True)
    with pytest.raises(
        UserError,
        match=r"has no validation in it: give what fairseq-train printed, as by \| tee FILE, or --train for the lines of training$",
    ):
        read_curve(log, "loss")


def test_dollar_signs_are_no_formulas(tmp_path):
    """Two of them in a token or a name ended in a traceback, or in another text."""
    plot_attention(torch.rand(1, 2), ["$$"], ["$x_$", "b"], title="from $5 to $^6", output=tmp_path / "attention.png")
    plot_curves({"$_{$": [(1, 1.0), (10, 2.0)]}, ylabel="$", title="$^$", output=tmp_path / "curve.png", log=True, log_x=True)
    assert {path.name for path in tmp_path.iterdir()} == {"attention.png", "curve.png"}


def test_warnings_other_than_those_of_letters_are_shown(monkeypatch, tmp_path, caplog):
    """A letter that no font has is told in one line, however often matplotlib warns of it."""

    def tight_layout(figure):
        for _ in range(2):
            warnings.warn("Glyph 57344 (\\ue000) missing from font(s) DejaVu Sans.", UserWarning, stacklevel=1)
        warnings.warn("Tight layout not applied", UserWarning, stacklevel=1)
        warnings.warn("the option is old", DeprecationWarning, stacklevel=1)

    monkeypatch.setattr(Figure, "tight_layout", tight_layout)
    with warnings.catch_warnings(record=True) as shown, caplog.at_level(logging.WARNING, logger="veco_fairseq"):
        warnings.simplefilter("always")
        plot_curves({"a": [(1, 1.0)]}, ylabel="loss", title="t", output=tmp_path / "x.png")
    found = [(each.category, str(each.message)) for each in shown]
    assert found == [(UserWarning, "Tight layout not applied"), (DeprecationWarning, "the option is old")]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [str(tmp_path / "x.png")]


@pytest.mark.parametrize("name, begins", [
    ("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.SVG", b"<?xml"), ("a", b"\x89PNG"), ("a.b", b"\x89PNG"),
])  # fmt: skip
def test_a_picture_is_what_its_name_says(tmp_path, name, begins):
    """All had been PNG, also where the name ended in .pdf."""
    plot_bars({"a": {"de": 1.0}}, "", "", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)
