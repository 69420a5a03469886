# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the log of pre-training tells of several updates, by hand: batches of unequal size count by their size."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from veco_fairseq.criterions import knn
from veco_fairseq.criterions.knn import KnnCamlmCriterion, KnnCamlmCriterionConfig, KnnTargetSampler, Sampled
from veco_fairseq.criterions.nlu import NluCriterion
from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterion
from veco_fairseq.modules.embedding import TokenEmbedding
from veco_fairseq.modules.prediction import MaskedPrediction, Subset

ZERO = {"loss": 0.0, "sample_size": 0, "ntokens": 0, "nsentences": 0,
        **{f"{kind}_{what}": 0 for kind in ("mono", "bitext") for what in ("pairs", "tokens")}}  # fmt: skip


def told(criterion, *updates):
    """The figures of updates, of which each has the logs of its workers."""
    with metrics.aggregate(new_root=True) as found:
        for logs in updates:
            criterion.reduce_metrics([{**ZERO, **log} for log in logs])
    return found.get_smoothed_values()


def bits(number: float) -> torch.Tensor:
    return torch.tensor(number * math.log(2))


def test_an_average_is_over_tokens_and_not_over_updates():
    first = [
        {"loss": bits(2.0), "sample_size": 1, "mono_h_nll": bits(1.0), "mono_h_correct": torch.tensor(1), "mono_h_count": 1,
         "mono_pairs": 1, "bitext_pairs": 3, "mono_tokens": 10, "bitext_tokens": 5, "ntokens": 15},
        {"loss": bits(4.0), "sample_size": 2, "mono_h_nll": bits(5.0), "mono_h_correct": torch.tensor(1), "mono_h_count": 2,
         "mono_pairs": 4, "bitext_pairs": 2, "mono_tokens": 20, "bitext_tokens": 5, "ntokens": 25},
    ]  # fmt: skip
    second = [{"loss": bits(6.0), "sample_size": 1, "mono_h_nll": bits(6.0), "mono_h_correct": torch.tensor(0), "mono_h_count": 1,
               "mono_pairs": 6, "bitext_pairs": 2, "mono_tokens": 10, "bitext_tokens": 10, "ntokens": 20}]  # fmt: skip
    values = told(KnnCamlmCriterion, first, second)
    assert (values["loss"], values["mono_h_loss"], values["mono_h_acc"]) == (12 / 4, 12 / 4, 2 / 4)
    assert values["mono_h_ppl"] == 8
    assert (values["mono_pairs"], values["bitext_pairs"]) == ((5 + 6) / 2, (5 + 2) / 2)
    assert values["mono_share"] == pytest.approx(40 / 60, abs=1e-3) and values["bitext_share"] == pytest.approx(20 / 60, abs=1e-3)
    # A term without a token, and a share of everything or nothing, are no news.
    alone = told(KnnCamlmCriterion, [{"mono_tokens": 9, "ntokens": 9, "mono_s_nll": 0.0, "mono_s_correct": 0, "mono_s_count": 0}])
    assert set(alone) == {"loss", "mono_pairs", "bitext_pairs"} and alone["loss"] == 0


def test_a_batch_with_nothing_masked_is_no_part_of_the_loss():
    """As one of unknown characters alone, which had counted as a token that is predicted with certainty."""
    assert told(KnnCamlmCriterion, [{"loss": bits(6.0), "sample_size": 2}], [{}], [{}])["loss"] == 3


def test_a_term_is_averaged_over_its_own_tokens():
    """The loss is over those of all terms, of which a batch of pairs has more."""
    updates = ([{"mono_h_nll": bits(nll), "mono_h_correct": 0, "mono_h_count": count, "sample_size": size}]
               for nll, count, size in ((2.0, 1, 9), (3.0, 3, 4)))  # fmt: skip
    assert told(KnnCamlmCriterion, *updates)["mono_h_loss"] == 5 / 4  # by 9 and 4, it would be 1.69


def test_figures_are_rounded_for_the_log():
    log = {"loss": bits(20.0), "sample_size": 7, "mono_h_nll": bits(10.0), "mono_h_correct": torch.tensor(5), "mono_h_count": 7,
           "mono_tokens": 10, "bitext_tokens": 60, "ntokens": 70}  # fmt: skip
    values = told(KnnCamlmCriterion, *([{**log, "mono_pairs": 1, "bitext_pairs": pairs}] for pairs in (3, 3, 4)))
    assert values == {"loss": 2.857, "mono_h_loss": 1.429, "mono_h_acc": 0.7143, "mono_h_ppl": 2.69, "mono_pairs": 1.0,
                      "bitext_pairs": 3.3, "mono_share": 0.143, "bitext_share": 0.857}  # fmt: skip


def test_the_log_has_a_kind_of_figure_after_the_other():
    """Losses, then perplexities, then accuracies, and what batches are made of at the end."""
    terms = ("bitext_h", "mono_h", "mono_s")
    log = {f"{term}_{part}": value for term in terms for part, value in (("nll", 1.0), ("correct", 1), ("count", 2))}
    values = told(KnnCamlmCriterion, [{**log, "mono_tokens": 1, "bitext_tokens": 2, "ntokens": 3}])
    of_terms = [f"{term}_{figure}" for figure in ("loss", "ppl", "acc") for term in terms]
    assert list(values) == ["loss", *of_terms, "mono_pairs", "bitext_pairs", "mono_share", "bitext_share"]


def test_the_log_has_the_figures_of_the_discriminator_after_the_generators():
    terms = ("bitext_trtd", "mono_mrtd")
    log = {f"{term}_{part}": 1 for term in terms for part in ("nll", "correct", "count", "replaced", "called", "found")}
    log |= {"mono_mlm_nll": 1.0, "mono_mlm_correct": 1, "mono_mlm_count": 2}
    found = list(told(ReplacedTokenCriterion, [log]))
    assert found[1:-2] == [
        "bitext_trtd_loss", "mono_mlm_loss", "mono_mrtd_loss", "mono_mlm_ppl", "bitext_trtd_acc", "mono_mlm_acc", "mono_mrtd_acc",
        *(f"{term}_{figure}" for term in terms for figure in ("precision", "recall")), *(f"{term}_replaced" for term in terms),
    ]  # fmt: skip


def test_sampling_without_a_target_has_no_age():
    """A batch can have no hidden token."""
    log = {"knn_batches": 1, **{f"knn_{name}": 0 for name in ("targets", "vocabulary", "looked_up", "age", "ms")}}
    assert told(KnnCamlmCriterion, [log])["knn_age"] == 0


def test_precision_is_over_what_is_called_replaced_and_recall_over_what_is():
    updates = []
    for count, replaced, called, hits in ((11, 3, 5, 2), (10, 8, 1, 1), (40, 2, 5, 0)):
        log = {"nll": 0.0, "correct": 0, "count": count, "replaced": replaced, "called": called, "found": hits}
        updates.append([{f"mono_mrtd_{part}": value for part, value in log.items()}])
    values = told(ReplacedTokenCriterion, *updates)
    assert [values[f"mono_mrtd_{name}"] for name in ("precision", "recall", "replaced")] == [
        0.2727,
        0.2308,
        0.2131,
    ]  # 3 / 11, 3 / 13, 13 / 61


def test_sampled_targets_are_told_by_batch_and_their_age_by_target():
    first = [{"knn_batches": 1, "knn_targets": 3, "knn_vocabulary": 10, "knn_looked_up": 4, "knn_age": 6, "knn_ms": 8.0},
             {"knn_batches": 1, "knn_targets": 1, "knn_vocabulary": 20, "knn_looked_up": 2, "knn_age": 14, "knn_ms": 0.0}]  # fmt: skip
    second = [{"knn_batches": 1, "knn_targets": 2, "knn_vocabulary": 46, "knn_looked_up": 1, "knn_age": 2, "knn_ms": 2.0}]
    values = told(KnnCamlmCriterion, first, second)
    found = [values[f"knn_{name}"] for name in ("vocabulary", "looked_up", "ms", "age")]
    assert found == [25.3, 2.3, 3.3, 3.7]  # 76 / 3, 7 / 3, 10 / 3, 22 / 6


def predicted(criterion, training: bool):
    """The figures of one batch of two right predictions, of which nothing is computed."""
    prediction = MaskedPrediction(torch.ones(2), torch.ones(2, dtype=torch.bool), torch.tensor([True, False]))

    class Model:
        encoder = SimpleNamespace(sentence_encoder=SimpleNamespace(embed_tokens=None))

        def autocast(self, device):
            return torch.autocast("cpu", enabled=False)

        def __call__(self, **_):
            return {"h": prediction}

    targets = torch.tensor([[[5]], [[6]]])
    sample = {"kind": "mono", "name": "aa", "ntokens": 2, "nsentences": 1, "net_input": {"targets": targets}}
    return criterion.train(training)(Model(), sample)[2]


def test_training_tells_no_language_and_validation_nothing_of_sampled_targets():
    dictionary = SimpleNamespace(pad=lambda: 1)
    task = SimpleNamespace(target_dictionary=dictionary, validation_names=["aa", "bb"])
    criterion = KnnCamlmCriterion(KnnCamlmCriterionConfig(knn_targets=2), task)
    vocabulary = Subset(torch.arange(7), torch.zeros(7))
    criterion.sampler = lambda targets, embeddings: Sampled(vocabulary, len(targets), 3, 4, 0.25)
    log = predicted(criterion, training=True)
    assert not [key for key in log if key.startswith(("aa_", "bb_"))]
    assert {key: value for key, value in log.items() if key.startswith("knn_")} == {
        "knn_vocabulary": 7, "knn_targets": 2, "knn_batches": 1, "knn_looked_up": 3, "knn_age": 4, "knn_ms": 250.0
    }  # fmt: skip
    log = predicted(criterion, training=False)
    assert not [key for key in log if key.startswith("knn_")]
    assert (log["aa_mono_h_count"], log["bb_mono_h_count"]) == (2, 0)


def test_what_has_no_label_is_neither_right_nor_wrong():
    """Of three predictions of the first class one is right, one wrong, and one is of a translation that is only looked at."""
    logits, target = torch.tensor([[2.0, 0.0]] * 3), torch.tensor([0, 1, -100])
    sample = {"net_input": {}, "target": target, "ntokens": 9, "nsentences": 3}
    loss, sample_size, log = NluCriterion(SimpleNamespace()).train()(lambda: logits, sample)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2)))
    assert (sample_size, int(log["correct"])) == (2, 1) and told(NluCriterion, [log])["acc"] == 0.5


@pytest.mark.parametrize("criterion", [KnnCamlmCriterion, ReplacedTokenCriterion, NluCriterion])
def test_workers_add_up_their_figures_and_do_not_send_each_other_all_of_them(criterion):
    assert criterion.logging_outputs_can_be_summed()


@pytest.mark.parametrize("languages, in_detail", [(20, True), (21, False)])
def test_twenty_languages_are_validated_in_detail(languages, in_detail):
    names = ["aa", *(f"a{number}" for number in range(1, languages))]
    task = SimpleNamespace(target_dictionary=None, validation_names=names)
    log = predicted(KnnCamlmCriterion(KnnCamlmCriterionConfig(), task), training=False)
    assert ("aa_mono_h_correct" in log) == in_detail and ("aa_nll" in log) != in_detail


def test_the_tokens_of_all_workers_are_looked_up_together(monkeypatch):
    """Each has its own, some of them the same; the result is in order. One worker has its own in theirs."""
    assert knn._of_all_workers(torch.tensor([8, 3]), 11).tolist() == [8, 3]
    asked = []

    def all_reduce(needed, how):
        asked.append(how)
        needed.copy_(torch.maximum(needed, torch.tensor([0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1], dtype=needed.dtype)))

    monkeypatch.setattr(knn.distributed_utils, "get_global_world_size", lambda: 2)
    monkeypatch.setattr(knn.dist, "all_reduce", all_reduce)
    assert knn._of_all_workers(torch.tensor([8, 3]), 11).tolist() == [1, 3, 8, 10]
    assert asked == [knn.dist.ReduceOp.MAX]


def test_the_time_of_several_lookups_is_added_up(monkeypatch):
    table = TokenEmbedding(9, 4, 0)
    times = iter([0.0, 10.0, 20.0, 23.0, 30.0, 30.5])  # two before the batch, and its own
    monkeypatch.setattr(knn, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    sampler = KnnTargetSampler(2, 10)
    sampler.look_up(torch.tensor([1, 2]), table)
    sampler.look_up(torch.tensor([2, 3]), table)
    sampled = sampler(torch.tensor([1, 4]), table)
    assert (sampled.looked_up, sampled.seconds) == (4, 13.5)
    times = iter([40.0, 41.0])
    sampled = sampler(torch.tensor([1, 4]), table)
    assert (sampled.looked_up, sampled.seconds) == (0, 1.0)
