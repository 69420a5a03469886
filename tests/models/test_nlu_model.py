# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The model for understanding: plugged in and out, its heads, its loss, and where gradients go."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.logging import metrics
from support.nlu import TOKENS, make_nlu, save_finetuned

from veco_fairseq.checkpoints.huggingface import export_hf, import_transformers, largest_difference
from veco_fairseq.criterions.nlu import NluCriterion
from veco_fairseq.errors import UserError
from veco_fairseq.models.nlu import mean_of_words
from veco_fairseq.tasks.nlu import NluTask
from veco_fairseq.understanding.metrics import SUMS


def test_plugged_in_is_symmetrical_in_x_and_y():
    model = make_nlu(plug_in=True)
    xy = model(TOKENS[:2], torch.tensor([1, 0]))
    yx = model(TOKENS[[1, 0]], torch.tensor([1, 0]))
    assert torch.allclose(xy, yx[[1, 0]], atol=1e-6) and not torch.allclose(xy[0], xy[1])


def test_features_are_h_and_s_of_the_translation_or_h_twice():
    model = make_nlu(plug_in=True)
    features = model.features(TOKENS, torch.tensor([1, -1, 0]))
    hidden = model.unplugged(TOKENS)
    assert torch.allclose(features[..., :16], hidden, atol=1e-6)
    assert torch.equal(features[1, :, 16:], features[1, :, :16])
    of_first = model.plugged(TOKENS[:1], hidden[1:2], TOKENS[1:2])
    of_last = model.plugged(TOKENS[2:], hidden[:1], TOKENS[:1])
    assert torch.allclose(features[0, :, 16:], of_first[0], atol=1e-5)
    assert torch.allclose(features[2, :3, 16:][:2], of_last[0][:2], atol=1e-5)
    assert make_nlu().features(TOKENS, torch.tensor([1, -1, 0])).size(-1) == 16


@pytest.mark.parametrize("attached", [False, True])
def test_whether_the_gradient_flows_into_what_is_looked_at(attached):
    model = make_nlu(plug_in=True, attach_memory=attached)
    model(TOKENS[:2], torch.tensor([1, -1]))[0].sum().backward()  # y is looked at, and not predicted
    gradient = model.encoder.sentence_encoder.embed_tokens.weight.grad
    assert gradient[10].abs().sum() > 0 and bool(gradient[20].abs().sum() > 0) == attached


def test_the_mean_of_a_words_tokens():
    features = torch.tensor([[[9.0], [1.0], [3.0], [9.0]], [[9.0], [5.0], [7.0], [9.0]]])
    words = torch.tensor([[-1, 0, 0, -1], [-1, 1, 2, -1]])
    assert mean_of_words(features, words).tolist() == [[2], [5], [7]]


@pytest.mark.parametrize("nlu_task, outputs", [("classification", 3), ("tagging", 5), ("span", 2)])
def test_heads_are_those_of_transformers(tmp_path, nlu_task, outputs):
    labels = [] if nlu_task == "span" else [f"L{number}" for number in range(outputs)]
    checkpoint = save_finetuned(tmp_path / "model.pt", make_nlu(nlu_task, outputs), nlu_task, labels)
    export_hf(checkpoint, tmp_path / "hf")
    if labels:
        assert json.loads((tmp_path / "hf/config.json").read_text())["id2label"] == dict(zip("01234", labels))
    if import_transformers() is None:
        pytest.skip("transformers is not installed: pip install transformers")
    assert largest_difference(checkpoint, tmp_path / "hf") < 1e-5


def test_what_was_plugged_in_has_no_place_in_transformers(tmp_path):
    model = make_nlu(plug_in=True)
    checkpoint = save_finetuned(tmp_path / "model.pt", model, "classification", ["a", "b", "c"], plug="in")
    with pytest.raises(UserError, match="fine-tune with --plug out"):
        export_hf(checkpoint, tmp_path / "hf")


def test_a_model_that_is_plugged_out_has_no_s():
    model, x = make_nlu(), TOKENS[:1]
    with pytest.raises(UserError, match="^the model has no cross-attention to plug in"):
        model.plugged(x, model.unplugged(x), x)


def test_the_loss_of_a_span_is_over_its_own_window():
    """A window of four tokens beside one of six: its two tokens of padding are no places, however likely they look."""
    torch.manual_seed(1)
    logits = torch.randn(2, 6, 2)
    logits[1, 4:] = 9
    tokens = torch.tensor([[0, 4, 5, 6, 7, 2], [0, 4, 5, 2, 1, 1]])
    target = torch.tensor([[1, 3], [2, 2]])
    sample = {"net_input": {"tokens": tokens}, "target": target, "ntokens": 10, "nsentences": 2}
    task = SimpleNamespace(source_dictionary=make_dictionary())
    loss, size, log = NluCriterion(task).train()(lambda tokens: logits, sample)
    expected = sum(
        torch.logsumexp(logits[row, :length, side], 0) - logits[row, target[row, side], side]
        for row, length in ((0, 6), (1, 4)) for side in (0, 1)
    )  # fmt: skip
    assert loss.item() == pytest.approx(float(expected), rel=1e-5) and size == 4
    right = [logits[row, :length, side].argmax() == target[row, side] for row, length in ((0, 6), (1, 4)) for side in (0, 1)]
    assert log["correct"] == sum(right)


def test_scores_are_of_the_whole_set_and_not_of_batches():
    """A batch with a false span, one without a found one, one with 90 of 100: F1 = 2 * 90 / (101 + 101)."""
    others = {"loss": 1.7, "correct": 2, **{f"fr/{name}": 0 for name in SUMS["tagging"]}}
    others.update({"de/right": 150, "de/words": 160})  # the accuracy doesn't count
    others.update({f"it/{name}": 1 for name in SUMS["tagging"]}, **{"it/gold": 2})  # F1 = 2 * 3 / (3 + 6)
    logs = [{**others, "sample_size": size, "de/correct": correct, "de/predicted": predicted, "de/gold": gold}
            for size, correct, predicted, gold in ((2, 0, 1, 0), (5, 0, 0, 1), (2, 90, 100, 100))]  # fmt: skip
    with metrics.aggregate() as of_all:
        for log in logs:
            NluCriterion.reduce_metrics([log])
    values = of_all.get_smoothed_values()
    assert (values["de_score"], values["it_score"], values["fr_score"]) == (89.11, 66.67, 0) and "_de/gold" not in values
    assert values["score"] == 77.89  # of both that have labels, and rounded once: (89.109 + 66.667) / 2
    assert (values["loss"], values["acc"]) == (round(3 * 1.7 / 9 / math.log(2), 3), round(6 / 9, 4))  # bits
    assert list(values)[:3] == ["loss", "acc", "score"]  # and each language's after that


def test_a_batch_without_a_language_adds_nothing_to_its_sums():
    task = NluTask.__new__(NluTask)
    task.nlu_task, task.validation_langs = "tagging", ["de", "fr"]
    task.predict = lambda batch, logits: None
    task.sums = lambda found: {"de": {name: 3.0 for name in SUMS["tagging"]}}
    sums = task.validation_sums({}, None)
    assert {key: value for key, value in sums.items() if key.startswith("fr/")} == {f"fr/{name}": 0.0 for name in SUMS["tagging"]}
    assert all(value == 3.0 for key, value in sums.items() if key.startswith("de/"))


def test_figures_of_batches_without_any_label():
    """As where no word of a batch has a tag."""
    log = {"loss": 0.0, "correct": 0, "ntokens": 9, "nsentences": 2, "sample_size": 0}
    with metrics.aggregate() as found:
        NluCriterion.reduce_metrics([log, log])
    assert found.get_smoothed_values() == {"loss": 0.0, "acc": 0.0}


def test_batches_without_any_label_are_no_part_of_the_means():
    """Beside one of 2 predictions with 3 nats, of which 1 is right."""
    nothing = {"loss": 0.0, "correct": 0, "ntokens": 9, "nsentences": 2, "sample_size": 0}
    with metrics.aggregate() as found:
        for log in (nothing, {**nothing, "loss": 3.0, "correct": 1, "sample_size": 2}, nothing):
            NluCriterion.reduce_metrics([log])
    assert found.get_smoothed_values() == {"loss": round(1.5 / math.log(2), 3), "acc": 0.5}
