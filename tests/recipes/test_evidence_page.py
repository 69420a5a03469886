# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The page of all results, from made-up ones: what is compared with what, and that nothing is there without results."""

import json
import subprocess
import sys

import pytest
from support.modules import load_script

from recipes import RECIPES
from recipes.lines import translated
from veco_fairseq.errors import UserError

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
figures, page = (load_script(RECIPES / f"evidence/{name}.py") for name in ("figures", "page"))


def judged(kind, task, arm, plug, pretraining, score):
    return {"kind": kind, "task": task, "arm": arm, "plug": plug, "pretraining": str(pretraining), "seed": "1", "score": score}


@pytest.fixture
def runs():
    return [
        *(translated("veco", "en-de.2000", 1, seed, bleu) for seed, bleu in ((1, 20.0), (2, 23.0), (3, 26.0))),
        translated("veco", "en-de.2000", 2, 1, 27.0), translated("veco", "en-de.2000", 3, 1, 99.0),
        *(translated("random", "en-de.2000", 1, seed, bleu, updates=800) for seed, bleu in ((1, 4.0), (2, 6.0))),
        translated("xlm", "en-de.2000", 1, 1, 30.0), translated("veco", "en-de.29000", 1, 1, 40.5),
        translated("random", "en-de.29000", 1, 1, 38.0), translated("nmt", "en-fr.2000", 1, 1, 77.0),
        translated("no-tlm", "en-de.2000", 1, 1, 18.0), translated("no-tlm", "en-de.2000", 2, 1, 19.0),
        translated("deep-last-3", "en-de.2000", 1, 1, 21.0, sentences_per_second=80.4),
        translated("deep-last-3", "en-de.2000", 1, 2, 23.0, sentences_per_second=91.7),
        judged("retrieval", "tatoeba", "veco", "out", 1, 10.0), judged("retrieval", "tatoeba", "veco", "out", 2, 12.0),
        judged("retrieval", "tatoeba", "veco", "out", 3, 88.0), judged("retrieval", "tatoeba", "no-tlm", "out", 1, 7.0),
        judged("understanding", "xnli", "veco", "out", 1, 48.0), judged("understanding", "xnli", "veco", "in", 1, 51.0),
        judged("understanding", "udpos", "veco", "out", 1, 35.0),
        {"kind": "cost", "arm": "veco", "seed": "1", "updates": 4000, "operations": 4.88e14, "seconds": 7200},
    ]  # fmt: skip


def test_a_gain_is_the_difference_of_means_with_its_standard_error():
    assert page.gain([20.0, 24.0], [5.0, 7.0]) == "+16.0 ± 2.2"  # the root of 8 / 2 + 2 / 2
    assert (page.gain([20.0], [21.5]), page.gain([20.0], [])) == ("-1.5", "")


def test_the_gain_is_of_one_direction_and_number_of_pairs(runs):
    found = figures.scores(runs, "sacrebleu")
    assert page.situations(found) == [
        "|  | VECO | over random weights | over NMT first | over XLM, equal operations |",
        "| --- | --- | --- | --- | --- |",
        "| en-de, 2,000 pairs | 39.0 ± 33.7 (5) | +34.0 ± 15.1 |  | +9.0 |",
        "| en-de, 29,000 pairs | 40.5 (1) | +2.5 |  |  |",
    ]


def test_fewer_pairs_come_first_whatever_order_the_results_have(runs):
    large_first = sorted(runs, key=lambda run: -int(run.get("data", ".0").split(".")[1]))
    assert [row.split(" |")[0] for row in page.situations(figures.scores(large_first, "sacrebleu"))[2:]] == [
        "| en-de, 2,000 pairs", "| en-de, 29,000 pairs",
    ]  # fmt: skip


def test_arms_with_little_dropout_are_told_of(runs):
    few = [{**translated(arm, data, 1, 1, 9.0), "dropout": dropout}
           for arm, data, dropout in (("random", "en-fr.29000", "0.1"), ("random", "en-de.2000", "0.3"), ("veco", "en-de.2000", "0.1"),
                                      ("veco-half", "en-de.9000", "0.1"), ("veco", "en-de.8000", "0.3"), ("mbart", "en-de.8000", "0.1"),
                                      ("veco", "en-de.29000", "0.1"), ("random", "en-de.29000", "0.1"), ("xlm", "en-de.29000", "0.1"))]  # fmt: skip
    assert page.of_little_dropout(few).startswith(
        " Dropout is 0.1 with 8,000 pairs (mBART) and 29,000 pairs (random weights, XLM, VECO), and [more can be better]("
    )
    assert page.of_little_dropout(few[1:5]) == ""


def test_other_pre_trainings_stand_beside_random_weights(runs):
    """... in a table for each kind, and only where one of the kind was run."""
    more = [
        translated("veco-few", "en-de.2000", 1, 1, 15.0), translated("veco-few", "en-de.2000", 1, 2, 16.0),
        translated("nmt-few", "en-de.2000", 1, 1, 5.0), translated("xlm-8", "en-fr.2000", 1, 1, 22.0),
    ]  # fmt: skip
    assert page.beside_random([*runs, *more], page.FEW) == [
        "|  | random | NMT first, few pairs | VECO, few pairs |",
        "| --- | --- | --- | --- |",
        "| en-de, 2,000 pairs | 5.0 ± 1.4 (2) | 5.0 (1) | 15.5 ± 0.7 (2) |",
    ]
    assert page.beside_random([*runs, *more], page.LARGE)[2:] == ["| en-fr, 2,000 pairs |  | 22.0 (1) |"]
    assert page.beside_random(runs, page.FEW) == []


def test_languages_with_little_text_are_a_table_of_their_own(runs):
    """... and in no other one, nor in a picture."""
    scored = {"random": (3.0, 20.5), "veco": (7.5, 31.25)}
    verses = [translated(arm, "en-sw.60", 1, 1, bleu, chrf=chrf, set="bible") for arm, (bleu, chrf) in scored.items()]
    verses.append({"kind": "cost", "set": "bible", "arm": "veco", "seed": "1", "updates": 9, "operations": 9e14, "seconds": 60})
    alone, made = (page.page(of, source="S", measured="M", pictures={}) for of in (runs, [*runs, *verses]))
    before, _, after = alone.partition("## Understanding and retrieval\n")
    assert made.startswith(before) and made.endswith(after)
    section = made[len(before) : -len(after)].split("\n\n")
    assert section[0] == "## Languages with little text" and "books of the Bible in eleven languages" in " ".join(
        section[1].split()
    )
    assert section[2:4] == [
        f"|  | random | VECO |\n| --- | --- | --- |\n| en-sw, 60 pairs | {random} (1) | {veco} (1) |"
        for random, veco in (("3.0", "7.5"), ("20.5", "31.2"))
    ]
    assert "Languages with little text" not in alone


def test_an_ingredient_is_compared_with_veco_of_the_same_seeds(runs):
    assert page.ingredients(runs) == [
        "|  | BLEU, en-de | Tatoeba | FLORES |",
        "| --- | --- | --- | --- |",
        "| VECO | 23.5 ± 4.9 (2) | 11.0 ± 1.4 (2) |  |",
        "| VECO without TLM | 18.5 ± 0.7 (2) | 7.0 (1) |  |",
    ]
    assert page.ingredients([run for run in runs if run["arm"] != "no-tlm"]) == []
    flores = [judged("retrieval", "flores", "no-tlm", "out", 2, 30.0), judged("understanding", "xnli", "no-tlm", "out", 1, 1.0)]
    assert page.ingredients([*runs, *flores])[-1] == "| VECO without TLM | 18.5 ± 0.7 (2) | 7.0 (1) | 30.0 (1) |"
    more = [translated("no-stop", "en-de.2000", 1, 1, 17.5), translated("no-stop", "en-de.29000", 1, 1, 39.5)]
    assert page.ingredients([*runs, *more]) == [  # which alone has other numbers of pairs, too
        *page.ingredients(runs), "| VECO, gradient into the memory | 17.5 (1) |  |  |",
    ]  # fmt: skip


def test_cost_and_depth(runs):
    assert page.depth(runs)[2:] == ["| VECO of 6 layers, last 3 | 22.0 ± 1.4 (2) | 92 |"]
    runs.append({"kind": "cost", "arm": "xlm", "seed": "1", "updates": 50, "operations": 6e12, "seconds": None})
    runs += [
        translated("veco", "en-de.2000", 4, 1, 1.0, updates=1100, operations=3.04e13),  # of an update 2.76e10
        translated("veco", "en-de.500", 1, 1, 9.0, updates=20, operations=1.0),  # of another size, and of another direction
        translated("veco", "en-fr.2000", 1, 1, 9.0, updates=20, operations=1.0),
        translated("veco", "en-fr.2000", 1, 2, 9.0, updates=20, operations=1.0),
    ]
    assert page.cost(runs) == [
        "|  | pre-training: updates, operations | minutes | fine-tuning, en-de, 2,000 pairs: updates to the best, operations |",
        "| --- | --- | --- | --- |",
        "| random | none |  | 800 |",
        "| XLM | 50, 6.0e12 |  | 300 |",  # of which the time is not known
        "| VECO | 4,000, 4.9e14 | 120 | 300, 8.3e12 |",
    ]
    unknown = [
        translated("deep-first-1", "en-de.2000", 1, 1, 3.0, sentences_per_second=None),
        translated("deep-all-6", "en-de.2000", 1, 1, 9.0),
    ]
    assert page.depth(unknown)[2:] == ["| VECO of 6 layers, all | 9.0 (1) |  |", "| VECO of 6 layers, first 1 | 3.0 (1) |  |"]


def test_each_model_of_the_paper_has_its_own_figures():
    of = {"xlm-mono": ("59.8", "33.7"), "mbart": ("57.3", "32.9"), "veco-mono": ("60.6", "34.0"), "xlm": ("64.5", "33.9")}
    runs = [judged("understanding", "xnli", arm, "out", 1, 40.0) for arm in of]
    runs += [judged("understanding", "udpos", "veco", "out", 1, 1.0), judged("retrieval", "tatoeba", "mbart", "out", 1, 2.0)]
    assert page.beside_the_paper(runs) == [
        "|  | XNLI | the paper's | BLEU | the paper's, IWSLT14 |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {figures.ARMS[arm]} | 40.0 (1) | {xnli} |  | {bleu} |" for arm, (xnli, bleu) in of.items()),
    ]


def test_beside_the_paper_stands_the_number_of_pairs_that_most_models_have(runs):
    """... and of several such numbers the largest; random weights do not count. A model with large batches has its own row."""
    assert page.beside_the_paper(runs) == [
        "|  | XNLI | the paper's | BLEU, en-de, 2,000 pairs | the paper's, IWSLT14 |",
        "| --- | --- | --- | --- | --- |",
        "| XLM |  | 64.5 | 30.0 (1) | 33.9 |",
        "| VECO | 48.0 (1); plugged in 51.0 (1) | 67.7 | 39.0 ± 33.7 (5) | 36.0 |",
    ]
    more = [translated("xlm-8", "en-de.29000", 1, 1, 41.5), judged("understanding", "xnli", "mbart-8", "out", 1, 47.0)]
    assert page.beside_the_paper([*runs, *more])[2:] == [
        "| mBART, large batches | 47.0 (1) | 57.3 |  | 32.9 |",
        "| XLM, large batches |  | 64.5 | 41.5 (1) | 33.9 |",
        "| VECO | 48.0 (1); plugged in 51.0 (1) | 67.7 | 40.5 (1) | 36.0 |",
    ]


@pytest.mark.parametrize("metric, figure", [("sacrebleu", "40.5"), ("chrf", "61.2"), ("updates", "300.0")])
def test_the_table_is_of_the_metric_that_was_asked_for(tmp_path, metric, figure):
    results = tmp_path / "evidence.jsonl"
    worse = translated("veco", "en-de.29000", 1, 1, 41.5, chrf=62.2, lr="1e-3", valid_loss=3.3, updates=350)  # in validation
    line = translated("veco", "en-de.29000", 1, 1, 40.5, chrf=61.2, lr="2e-3", valid_loss=3.2)
    results.write_text("".join(json.dumps(run) + "\n" for run in (worse, line)))
    command = [sys.executable, RECIPES / "evidence/table.py", results, "--metric", metric]
    result = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(RECIPES.parent)})
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, f"| VECO | {figure} (1) |"), result.stderr


def test_one_command_makes_the_page_and_its_picture(runs, tmp_path):
    results, made = tmp_path / "evidence.jsonl", tmp_path / "docs/README.md"
    runs[0] |= {"curve": [[50, 8.0], [100, 7.5]], "operations": 3e12, "chrf": 44.5}
    results.write_text("".join(json.dumps(run) + "\n" for run in runs))
    command = [sys.executable, RECIPES / "evidence/table.py", results, "--page", made]
    refused = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(RECIPES.parent)})
    assert refused.returncode == 1 and "--page: a figure needs its machine and date" in refused.stderr
    command += ["--measured", "two cores of a machine, 2026-11-23"]
    result = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(RECIPES.parent)})
    assert (result.returncode, result.stdout) == (0, f"wrote {made}\n"), result.stderr
    text = made.read_text()
    said = " ".join(text.split())
    assert "Measured on two cores of a machine, 2026-11-23." in said and f"table.py {results} --page" in said
    assert "](evidence-gain.png)" in text and (made.parent / "evidence-gain.png").read_bytes().startswith(b"\x89PNG")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert len(headings) == 10 and "None" not in text and "nan" not in text
    assert "| VECO | 44.5 (1) |" in text.split("## All directions, in chrF")[1]
    for over, name in (("updates of fine-tuning", "learning-updates"), ("10^14 operations, pre-training included", "learning-operations"),
                       ("sentences a second", "depth")):  # fmt: skip
        assert f"over {over}](evidence-{name}.png)" in text and (made.parent / f"evidence-{name}.png").read_bytes()[1:4] == b"PNG"
    assert "VECO without TLM" not in text.split("## What each")[0]


def test_what_has_no_results_is_left_out(runs, tmp_path):
    few = [run for run in runs if run["kind"] == "translation" and run["arm"] in ("veco", "random") and "29000" in run["data"]]
    text = page.page(few, source="r", measured="m", pictures={})
    assert "![" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## The situation, and the gain", "## The cost", "## All directions", "## Beside the paper's Table 5", "## How it was made",
    ]  # fmt: skip
    assert page.draw(few, tmp_path) == {} and not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="has no translation by VECO"):
        page.write_page([runs[5]], tmp_path / "README.md", source="r", measured="m")
    assert not list(tmp_path.iterdir())


def test_the_page_tells_of_all_arms_that_are_compared():
    """... and of XLM-E's understanding; what changes an ingredient has a table of its own."""
    arms = {"random": "random", "nmt": "NMT first", "nmt-more": "NMT first, 1.4 times the operations", "xlm": "XLM", "mbart": "mBART",
            "veco": "VECO", "no-stop": "VECO, gradient into the memory", "xlm-updates": "XLM, as many updates as VECO",
            "veco-mono": "VECO, monolingual text alone", "xlm-mono": "XLM, monolingual text alone"}  # fmt: skip
    runs = [translated(arm, "en-de.500", 1, 1, 5.0) for arm in (*arms, "no-tlm", "mask-0.5")]
    runs += [
        translated("nmt-8", "en-de.500", 1, 1, 7.0),
        translated("veco-8", "en-de.500", 1, 2, 7.5),
        translated("veco-8", "en-fr.80", 1, 1, 9),
        translated("mbart-half", "en-de.500", 1, 1, 6.5),
        translated("nmt-half", "en-de.500", 3, 1, 8.0),
    ]
    runs += [judged("retrieval", "flores", arm, "out", 1, 5.0) for arm in (*arms, "xlme", "no-tlm")]
    parts = page.page(runs, source="r", measured="m", pictures={}).split("\n## ")
    rows = {
        part.split("\n", 1)[0]: [line.split(" | ")[0][2:] for line in part.split("\n") if line[:2] == "| "][1:] for part in parts
    }
    assert [name for name in rows["All directions"] if name != "---"] == list(arms.values())
    large = next(part for part in parts if part.startswith("With five times the operations"))
    assert large.split("\n\n")[2].splitlines() == [
        "|  | random | NMT first, large batches | VECO, large batches |", "| --- | --- | --- | --- |",
        "| en-de, 500 pairs | 5.0 (1) | 7.0 (1) | 7.5 (1) |", "| en-fr, 80 pairs |  |  | 9.0 (1) |",
    ]  # fmt: skip
    half = next(part for part in parts if part.startswith("With half the learning rate"))
    assert half.split("\n\n")[2].splitlines() == [
        "|  | random | NMT first, half the learning rate | mBART, half the learning rate |", "| --- | --- | --- | --- |",
        "| en-de, 500 pairs | 5.0 (1) | 8.0 (1) | 6.5 (1) |",
    ]  # fmt: skip
    assert [name for name in rows["Understanding and retrieval"] if name != "---"] == [*arms.values(), "XLM-E"]
    assert set(rows["The cost"]) == {"---", *arms.values()} - {"NMT"}
    assert "over XLM, equal updates |" in parts[1] and "over NMT first, 1.4 times the operations |" in parts[1]


def test_chrf_is_of_what_is_compared_and_understanding_of_large_batches_and_few_pairs_too():
    runs = [translated(arm, "en-de.500", 1, 1, 5.0, chrf=30.5) for arm in ("veco", "no-tlm", "veco-8")]
    runs += [judged("retrieval", "tatoeba", arm, "out", 1, 6.5) for arm in ("veco", "no-tlm", "veco-8", "veco-few")]
    parts = page.page(runs, source="r", measured="m", pictures={}).split("\n## ")
    rows = {part.split("\n", 1)[0]: [line for line in part.splitlines() if line[:2] == "| "][2:] for part in parts}
    assert rows["All directions, in chrF"] == ["| VECO | 30.5 (1) |"]
    assert rows["Understanding and retrieval"] == [
        "| VECO | 6.5 (1) |", "| VECO, large batches | 6.5 (1) |", "| VECO, few pairs | 6.5 (1) |",
    ]  # fmt: skip
