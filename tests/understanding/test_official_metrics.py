# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every figure against what the official script gives for the same input (official_metrics.json: input and numbers)."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from veco_fairseq.alignment.gold import figures as of_links
from veco_fairseq.alignment.gold import read_gold
from veco_fairseq.inference.scoring import score
from veco_fairseq.retrieval.mining import best_threshold, mine
from veco_fairseq.retrieval.mining import figures as of_pairs
from veco_fairseq.retrieval.search import accuracy, candidates
from veco_fairseq.understanding import metrics
from veco_fairseq.understanding.xtreme import read_result

OFFICIAL = json.loads(Path(__file__).with_name("official_metrics.json").read_text(encoding="utf-8"))


def figures(sums):
    """Of several examples, whose sums are added up."""
    total = Counter()
    for of_one in sums:
        total.update(of_one)
    return metrics.figures(total)


def unit(rows):
    return F.normalize(torch.tensor(rows), dim=1)


def test_every_number_names_its_script():
    for name, entry in OFFICIAL.items():
        if name != "about":
            repository, _, commit = entry["source"].partition("@")
            assert repository.count("/") == 1 and len(commit) == 40 and entry["script"], name


@pytest.mark.parametrize("lang", ["de", "fr", "zh"])
@pytest.mark.parametrize("task", ["udpos", "panx"])
def test_tags(task, lang):
    given = OFFICIAL[task]["langs"][lang]
    pairs = zip(given["predicted"], given["gold"], strict=True)
    found = figures(metrics.of_tags(mine.split(), right.split()) for mine, right in pairs)
    assert found["f1"] == pytest.approx(given["f1"], abs=1e-9)


def test_labels():
    given = OFFICIAL["xnli"]
    found = figures(map(metrics.of_label, given["predicted"].split(), given["gold"].split()))
    assert found["accuracy"] == pytest.approx(given["accuracy"])


@pytest.mark.parametrize("name, no_answer", [("squad", False), ("squad2", True)])
def test_answers(name, no_answer):
    given = OFFICIAL[name]
    found = figures(metrics.of_answer(row["predicted"], row["gold"], no_answer=no_answer) for row in given["answers"])
    assert found == pytest.approx({"f1": given["f1"], "exact": given["exact"]})


@pytest.mark.parametrize("lang", list(OFFICIAL["mlqa"]["langs"]))
def test_answers_of_mlqa(lang):
    given = OFFICIAL["mlqa"]["langs"][lang]
    found = figures(metrics.of_answer(row["predicted"], row["gold"], metric="mlqa", lang=lang) for row in given["answers"])
    assert found == pytest.approx({"f1": given["f1"], "exact": given["exact"]})


def test_tatoeba_from_english(tmp_path):
    """The other direction has another accuracy: the table takes XTREME's."""
    given = OFFICIAL["tatoeba"]
    x, y = unit(given["language"]), unit(given["english"])
    to_target, to_source = map(accuracy, candidates(x, y, "cosine"))
    assert 100 * to_source == pytest.approx(given["accuracy"]) and to_target != to_source
    (tmp_path / "x.json").write_text(json.dumps({"accuracy": {"de": {"3": [to_target, to_source]}}}))
    assert read_result(tmp_path / "x.json").average() == pytest.approx(given["accuracy"])


def test_mining():
    """With XTREME's margin, the threshold of the dev set."""
    given = OFFICIAL["bucc"]
    threshold = None
    for split in ("dev", "test"):
        of_split = given[split]
        gold = {(number, number) for number in range(of_split["pairs"])}
        mined = mine(*candidates(unit(of_split["x"]), unit(of_split["y"]), "ratio", 4))
        threshold = threshold or best_threshold(mined, gold)
        assert threshold == pytest.approx(given["threshold"], abs=1e-5)
        found = of_pairs([pair for pair in mined if pair.score >= threshold], gold)
        assert 100 * found["f1"] == pytest.approx(given[f"{split}_f1"])
    assert 100 * found["precision"] == pytest.approx(given["test_precision"])
    assert 100 * found["recall"] == pytest.approx(given["test_recall"])


def test_alignment(tmp_path):
    given = OFFICIAL["alignment"]
    (tmp_path / "gold").write_text("".join(f"{line}\n" for line in given["gold"]))
    words = ["a b c d e f g h"] * len(given["gold"])
    found = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in given["found"]]
    expected = {name: given[name] for name in ("AER", "precision", "recall")}
    assert of_links(found, read_gold(tmp_path / "gold", words, words)) == pytest.approx(expected)


@pytest.mark.parametrize("lang", list(OFFICIAL["bleu"]["langs"]))
def test_bleu(lang):
    """Moses' numbers have two decimals, sacreBLEU's four."""
    given = OFFICIAL["bleu"]["langs"][lang]
    found = score(given["hypothesis"], given["reference"], lang=lang)
    told = found["tokenised_bleu"]["details"].replace("BLEU = ", "").split(" (")[0]
    assert told == given["tokenised"]
    assert found["sacrebleu"]["score"] == pytest.approx(given["sacrebleu"], abs=5e-5)
    assert found["sacrebleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
