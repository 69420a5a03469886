# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Predictions of a fine-tuned model, with a stand-in for the model: in which batches, and in which order."""

from dataclasses import make_dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from support.progress import Bar

from veco_fairseq.errors import UserError
from veco_fairseq.inference import evaluation, finetuned
from veco_fairseq.inference.finetuned import Finetuned, load_finetuned
from veco_fairseq.tasks.nlu import NluTask, NluTaskConfig
from veco_fairseq.understanding.dataset import Item, Side, UnderstandingDataset
from veco_fairseq.understanding.examples import SentencePair
from veco_fairseq.understanding.predictions import Prediction
from veco_fairseq.understanding.windows import Window


def example(number, length, lang="de"):
    """A sentence pair in one window of so many tokens."""
    window = Window(np.arange(4, 4 + length), np.array([0]))
    return Item(Side(lang, SentencePair(f"{number}", f"line {number}", "a", "b", "yes"), [window]))


class Model(torch.nn.Linear):
    """Notes the shapes of its batches."""

    def __init__(self):
        super().__init__(1, 1)
        self.shapes = []

    def forward(self, tokens, partner):
        self.shapes.append(tuple(tokens.shape))
        return tokens


def test_batches_have_so_many_tokens_and_predictions_the_order_of_the_examples(monkeypatch):
    """Lengths 5, 2, 4 and 4 with at most 8 tokens a batch: 2 and 4 are padded to 8, then 4 and 5 alone."""
    model = Model()
    dataset = UnderstandingDataset([example(*each) for each in enumerate((5, 2, 4, 4))], "classification", pad=1)
    task = SimpleNamespace(predict=lambda batch, tokens: [Prediction(side, str(len(tokens))) for side, _ in batch["rows"]])
    bars = Bar.put_into(monkeypatch, finetuned)
    found = Finetuned(model, task).predict(dataset, 8, "test")
    assert [(bar.desc, len(bar.batches)) for bar in bars] == [("test", 3)]
    assert model.shapes == [(2, 4), (1, 4), (1, 5)]
    assert [(prediction.side.example.id, prediction.value) for prediction in found] == [
        ("0", "1"), ("1", "2"), ("2", "2"), ("3", "1")
    ]  # fmt: skip


def test_an_evaluation_is_of_its_split_in_batches_of_so_many_tokens():
    """German has one of two right; of French, which has no labels, there are predictions alone."""
    items, asked = [example(1, 3), example(2, 3), example(3, 3, "fr")], []
    found = [Prediction(item.x, label) for item, label in zip(items, ("yes", "no", "no"))]
    task = SimpleNamespace(
        nlu_task="classification", plug_in=True, validation_langs=["fr", "de"],
        load_dataset=lambda *words, **more: asked.append((words, more)), dataset={"dev": SimpleNamespace(items=items)}.get,
        sums=lambda found: {"de": {"correct": 1.0, "count": 2.0}},
    )  # fmt: skip
    model = SimpleNamespace(task=task, predict=lambda *words: asked.append(words) or found)
    evaluated = evaluation.evaluate(model, "dev", 77)
    assert asked == [(("dev",), {"training": False}), (task.dataset("dev"), 77, "dev")]
    assert evaluated.predictions == {"fr": found[2:], "de": found[:2]} and evaluated.figures == {"de": {"accuracy": 50.0}}
    assert evaluated.alone == {"de": 2, "fr": 1}
    task.plug_in = False  # which looks at no translation, so that none is missing
    assert evaluation.evaluate(model, "dev", 77).alone == {}


def test_sentences_are_labelled_in_batches_of_so_many_tokens():
    windows, asked = [Window(np.arange(3), np.array([0]))], []
    task = SimpleNamespace(
        nlu_task="tagging", dictionary=SimpleNamespace(pad=lambda: 1), windows=lambda notes: lambda example: windows
    )
    teacher = SimpleNamespace(
        task=task, predict=lambda dataset, *words: asked.append(words) or [Prediction(item.x, ["X"]) for item in dataset.items]
    )
    assert evaluation.label(teacher, [["a"], ["b"]], 77) == [["X"], ["X"]] and asked == [(77, "sentences")]
    teacher.predict = lambda dataset, *words: [Prediction(item.x, [*item.x.example.words]) for item in dataset.items]
    assert evaluation.label(teacher, [[], ["a", "b"], [], ["c"]]) == [[], ["a", "b"], [], ["c"]]  # a traceback of NumPy's
    assert evaluation.label(teacher, []) == []


@pytest.mark.parametrize("nlu_task", ["classification", "tagging", "span"])
def test_answers_are_compared_for_questions_alone(monkeypatch, tmp_path, nlu_task):
    """``veco evaluate run --answer-metric mlqa`` with a tagger had done nothing, where training refuses the option."""
    state = {"cfg": SimpleNamespace(task=SimpleNamespace(_name="veco_nlu", nlu_task=nlu_task))}
    model = SimpleNamespace(eval=lambda: SimpleNamespace(to=lambda device: "model"))
    monkeypatch.setattr(finetuned.checkpoint_utils, "load_checkpoint_to_cpu", lambda path, overrides: state)
    monkeypatch.setattr(finetuned.checkpoint_utils, "load_model_ensemble_and_task", lambda paths, state: ([model], None, "task"))
    (tmp_path / "1.pt").touch()
    assert load_finetuned(tmp_path / "1.pt", tmp_path, cpu=True, valid_langs="de") == ("model", "task")
    if nlu_task == "span":
        assert load_finetuned(tmp_path / "1.pt", tmp_path, cpu=True, answer_metric="mlqa") == ("model", "task")
    else:
        with pytest.raises(UserError, match="^--answer-metric: is for --nlu-task span alone: leave it out$"):
            load_finetuned(tmp_path / "1.pt", tmp_path, cpu=True, answer_metric="mlqa")
    with pytest.raises(UserError, match="^--valid-lang: is no option of --task veco_nlu: there is --data, --nlu-task, --plug, "):
        load_finetuned(tmp_path / "1.pt", tmp_path, cpu=True, valid_lang="de")  # had evaluated all languages


def test_a_task_that_extends_this_ones_is_loaded(monkeypatch, tmp_path):
    """With its own options, too; its name alone does not tell."""
    own = make_dataclass("Own", [("own_share", float, 0.5)], bases=(NluTaskConfig,))
    monkeypatch.setitem(TASK_REGISTRY, "own_nlu", type("OwnTask", (NluTask,), {}))
    monkeypatch.setitem(TASK_DATACLASS_REGISTRY, "own_nlu", own)
    state = {"cfg": SimpleNamespace(task=SimpleNamespace(_name="own_nlu", nlu_task="tagging"))}
    model = SimpleNamespace(eval=lambda: SimpleNamespace(to=lambda device: "model"))
    monkeypatch.setattr(finetuned.checkpoint_utils, "load_checkpoint_to_cpu", lambda path, overrides: state)
    monkeypatch.setattr(finetuned.checkpoint_utils, "load_model_ensemble_and_task", lambda paths, state: ([model], None, "task"))
    (tmp_path / "1.pt").touch()
    assert load_finetuned(tmp_path / "1.pt", tmp_path, cpu=True, own_share=0.2) == ("model", "task")
    with pytest.raises(UserError, match="^--own-part: is no option of --task own_nlu: there is --data, .*--own-share$"):
        load_finetuned(tmp_path / "1.pt", tmp_path, cpu=True, own_part=0.2)
    state["cfg"].task._name = "camlm"
    with pytest.raises(UserError, match="1.pt: is no model of --task veco_nlu: fine-tune it first"):
        load_finetuned(tmp_path / "1.pt", tmp_path, cpu=True)
