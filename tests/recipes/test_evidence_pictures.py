# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The pictures of the page of all results: which points their curves have."""

import sys

from support.modules import load_script

from recipes import RECIPES
from recipes.lines import translated

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
figures, pictures = (load_script(RECIPES / f"evidence/{name}.py") for name in ("figures", "pictures"))


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
