# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The pictures of the page of all results: which points their curves have."""

import json
import sys

from conftest import error_line
from support.modules import load_script

from recipes import RECIPES
from recipes.lines import translated
from veco_fairseq import plots

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
figures, page, pictures = (load_script(RECIPES / f"evidence/{name}.py") for name in ("figures", "page", "pictures"))


def test_learning_curves_are_of_the_first_seeds_and_have_the_operations_before_them():
    curve = [(100, 9.0), (300, 6.5), (400, 7.0)]
    more = [
        translated("veco", "en-de.500", 1, 1, 9.0, curve=curve[:2], operations=6e12),
        translated("random", "en-de.500", 1, 1, 8.0, curve=curve, operations=4.5e12),
        translated("mbart", "en-de.500", 1, 1, 8.5, curve=curve[1:], operations=6e12),  # whose pre-training is not counted
        translated("xlm", "en-de.500", 1, 1, 8.5, curve=curve),  # an old line, which has no operations
        translated("no-stop", "en-de.500", 1, 1, 8.5, curve=curve, operations=6e12), translated("nmt", "en-de.500", 2, 1, 8.5, curve=curve),
        translated("nmt", "en-de.500", 1, 2, 8.5, curve=curve), translated("veco", "en-fr.500", 1, 1, 2.0, curve=curve),
    ]  # fmt: skip
    cost = {"kind": "cost", "arm": "veco", "seed": "1", "updates": 4000, "operations": 4.88e14, "seconds": 7200}
    data, of_updates, of_operations = pictures.learning_curves([*more, cost])
    assert (data, pictures.in_words(data), pictures.in_words("en-pt-BR.29000")) == (
        "en-de.500", "500 pairs of en-de", "29,000 pairs of en-pt-BR",
    )  # fmt: skip
    assert of_updates == {"random": curve, "XLM": curve, "mBART": curve[1:], "VECO": curve[:2]}
    points = {arm: [(round(x, 6), y) for x, y in of] for arm, of in of_operations.items()}
    assert points == {"random": [(0.015, 9.0), (0.045, 6.5), (0.06, 7.0)], "VECO": [(4.9, 9.0), (4.94, 6.5)]}
    assert pictures.learning_curves([cost, translated("veco", "en-de.500", 1, 1, 9.0)]) == ("", {}, {})


def test_a_gain_is_drawn_where_there_are_two_numbers_of_pairs():
    runs = [
        *(translated("veco", "en-de.500", 1, seed, bleu) for seed, bleu in ((1, 8.0), (2, 9.0))),
        translated("random", "en-de.500", 1, 1, 4.0), translated("veco", "en-de.80", 1, 1, 2.0),
        translated("random", "en-de.80", 1, 1, 3.0), translated("xlm", "en-de.500", 1, 1, 7.0),
        translated("veco-8", "en-fr.80", 1, 1, 5.0), translated("nmt-8", "en-fr.80", 1, 1, 6.5),
        translated("veco-8", "en-fr.90", 1, 1, 9.0), translated("nmt-8", "en-fr.90", 1, 1, 8.75),
    ]  # fmt: skip
    assert pictures.gains(figures.scores(runs, "sacrebleu")) == {
        "en-de: over random weights": [(80, -1.0), (500, 4.5)],
        "en-fr: over NMT first, large batches": [(80, -1.5), (90, 0.25)],
    }


def test_a_decoder_is_as_fast_as_its_fastest_run():
    runs = [
        translated("deep-all-6", "en-de.80", 1, 1, 9.0, sentences_per_second=20.0),
        *(translated("deep-last-1", "en-de.80", 1, seed, bleu, sentences_per_second=speed)
          for seed, bleu, speed in ((1, 7.0, 41.5), (2, 8.0, 47.0), (3, 9.0, None))),
        translated("deep-first-2", "en-de.80", 1, 1, 6.0, sentences_per_second=30.0), translated("deep-first-1", "en-de.80", 1, 1, 6.0),
        translated("deep-random-3", "en-de.80", 1, 1, 5.5, sentences_per_second=25.0),
        translated("deep-spread-3", "en-de.80", 1, 1, 9.5, sentences_per_second=24.0),
    ]  # fmt: skip
    assert pictures.depths(runs) == {
        "the last layers": [(20.0, 9.0), (47.0, 8.0)], "spread": [(24.0, 9.5)], "the first layers": [(30.0, 6.0)],
        "random": [(25.0, 5.5)],
    }  # fmt: skip


def test_of_several_pre_trainings_the_first_ones_cost_counts():
    """... whatever order the lines have."""
    runs = [translated("veco", "en-de.500", 1, 1, 9.0, curve=[(100, 9.0)], operations=6e12)]
    first, *others = ({"kind": "cost", "arm": "veco", "seed": seed, "updates": 10 * int(seed), "operations": int(seed) * 1e14, "seconds": 60}
                      for seed in ("1", "2", "10"))  # fmt: skip
    for order in ([first, *others], [*others, first]):
        (((operations, _),),) = pictures.learning_curves([*runs, *order])[2].values()
        assert round(operations, 6) == 1.02
        assert page.cost([*runs, *order])[2:] == ["| VECO | 10, 1.0e14 | 1 | 300, 6.0e12 |"]


def test_a_rival_with_more_operations_is_in_no_picture():
    runs = [translated(arm, f"en-de.{size}", 1, 1, bleu) for arm, bleu in (("veco", 9.0), ("nmt", 7.0), ("nmt-more", 8.0))
            for size in (80, 500)]  # fmt: skip
    assert pictures.gains(figures.scores(runs, "sacrebleu")) == {"en-de: over NMT first": [(80, 2.0), (500, 2.0)]}


def test_each_picture_has_its_own_curves_and_axes(monkeypatch, tmp_path):
    drawn = {}
    monkeypatch.setattr(plots, "plot_curves", lambda curves, *, output, **how: drawn.update({output.name: (curves, how)}))
    runs = [translated(arm, f"en-de.{size}", 1, 1, bleu, curve=[(50, bleu)], operations=3e14)
            for arm, bleu in (("veco", 9.0), ("random", 4.5)) for size in (500, 80)]  # fmt: skip
    runs += [translated("veco-8", f"en-de.{size}", 1, 1, 7.5) for size in (500, 80)]
    runs.append(translated("deep-last-1", "en-de.80", 1, 1, 7.0, sentences_per_second=40.0))
    runs += [translated(arm, f"en-sw.{size}", 1, 1, 3.0, set="bible") for arm in ("veco", "random") for size in (9, 8)]
    assert pictures.draw(runs, tmp_path) == {
        "gain": [("pairs of fine-tuning", "evidence-gain.png")],
        "learning": [("updates of fine-tuning", "evidence-learning-updates.png"),
                     ("10^14 operations, pre-training included", "evidence-learning-operations.png")],
        "depth": [("sentences a second", "evidence-depth.png")],
    }  # fmt: skip
    curves = {name.removeprefix("evidence-").removesuffix(".png"): curves for name, (curves, _) in drawn.items()}
    assert curves == {
        "gain": {"en-de: over random weights": [(80, 4.5), (500, 4.5)],
                 "en-de: over random weights, large batches": [(80, 3.0), (500, 3.0)]},
        "learning-updates": {"random": [(50, 4.5)], "VECO": [(50, 9.0)]},
        "learning-operations": {"random": [(0.5, 4.5)]},  # of VECO's pre-training nothing is known
        "depth": {"the last layers": [(40.0, 7.0)]},
    }  # fmt: skip
    how = [(one["xlabel"], one["ylabel"], one["log_x"]) for _, one in drawn.values()]
    bits = "validation loss (bits a token)"
    assert how == [
        ("pairs of fine-tuning", "BLEU more", True), ("updates of fine-tuning", bits, False),
        ("10^14 operations, pre-training included", bits, False), ("sentences a second", "sacreBLEU", False),
    ]  # fmt: skip
    variants = [one["variants"] for _, one in drawn.values()]
    assert variants == [{"en-de: over random weights, large batches": "en-de: over random weights"}, {}, {}, {}]
    titles = [one["title"] for _, one in drawn.values()]
    assert titles[1] == titles[2] == "Fine-tuning on 500 pairs of en-de"


def test_a_table_of_losses_has_three_decimals_and_its_picture_two_numbers_of_pairs(tmp_path, run):
    """The losses of the models lie closer than tenths."""
    losses = ((1, 5.2651), (2, 5.2397), (3, 5.3))
    runs = [translated("veco", "en-de.500", 1, seed, 9.0, valid_loss=loss) for seed, loss in losses]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    table = ("data-bin-recipes/evidence/table.py", tmp_path / "results.jsonl", "--metric", "valid_loss")
    assert "| VECO | 5.268 ± 0.030 (3) |" in run(*table).stdout
    assert "no model of en-de has them" in error_line(run(*table, "--plot", tmp_path / "none.png"))
    assert not (tmp_path / "none.png").exists()
