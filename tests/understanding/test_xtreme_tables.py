# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Training sets of a teacher's tags, and figures that are read again: XTREME's tables and Tatoeba's accuracies."""

import json

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.retrieval.tatoeba import read_accuracies
from veco_fairseq.understanding.reading import read_examples
from veco_fairseq.understanding.teaching import ids_like, read_words, write_conllu
from veco_fairseq.understanding.xtreme import Result, read_result, read_results, read_task, spread, summary, table


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_translation_is_cut_into_words(tmp_path):
    text = written(tmp_path / "text", "It's \"here\" & there.\nd'accord\n")
    assert read_words(text, None) == [["It's", '"here"', "&", "there."], ["d'accord"]]
    assert read_words(text, "en")[0] == ["It", "'s", '"', "here", '"', "&", "there", "."]
    assert read_words(text, "fr")[1] == ["d'", "accord"]
    with pytest.raises(UserError, match="text: is empty"):
        read_words(written(text, ""), None)
    with pytest.raises(UserError, match="text, line 2: has no word"):
        read_words(written(text, "a\n \nb\n"), None)


def test_a_teachers_tags_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "train-de.conllu"
    write_conllu(path, ["s1", "7"], [["ein", "Hund"], ["ja"]], [["DET", "NOUN"], ["INTJ"]])
    assert path.read_text() == ("# sent_id = s1\n1\tein\t_\tDET\t_\t_\t_\t_\t_\t_\n2\tHund\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n"
                                "# sent_id = 7\n1\tja\t_\tINTJ\t_\t_\t_\t_\t_\t_\n\n")  # fmt: skip
    read = [(one.id, one.words, one.tags) for one in read_examples(path, "de", "tagging")]
    assert read == [("s1", ("ein", "Hund"), ("DET", "NOUN")), ("7", ("ja",), ("INTJ",))]
    assert ids_like(path, tmp_path / "text", 2) == ["s1", "7"]
    with pytest.raises(UserError, match=r"train-de\.conllu: has 2 sentences, but .*text has 1,000 lines"):
        ids_like(path, tmp_path / "text", 1000)


ACCURACY = {"accuracy": {"de": {"1": [0.25, 0.5], "2": [0.75, 0.625]}, "fr": {"1": [0, 1], "2": [0.5, 0.375]}, "mean": {"1": [0, 0]}},
            "score": "csls"}  # fmt: skip


@pytest.mark.parametrize("layer, de, fr, told", [(-1, 62.5, 37.5, "2"), (1, 50, 100, "1"), (2, 62.5, 37.5, "2")])
def test_the_accuracies_of_a_layer(tmp_path, layer, de, fr, told):
    """By default the last one's, and to the source."""
    path = written(tmp_path / "x.json", ACCURACY)
    for result in (read_result(path, layer), read_results([path], layer), *([read_results([path])] if layer < 0 else [])):
        assert result.seeds == [{"de": {"accuracy": de}, "fr": {"accuracy": fr}}]
        assert result.note.startswith(f"layer {told}, by csls: ")
    for missing in (0, 3):
        with pytest.raises(UserError, match=f"has no layer {missing}; there is 1, 2"):
            read_result(path, missing)


def test_the_last_layer_is_so_in_any_order(tmp_path):
    path = written(tmp_path / "x.json", {"score": "csls", "accuracy": {"de": {"10": [0, 0.5], "9": [0, 1]}}})
    result = read_result(path)
    assert result.seeds == [{"de": {"accuracy": 50}}] and result.note.startswith("layer 10, by csls: ")


def test_accuracies_that_are_read_again(tmp_path):
    path = written(tmp_path / "x.json", ACCURACY)
    assert read_accuracies(path, "fr") == {1: (0.0, 1.0), 2: (0.5, 0.375)}
    with pytest.raises(UserError, match=r"has no pair es \(there is: de, fr, mean\)"):
        read_accuracies(path, "es")
    written(path, {"accuracy": {"fr": {"3": [0.25, 0.5]}}})
    assert read_accuracies(path, "mean") == read_accuracies(path, "fr") == {3: (0.25, 0.5)}
    with pytest.raises(UserError, match=r"has no pair es \(there is: fr\)"):
        read_accuracies(path, "es")
    for damaged in ([], {"accuracy": 3}, {}, *({"accuracy": {"fr": figures}} for figures in (
        {}, {"1": [0.5]}, {"1": [0.5, 1.5]}, {"1": [-0.5, 0.5]}, {"x": [0.5, 0.5]}, {"1": ["a", 0.5]}, 3,
    ))):  # fmt: skip
        with pytest.raises(UserError, match=r"x\.json: is not a file of veco retrieve tatoeba --json"):
            read_accuracies(written(path, damaged), "fr")


def test_figures_of_seeds_and_files(tmp_path):
    first = written(tmp_path / "a.json", {"seeds": [{"de": {"f1": 40.5}, "fr": {"f1": 50}}, {"de": {"f1": 42.5}}]})
    result = read_results([first])
    assert result.langs == ["de"] and result.names == ["f1"] and result.note == ""
    assert table(result).splitlines() == ["            de        mean", "f1  41.5 ± 1.4  41.5 ± 1.4"]
    assert table(Result([{"de": {"f1": 1, "accuracy": 100}, "x": {"f1": 2, "accuracy": 50}}])).splitlines() == [
        "             de     x  mean", "      f1    1.0   2.0   1.5", "accuracy  100.0  50.0  75.0"]  # fmt: skip
    assert spread([1.25]) == "1.2" and spread([1, 2]) == "1.5 ± 0.7"
    more = written(tmp_path / "b.json", {"seeds": [{"es": {"f1": 0}}, {"es": {"f1": 100}}]})
    assert read_results([first, more]).seeds == [{"de": {"f1": 40.5}, "fr": {"f1": 50}, "es": {"f1": 0}},
                                                 {"de": {"f1": 42.5}, "es": {"f1": 100}}]  # fmt: skip
    one = written(tmp_path / "c.json", {"seeds": [{"it": {"f1": 1}}]})
    with pytest.raises(UserError, match=r"c\.json: has 1 models, but .*a\.json has 2"):
        read_results([first, one])
    other = written(tmp_path / "d.json", {"seeds": [{"it": {"accuracy": 1}}] * 2})
    with pytest.raises(UserError, match=r"d\.json: has accuracy, but .*a\.json has f1: give the files of one task"):
        read_results([first, other])
    for content in ({"seeds": [{}]}, {"seeds": [{"de": {"f1": 1}}, {}]}, {"seeds": [{"de": {"f1": 1}}, {"fr": {"f1": 1}}]}):
        with pytest.raises(UserError, match="has no figures: the test set had no labels, or no language is common"):
            read_results([written(one, content)])
    for content in (
        [],
        {},
        {"seeds": [{"de": {}}]},
        {"seeds": [{"de": {"f1": 1}, "fr": {"exact": 1}}]},
        {"f1": "x"},
        {"f1": 1.1},
        {"f1": 1.005},
        {"f1": 1.1},
    ):
        with pytest.raises(UserError, match=r"c\.json: is not from veco evaluate run or veco retrieve"):
            read_results([written(one, content)])
    assert read_results([written(one, {"f1": 0.5})]) == Result([{"all": {"f1": 50}}], "")
    assert read_results([written(one, {"f1": 1, "lang": "de", "layer": 3})]) == Result([{"de": {"f1": 100}}], "layer 3")


@pytest.mark.parametrize("task, names", [
    ("xnli", ["accuracy"]), ("panx", ["accuracy", "f1"]), ("tydiqa", ["f1", "exact"]), ("bucc", ["f1"]), ("tatoeba", ["accuracy"]),
])  # fmt: skip
def test_a_task_takes_files_of_its_own_figures_alone(tmp_path, task, names):
    for found in (["accuracy"], ["f1", "accuracy"], ["f1", "exact"], ["f1"]):
        path = written(tmp_path / "x.json", {"seeds": [{"de": dict.fromkeys(found, 25.5)}]})
        if set(found) == set(names):
            assert read_task(task, [path]).seeds == [{"de": dict.fromkeys(found, 25.5)}]
        else:
            with pytest.raises(UserError, match=f"x.json: has {' and '.join(found)}, but {task} has "):
                read_task(task, [path])


def test_the_average_over_tasks_counts_each_once():
    results = {
        "xnli": Result([{"de": {"accuracy": 80.0}, "fr": {"accuracy": 70.0}}]),
        "mlqa": Result([{"de": {"f1": 50.0, "exact": 30.0}}]),
    }
    assert summary(results) == {"xnli": 75, "mlqa": 40, "average": 57.5}
