# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What veco evaluate says of test sets without labels or translations, and of tasks that are named wrongly."""

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from veco_fairseq.commands import evaluate as command
from veco_fairseq.errors import UserError
from veco_fairseq.inference import evaluation, finetuned
from veco_fairseq.understanding import xtreme


@pytest.mark.parametrize("seeds, alone, printed", [
    ([{"de": 1}] * 3, [{"de": 5}, {"de": 5}, {}], "table of 3\npredicted without a translation to look at: de 5\n"),  # the last: out
    ([{}, {}], [{}, {}], "d: the dev set has no labels, so that there is nothing to count\n"),
    *((seeds, [{}, {}], "d: no language has figures of every model, so that there is no table: evaluate them one by one\n")
      for seeds in ([{"de": 1}, {}], [{}, {"de": 1}])),
    ([{"de": 1}, {"de": 1, "fr": 1}], [{}, {}], "table of 2\n"),
    ([{"de": 1}], [{"de": 1200, "fr": 3}], "table of 1\npredicted without a translation to look at: de 1,200, fr 3\n"),
])  # fmt: skip
def test_what_is_said_of_each_test_set(monkeypatch, capsys, seeds, alone, printed):
    found = (SimpleNamespace(nlu_task="span", figures=seed, alone=of) for seed, of in zip(seeds, alone))
    monkeypatch.setattr(finetuned, "load_finetuned", lambda *arguments, **options: None)
    monkeypatch.setattr(evaluation, "evaluate", lambda *arguments: next(found))
    monkeypatch.setattr(xtreme, "table", lambda result: f"table of {len(result.seeds)}")
    paths = [Path(f"{number}.pt") for number in range(len(seeds))]
    args = Namespace(checkpoints=paths, data=Path("d"), split="dev", langs=None, answer_metric=None, max_tokens=9, predictions=None,
                     cpu=True)  # fmt: skip
    result = command.evaluate_one(args)
    assert capsys.readouterr().out == printed
    assert result == {"split": "dev", "checkpoints": list(map(str, paths)), "seeds": seeds, "without_translation": alone[0]}


def test_models_of_two_tasks_have_no_table(monkeypatch):
    kinds = iter(["tagging", "classification"])
    monkeypatch.setattr(finetuned, "load_finetuned", lambda *arguments, **options: None)
    monkeypatch.setattr(evaluation, "evaluate", lambda *arguments: evaluation.Evaluated(next(kinds), {}, {"de": {"f1": 9.0}}))
    args = Namespace(checkpoints=[Path("a.pt"), Path("b.pt")], data=Path("d"), split="dev", langs=None, answer_metric=None,
                     max_tokens=9, predictions=None, cpu=True)  # fmt: skip
    with pytest.raises(
        UserError, match="^b.pt: is a model for classification, and a.pt one for tagging: evaluate them one by one$"
    ):
        command.evaluate_one(args)


def test_predictions_of_an_earlier_run_are_told(monkeypatch, capsys, tmp_path):
    """They stay, as do those of another set; its name is no pattern."""
    folder = tmp_path / "p"
    evaluated = evaluation.Evaluated("classification", {"de": [], "en": []}, {"de": {"accuracy": 50.0}})
    monkeypatch.setattr(finetuned, "load_finetuned", lambda *arguments, **options: None)
    monkeypatch.setattr(evaluation, "evaluate", lambda *arguments: evaluated)
    monkeypatch.setattr(xtreme, "table", lambda result: "table")
    args = {
        "data": Path("d"),
        "split": "[t]",
        "langs": None,
        "answer_metric": None,
        "max_tokens": 9,
        "predictions": folder,
        "cpu": True,
    }
    for checkpoints, told in (
        ([Path("a.pt"), Path("b.pt")], ""),
        ([Path("a.pt"), Path("b.pt")], ": 1/[t]-fr.txt"),
        ([Path("a.pt")], ": 1/[t]-de.txt, 1/[t]-en.txt, 1/[t]-fr.txt, 2/[t]-de.txt, 2/[t]-en.txt"),
    ):
        command.evaluate_one(Namespace(checkpoints=checkpoints, **args))
        note = f"{folder}: also has predictions that are not of this run{told}\n"
        assert capsys.readouterr().out == "table\n" + note * bool(told)
        for name in ("[t]-fr.txt", "dev-de.txt", "t-de.txt"):
            (folder / "1" / name).touch()


def test_tasks_are_named_rightly_and_once(monkeypatch, tmp_path):
    read = []
    monkeypatch.setattr(xtreme, "read_task", lambda task, paths, layer: read.append((task, paths)))
    monkeypatch.chdir(tmp_path)
    Path("a,b").touch()
    for results, message in (
        (["bucc=a,b", "xnli=c", "bucc=d"], "bucc=d: there is a bucc before it: give each task once"),
        (["xnli"], "xnli: not TASK=FILE, with a task of xnli, "), (["nli=a"], "nli=a: not TASK=FILE"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=f"^{message}"):
            command.put_together(Namespace(results=results, layer=-1))
    assert read == [("bucc", [Path("a,b")]), ("xnli", [Path("c")])]  # a file with such a name, and no two files


def test_the_picture_has_the_means_over_the_seeds(monkeypatch, tmp_path):
    figures, drawn = (
        [{"de": {"accuracy": 40.0}, "fr": {"accuracy": 60.0}}, {"de": {"accuracy": 45.0}, "fr": {"accuracy": 61.0}}],
        [],
    )
    (tmp_path / "x.json").write_text(json.dumps({"seeds": figures}))
    monkeypatch.setattr("veco_fairseq.plots.plot_bars", lambda bars, *words: drawn.append(bars))
    command.put_together(Namespace(results=[f"xnli={tmp_path / 'x.json'}"], layer=-1, plot=tmp_path / "x.png"))
    assert drawn == [{"xnli": {"de": 42.5, "fr": 60.5}}]


@pytest.mark.parametrize("layer", [0, 8])
def test_a_layer_is_tatoebas_alone(monkeypatch, layer):
    monkeypatch.setattr(xtreme, "read_task", lambda task, paths, layer: None)
    message = f"^--layer {layer}: is Tatoeba's, which is not among the tasks: leave it out$"
    with pytest.raises(UserError, match=message):
        command.put_together(Namespace(results=["bucc=a", "xnli=b"], layer=layer))
