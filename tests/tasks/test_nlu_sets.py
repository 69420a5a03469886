# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The sets of understanding: which files they have, what is told of them, and where the vocabulary is looked for."""

import json
import logging
import re
import shutil
from argparse import Namespace

import pytest
import torch
from conftest import error_line, save_with_vocabulary
from support.nlu import SENTENCES, options, write_pairs

from veco_fairseq.errors import UserError
from veco_fairseq.models.nlu import VecoNluModel
from veco_fairseq.tasks.nlu import NluTask, NluTaskConfig
from veco_fairseq.understanding.windows import IGNORE


@pytest.fixture
def pretrained(tmp_path, make_model):
    return save_with_vocabulary(tmp_path / "pretrained", make_model, SENTENCES * 3, 22, max_positions=128)


def setup(data, save_dir, **options) -> NluTask:
    options = {"finetune_from_model": None, "train_subset": "train", "seed": 1, **options}
    return NluTask.setup_task(NluTaskConfig(data=str(data), save_dir=str(save_dir), **options))


def test_sets_to_validate_on(pretrained, tmp_path, caplog):
    """One language with labels is enough to choose a checkpoint by; scores are of the languages of all sets, each once."""
    caplog.set_level(logging.INFO)
    data = write_pairs(tmp_path / "data")
    (data / "dev-de.tsv").write_text("".join(f"{sentence}\t{sentence}\n" for sentence in SENTENCES))
    (data / "dev-fr.tsv").write_text("chat\tchat\tno\n")
    task = setup(data, tmp_path, finetune_from_model=str(pretrained))
    task.load_dataset("train")
    assert task.validation_langs == []
    task.load_dataset("valid")
    assert task.validation_langs == ["de", "en", "fr"]
    task.load_dataset("test")
    assert task.validation_langs == ["de", "en", "fr"]
    with pytest.raises(UserError, match=f"^{re.escape(str(data / 'dev-de.tsv'))}: has no labels or answers"):
        setup(data, tmp_path, finetune_from_model=str(pretrained), valid_langs="de").load_dataset("valid")
    assert len(task.dataset("train")) == 64 and len(task.dataset("valid")) == 6 + 12 + 1
    for told in ("train de: 32", "valid de: 6", "valid en: 12", "valid fr: 1"):
        split, lang, count = re.fullmatch(r"(\w+) (\w+): (\d+)", told).groups()
        name = f"{split.replace('valid', 'dev')}-{lang}.tsv"
        assert f"{told} examples of {data / name}" in caplog.text, count


def test_the_vocabulary_is_beside_the_start_or_what_was_saved(pretrained, tmp_path):
    """... unless it is named."""
    data, other = write_pairs(tmp_path / "data"), tmp_path / "other"
    with pytest.raises(UserError, match="other: has no dict.txt and sentencepiece.bpe.model: give --finetune-from-model"):
        setup(data, other)
    other.mkdir()
    (other / "dict.txt").write_bytes((pretrained.parent / "dict.txt").read_bytes())
    with pytest.raises(UserError, match="other: has no dict.txt and sentencepiece.bpe.model"):
        setup(data, other)
    assert setup(data, other, finetune_from_model=str(pretrained)).vocabulary == pretrained.parent
    assert setup(data, pretrained.parent).vocabulary == pretrained.parent
    (other / "sentencepiece.bpe.model").write_bytes((pretrained.parent / "sentencepiece.bpe.model").read_bytes())
    assert setup(data, pretrained.parent, vocabulary=str(other)).vocabulary == other


def test_a_folder_that_was_moved_has_its_own_vocabulary(pretrained, tmp_path, run):
    """What the model was fine-tuned from need not be there any more, to validate or to go on."""
    data, moved = write_pairs(tmp_path / "data"), tmp_path / "moved"
    assert run(*options(data, pretrained, tmp_path / "out", "--max-epoch", "1")).returncode == 0
    shutil.rmtree(pretrained.parent)
    (tmp_path / "out").rename(moved)
    command = ["fairseq-validate", data, "--user-dir", "veco_fairseq", "--task", "veco_nlu", "--path", moved / "checkpoint_last.pt",
               "--valid-subset", "valid", "--cpu", "--batch-size", "4", "--distributed-world-size", "2"]  # fmt: skip
    validated = run(*command)
    assert validated.returncode == 0 and "valid on 'valid' subset" in validated.stdout, validated.stderr
    assert "fairseq-validate has one worker, not 2" in validated.stdout
    resumed = run(*options(data, pretrained, moved, "--max-epoch", "2"))
    assert resumed.returncode == 0 and f"Loaded checkpoint {moved / 'checkpoint_last.pt'}" in resumed.stdout, resumed.stderr
    (moved / "dict.txt").unlink()
    assert error_line(run(*command)) == (
        f"fairseq-validate: error: {moved}: has no dict.txt and sentencepiece.bpe.model: copy both there"
    )


def test_examples_without_a_label_are_not_learnt_from(pretrained, tmp_path, caplog):
    data = write_pairs(tmp_path / "data", languages=["en"])
    with open(data / "train-en.tsv", "a") as file:
        file.write("cats see\tthe dog\t\n")
    task = setup(data, tmp_path, finetune_from_model=str(pretrained))
    assert task.labels == ["no", "yes"]
    task.load_dataset("train")
    assert len(task.dataset("train")) == 32 and "train en: 1 without label or answer, left out (first: " in caplog.text
    (data / "train-en.tsv").write_text("cats see\tthe dog\n" * 3)
    with pytest.raises(UserError, match="train-en.tsv: has no example to learn from: labels are missing$"):
        task.load_dataset("train")


@pytest.mark.parametrize("no_answer", [False, True])
def test_what_no_figure_counts_is_told(pretrained, tmp_path, caplog, no_answer):
    """Of the languages that are asked for. A question without an answer counts where there may be none."""
    data = write_pairs(tmp_path / "data")
    (data / "test-en.tsv").write_text("cats see\tthe dog\t\nthe dog\tcats see\tyes\n")
    setup(data, tmp_path, finetune_from_model=str(pretrained), plug="in").load_dataset("test", training=False)
    assert f"test en: 1 without label or answer, not counted (first: {data / 'test-en.tsv'}, line 1)" in caplog.text
    caplog.clear()
    setup(data, tmp_path, finetune_from_model=str(pretrained), valid_langs="de").load_dataset("test", training=False)
    assert "not counted" not in caplog.text
    entries = [
        {"id": "1", "question": "who", "answers": []},
        {"id": "2", "question": "who", "answers": [{"text": "dog", "answer_start": 99}]},
    ]
    (data / "test-en.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "the dog", "qas": entries}]}]}))
    options = {
        "nlu_task": "span",
        "max_length": 100,
        "stride": 32,
        "no_answer": no_answer,
        "finetune_from_model": str(pretrained),
    }
    task = setup(data, tmp_path, **options)
    task.load_dataset("test", training=False)
    assert ("test en: 1 without label or answer, not counted" in caplog.text) is not no_answer
    targets = [item.x.windows[0].target.tolist() for item in task.dataset("test").items]
    assert targets[0] == ([0, 0] if no_answer else [IGNORE, IGNORE])
    assert min(targets[1]) > 3


def test_why_nothing_has_a_translation_is_told(pretrained, tmp_path):
    """... and not what was noted before it."""
    data = write_pairs(tmp_path / "data")
    task = setup(data, tmp_path, finetune_from_model=str(pretrained), plug="in", pivot_lang="xx", max_length=8)
    with pytest.raises(
        UserError, match=r"one with the same id or row \(de: 32 without translation, since there is no file of xx"
    ):
        task.load_dataset("train")


@pytest.mark.parametrize("arch, criterion, message", [
    ("veco_tiny", "veco_nlu", "--arch veco_tiny: is no model of --task veco_nlu: give --arch veco_nlu_SIZE"),
    ("veco_nlu_tiny", "cross_entropy", "--criterion cross_entropy: --arch veco_nlu_tiny takes --criterion veco_nlu"),
])  # fmt: skip
def test_models_and_losses_of_other_tasks_are_refused(pretrained, tmp_path, arch, criterion, message):
    """cross_entropy is fairseq's default."""
    task = setup(write_pairs(tmp_path / "data"), tmp_path, finetune_from_model=str(pretrained))
    model = Namespace(_name=arch, arch=arch, encoder_layers=1, encoder_embed_dim=8, max_positions=128)
    with pytest.raises(UserError, match=f"^{message}"):
        task.build_model(model)
        task.build_criterion(Namespace(_name=criterion))
    with pytest.raises(UserError, match="^--arch veco_nlu_tiny: is for understanding: give --task veco_nlu, or another --arch"):
        VecoNluModel.build_model(Namespace(arch="veco_nlu_tiny"), Namespace())


def test_a_translation_needs_no_label_to_be_looked_at(pretrained, tmp_path):
    """Rows are translations where the files have as many, also if some are not learnt from."""
    data = write_pairs(tmp_path / "data")
    for lang, row in (("de", 2), ("en", 5)):
        lines = (data / f"train-{lang}.tsv").read_text().splitlines()
        lines[row] = lines[row].rpartition("\t")[0] + "\t"
        (data / f"train-{lang}.tsv").write_text("".join(f"{line}\n" for line in lines))
    task = setup(data, tmp_path, finetune_from_model=str(pretrained), plug="in", train_langs="de")
    task.load_dataset("train")
    found = [(item.x.lang, item.y and item.y.lang) for item in task.dataset("train").items]
    assert found == [("de", "en")] * 31


def test_labels_are_those_of_the_checkpoint(pretrained, tmp_path):
    data = write_pairs(tmp_path / "data", languages=["en"])
    task = setup(data, tmp_path, finetune_from_model=str(pretrained))
    state = task.state_dict()
    task.resume_task_state(state, "x.pt")
    task.resume_task_state({"symbols": state["symbols"]}, "x.pt")  # of pre-training, which has none
    told = "has the labels yes, no, but the data has the labels no, yes: give data with the same, or begin with the pre-trained"
    with pytest.raises(UserError, match=told):
        task.resume_task_state({**state, "labels": ["yes", "no"]}, "x.pt")
    with pytest.raises(UserError, match=r"x.pt: has no labels \(--nlu-task span\), but the data has the labels no, yes: give"):
        task.resume_task_state({**state, "labels": []}, "x.pt")
    with pytest.raises(UserError, match="x.pt: has learnt with --word-pooling mean, not first: give that option, too"):
        task.resume_task_state({**state, "word_pooling": "mean"}, "x.pt")
    for labels in (["yes", "no"], ["b", "c", "a"]):  # with their outputs, to predict
        task.load_state_dict({**state, "labels": labels})
        assert task.labels == labels
    turned = state["symbols"][:4] + state["symbols"][:3:-1]
    with pytest.raises(UserError, match="token 4 is "):
        task.load_state_dict({**state, "symbols": turned})


@pytest.mark.parametrize("nlu_task, suffix", [("classification", "tsv"), ("tagging", "conllu"), ("span", "json")])
def test_the_files_that_are_missing_are_named(pretrained, tmp_path, nlu_task, suffix):
    options = {"nlu_task": nlu_task, "max_length": 200, "finetune_from_model": str(pretrained)}
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match=f"data: has no train set of --nlu-task {nlu_task}: files such as train-en.{suffix}$"):
        setup(tmp_path / "data", tmp_path, **options).load_dataset("train")
    for missing in (None, ""):
        with pytest.raises(UserError, match="^the first argument, the folder of the task's files, is missing$"):
            NluTask.setup_task(NluTaskConfig(data=missing))


def test_a_sentencepiece_model_of_another_vocabulary_is_refused(pretrained, tmp_path, make_model):
    data, other = write_pairs(tmp_path / "data"), tmp_path / "other"
    save_with_vocabulary(other, make_model, [line.upper() for line in SENTENCES] * 3, 22, max_positions=128)
    (other / "dict.txt").write_bytes((pretrained.parent / "dict.txt").read_bytes())
    with pytest.raises(UserError, match="sentencepiece.bpe.model: does not belong to the dictionary"):
        setup(data, tmp_path, vocabulary=str(other))


def test_the_training_set_is_read_with_its_text_where_it_is_validated_on(pretrained, tmp_path):
    """By fairseq-validate, which calls with task_cfg; in a training it has no text to compare predictions with."""
    data = write_pairs(tmp_path / "data")
    task = setup(data, tmp_path, finetune_from_model=str(pretrained))
    task.load_dataset("train", combine=False, epoch=1, task_cfg=task.cfg)
    items = task.dataset("train")
    batch = items.collater([items[0]])
    assert len(items) == 64 and task.validation_langs == ["de", "en"]
    assert [prediction.value for prediction in task.predict(batch, torch.tensor([[0.0, 1.0]]))] == [task.labels[1]]


def test_a_translation_without_an_answer_is_looked_at_but_not_learnt(pretrained, tmp_path):
    (tmp_path / "data").mkdir()
    for lang, answered in (("de", "1"), ("en", "12")):
        paragraphs = []
        for name, line in zip("12", SENTENCES):
            answers = [{"text": "cat", "answer_start": line.index("cat")}] if name in answered else []
            paragraphs.append({"context": line, "qas": [{"id": name, "question": f"{lang} ?", "answers": answers}]})
        (tmp_path / f"data/train-{lang}.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    options = {"nlu_task": "span", "max_length": 100, "stride": 16, "finetune_from_model": str(pretrained)}
    for plug, pairs in (
        ("in", {("de", "1"): ("en", True), ("en", "2"): ("de", False)}),
        ("out", dict.fromkeys([("de", "1"), ("en", "1"), ("en", "2")], (None, False))),
    ):
        task = setup(tmp_path / "data", tmp_path, plug=plug, **options)
        task.load_dataset("train")
        items = task.dataset("train").items
        assert {(item.x.lang, item.x.example.id): (item.y and item.y.lang, item.both) for item in items} == pairs
        batch = task.dataset("train").collater(items)
        assert int(batch["target"].ne(IGNORE).all(1).sum()) == 3 and batch["target"][batch["target"].ne(IGNORE)].gt(0).all()
