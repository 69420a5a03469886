# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the peers of a benchmark are asked to learn, and what a training with k-NN target sampling is measured by."""

import math
from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from veco_fairseq.benchmarks import finetuning, peers, softmax, training, understanding
from veco_fairseq.benchmarks.kernels import plain_loss
from veco_fairseq.compat import SPEED, patching
from veco_fairseq.modules import prediction

PAD = 1
SYMBOLS = training.dictionary(20)
OPTIONS = Namespace(
    encoder_embed_dim=8, encoder_ffn_embed_dim=12, encoder_layers=3, encoder_attention_heads=2, max_positions=30, dropout=0.1,
    attention_dropout=0.2, decoder_layers=1, decoder_ffn_embed_dim=16, decoder_attention_heads=4, max_source_positions=40,
    activation_fn="relu",
)  # fmt: skip


@pytest.fixture
def transformers(monkeypatch):
    """What it is asked for: importing it takes seconds, and test_bench trains its models."""
    models = ("XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification", "BartForConditionalGeneration")
    made = {name: lambda config, name=name: SimpleNamespace(kind=name, config=config) for name in models}
    made |= dict.fromkeys(("XLMRobertaConfig", "BartConfig"), lambda **options: SimpleNamespace(**options))
    monkeypatch.setattr(peers, "import_transformers", lambda: SimpleNamespace(**made))


def answering(asked, **answer):
    """A model that gives this answer, whatever it is asked."""
    return lambda **given: asked.append(given) or SimpleNamespace(**answer)


def sizes(config, *names):
    return [getattr(config, name) for name in names]


XLMR = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
        "pad_token_id", "hidden_dropout_prob", "attention_probs_dropout_prob")  # fmt: skip


def test_masked_language_modelling(transformers):
    """Of two masked tokens a loss of 2.5 each; the rows of the four others are multiplied in vain."""
    model, criterion = peers.masked_lm(OPTIONS, SYMBOLS)
    assert model.kind == "XLMRobertaForMaskedLM"
    assert sizes(model.config, *XLMR) == [20, 8, 12, 3, 2, 32, PAD, 0.1, 0.2]
    asked, tokens = [], torch.tensor([[4, 5, 7], [6, 7, 4]])
    batch = {"target": torch.tensor([[9, PAD, PAD], [PAD, 8, PAD]]), "net_input": {"src_tokens": tokens}}
    loss, count, log = criterion(answering(asked, loss=torch.tensor(2.5)), batch)
    assert (loss.item(), count, log) == (5, 2, {"operations in vain": 6 * 4 * 8 * (8 + 20)})
    assert asked[0]["labels"].tolist() == [[9, -100, -100], [-100, 8, -100]] and asked[0]["input_ids"] is tokens


def test_classification(transformers):
    model, criterion = peers.classification(OPTIONS, SYMBOLS, 3)
    assert model.kind == "XLMRobertaForSequenceClassification"
    assert sizes(model.config, *XLMR, "num_labels") == [20, 8, 12, 3, 2, 32, PAD, 0.1, 0.2, 3]
    asked, tokens = [], torch.tensor([[4], [6]])
    logits = torch.tensor([[math.log(2), 0.0, 0.0], [0.0, 0.0, math.log(6)]])  # 1/2, 1/4, 1/4 and 1/8, 1/8, 6/8
    loss, count, log = criterion(
        answering(asked, logits=logits), {"target": torch.tensor([0, 1]), "net_input": {"tokens": tokens}}
    )
    assert (loss.item(), count, log) == (pytest.approx(math.log(2) + math.log(8)), 2, {}) and asked[0]["input_ids"] is tokens


def test_translation(transformers):
    """A tenth of the loss is the mean over all four tokens, and padding has none."""
    model, criterion = peers.translation(OPTIONS, SYMBOLS, 0.1)
    assert model.kind == "BartForConditionalGeneration"
    names = ("vocab_size", "d_model", "max_position_embeddings", "encoder_layers", "encoder_ffn_dim", "encoder_attention_heads",
             "decoder_layers", "decoder_ffn_dim", "decoder_attention_heads", "dropout", "attention_dropout", "activation_function",
             "pad_token_id", "eos_token_id", "decoder_start_token_id")  # fmt: skip
    assert sizes(model.config, *names) == [20, 8, 40, 3, 12, 2, 1, 16, 4, 0.1, 0.2, "relu", PAD, 2, 2]
    asked, given = [], {"src_tokens": torch.tensor([[4, 2]]), "prev_output_tokens": torch.tensor([[2, 3, 5]])}
    logits = torch.tensor([[[0.0, 0.0, 0.0, math.log(5)]] * 3])  # 1/8, 1/8, 1/8, 5/8
    batch = {"target": torch.tensor([[3, 2, PAD]]), "ntokens": 2, "net_input": given}
    loss, count, log = criterion(answering(asked, logits=logits), batch)
    of_all = (3 * math.log(8) + math.log(8 / 5)) / 4
    expected = 0.9 * (math.log(8 / 5) + math.log(8)) + 0.1 * 2 * of_all
    assert (loss.item(), count, log) == (pytest.approx(expected, rel=1e-5), 2, {})
    assert asked[0]["input_ids"] is given["src_tokens"] and asked[0]["decoder_input_ids"] is given["prev_output_tokens"]


@pytest.mark.parametrize("module, names", [
    (finetuning, ("translating", "veco_mt_tiny", "translation")), (understanding, ("classifying", "veco_nlu_tiny", "classification")),
])  # fmt: skip
@pytest.mark.parametrize("autocast", ["none", "bf16"])
def test_each_is_trained_with_its_own_criterion(monkeypatch, module, names, autocast):
    """fairseq without this project's changes, and its --amp, which does nothing on a CPU."""
    make, arch, peer = names
    undone, asked = [], []

    def trainer(model, criterion, samples, *, autocast, device):
        assert len(samples) == 2 and device == "cpu"
        return SimpleNamespace(model=model, criterion=criterion, bf16=autocast)

    monkeypatch.setattr(module, "Trainer", trainer)
    monkeypatch.setattr(patching, "undo", undone.append)
    monkeypatch.setattr(peers, peer, lambda *given: asked.append(given) or (torch.nn.Linear(1, 1), "theirs"))
    args = Namespace(
        arch=arch, decoder_layers=None, vocabulary=30, tokens=32, length=8, updates=1, autocast=autocast, device="cpu"
    )
    made = [getattr(module, make)(which, args) for which in (module.OURS, module.PEER, module.TRANSFORMERS)]
    assert [trainer.bf16 for trainer in made] == [autocast == "bf16" and which != 1 for which in range(3)]
    assert undone == [SPEED] and made[2].criterion == "theirs" and asked[0][2] == (0.1 if module is finetuning else 3)
    if module is finetuning:
        assert [(one.criterion.eps, one.criterion.sentence_avg, one.criterion.training) for one in made[:2]] == [
            (0.1, False, True)
        ] * 2
    else:
        assert type(made[0].criterion).__name__ == "NluCriterion" and made[1].criterion is understanding.cross_entropy
        assert made[1].model.classification_heads[understanding.HEAD].out_proj.out_features == 3


def test_the_loss_of_fairseqs_classifier():
    """Sums of the labels' losses, 1/2 and 1/8."""
    logits = torch.tensor([[math.log(2), 0.0, 0.0], [0.0, 0.0, math.log(6)]])
    asked = []
    batch = {"target": torch.tensor([0, 1]), "net_input": {"tokens": "tokens"}}
    loss, count, log = understanding.cross_entropy(lambda *given, **more: asked.append((given, more)) or (logits, None), batch)
    assert (loss.item(), count, log) == (pytest.approx(math.log(16)), 2, {})
    assert asked == [(("tokens",), {"features_only": True, "classification_head_name": understanding.HEAD})]


@pytest.fixture
def trainer(monkeypatch):
    """Of three updates, of which the first is not measured; and what it was made with."""
    results = iter([
        {"seconds": 90.0}, {"seconds": 3.0, "knn_batches": 2, "knn_vocabulary": 700, "knn_looked_up": 9, "knn_ms": 200},
        {"seconds": 1.0, "knn_batches": 1, "knn_vocabulary": 200, "knn_looked_up": 4, "knn_ms": 400},
    ])  # fmt: skip
    targets = [torch.tensor([[PAD, 7], [8, 7]]), torch.tensor([9, PAD])]
    sample = {name: {"net_input": {"targets": of}} for name, of in zip(("mono", "bitext"), targets)}
    model = SimpleNamespace(
        autocast=lambda device: nullcontext(), encoder=SimpleNamespace(sentence_encoder=SimpleNamespace(embed_tokens="table"))
    )
    made = SimpleNamespace(
        samples=[sample] * 3, update=lambda sample: next(results), model=model, criterion=SimpleNamespace(sampler=None)
    )
    made.given = []
    monkeypatch.setattr(softmax, "pretraining", lambda which, args, **options: made.given.append((which, options)) or made)
    monkeypatch.setattr(softmax, "peak_bytes", lambda device: 77)
    monkeypatch.setattr(prediction, "masked_loss", "ours")
    return made


ARGS = Namespace(device="cpu", rest=50, refresh=5)


@pytest.mark.parametrize("which, loss", [(softmax.PLAIN, plain_loss), (softmax.FUSED, "ours")])
def test_a_full_softmax_is_measured(trainer, which, loss):
    assert softmax.measure(which, ARGS) == {"seconds": 2, "peak_bytes": 77}
    assert trainer.given == [("camlm", {})] and prediction.masked_loss is loss


def test_a_sampled_softmax_is_measured(trainer, monkeypatch):
    """All targets are looked up before an update, but for as many as come of age: here two of 7, 8 and 9."""
    asked, dues = [], []
    sampler = SimpleNamespace(made_at=torch.zeros(20), looked_up=5, seconds=6.0)
    sampler.look_up = lambda targets, table: asked.append((targets.tolist(), table))
    trainer.criterion.sampler = sampler
    monkeypatch.setattr(softmax, "due_rows", lambda *given: dues.append(given) or 1.7)
    found = softmax.measure(f"{softmax.KNN} 12", ARGS)
    assert found == {"seconds": 2, "peak_bytes": 77, "vocabulary": 300, "due": 6.5, "look_up_seconds": pytest.approx(0.3)}
    assert trainer.given == [("camlm", {"knn_targets": 12, "knn_rest": 50})] and prediction.masked_loss == "ours"
    assert asked == [([7, 8, 7, 9], "table")] * 2 and dues == [(4, 20, 5)] * 2
    assert (sampler.looked_up, sampler.seconds) == (0, 0) and sampler.made_at.nonzero().flatten().tolist() == [7, 8]
