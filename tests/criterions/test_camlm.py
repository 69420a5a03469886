# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Task and criterion: the loss by hand, the masks of three epochs, and the samples."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_tokens
from fairseq.logging import metrics
from support.pretraining import criterion_for, iterator
from support.xlme import criterion_for as of_xlme
from support.xlme import make_xlme

from veco_fairseq.criterions.knn import KnnCamlmCriterion
from veco_fairseq.errors import UserError

PAD, BOS, EOS = 1, 0, 2


def test_every_update_has_a_batch_of_each_kind(make_task):
    task = make_task(mono_batch_size=3, bitext_batch_size=5)
    samples = list(iterator(task).next_epoch_itr())
    assert len(samples) == 12  # 60 pairs in fives: the larger half's pass
    for sample in samples:
        assert list(sample) == ["mono", "bitext"]
        assert sample["mono"]["nsentences"] <= 3 and sample["bitext"]["nsentences"] <= 5
        assert "tlm_tokens" in sample["bitext"]["net_input"] and "tlm_tokens" not in sample["mono"]["net_input"]
        for half in sample.values():
            tokens = half["net_input"]["tokens"]
            assert tokens.shape[:2] == (2, half["nsentences"]) and tokens.numel() <= 200
            assert tokens[..., 0].eq(BOS).all() and tokens.eq(EOS).sum(-1).eq(1).all()
            assert half["ntokens"] == int(tokens.ne(PAD).sum())


def test_tlm_is_the_concatenation_with_the_same_masks(make_task):
    batch = next(iter(iterator(make_task()).next_epoch_itr()))["bitext"]["net_input"]
    for row in range(batch["tokens"].size(1)):
        (x, y), (tx, ty) = (
            [side[side_tokens.ne(PAD)] for side, side_tokens in zip(batch[key][:, row], batch["tokens"][:, row], strict=True)]
            for key in ("tokens", "targets")
        )
        ours = batch["tlm_tokens"][row]
        assert ours[ours.ne(PAD)].tolist() == [*x.tolist(), EOS, *y[1:].tolist()]
        assert batch["tlm_targets"][row][ours.ne(PAD)].tolist() == [*tx.tolist(), PAD, *ty[1:].tolist()]


def test_mask_spread_moves_tokens_to_predict_from_one_side_of_a_pair_to_the_other(make_task, make_root):
    root = make_root()
    for lang in ("aa", "bb"):
        write_tokens(root / f"bitext/aa-bb/train.aa-bb.{lang}", [[5] * 100] * 300)

    def shares(**options):
        task = make_task(root, bitext_mask_prob=0.4, **options)
        epoch = iterator(task, max_tokens=3000).next_epoch_itr()
        return torch.cat([sample["bitext"]["net_input"]["targets"].ne(PAD).sum(2) for sample in epoch], 1) / 100

    plain, spread = shares(), shares(bitext_mask_spread=0.3)
    assert torch.allclose(plain, torch.tensor(0.4))
    assert torch.allclose(spread.sum(0), torch.tensor(0.8), atol=0.03)  # each side is rounded
    assert 0.1 - 0.01 <= spread.min() < 0.13 and 0.67 < spread.max() <= 0.7 + 0.01
    assert abs(spread[0].mean() - 0.4) < 0.03 and abs(spread[0].std() - 0.6 / 12**0.5) < 0.02  # uniform


def loss_by_hand(model, sample, objective: str):
    """Equation 1 and TLM for one pair at a time and one token at a time, without padding."""

    def nll(states, targets):
        total = 0.0
        log_probabilities = torch.log_softmax(model.encoder.lm_head(states), dim=-1)
        for position, target in enumerate(targets.tolist()):
            if target != PAD:
                total -= float(log_probabilities[position, target])
        return total

    terms, masked = {"mono_h": 0.0, "mono_s": 0.0, "bitext_h": 0.0, "bitext_s": 0.0, "bitext_tlm": 0.0}, 0
    for kind, half in sample.items():
        tokens, targets = half["net_input"]["tokens"], half["net_input"]["targets"]
        for row in range(tokens.size(1)):
            length = tokens[:, row].ne(PAD).sum(-1)
            x, y = tokens[0, row, : length[0]][None], tokens[1, row, : length[1]][None]
            tx, ty = targets[0, row, : length[0]], targets[1, row, : length[1]]
            hx, hy = model.unplugged(x), model.unplugged(y)
            terms[f"{kind}_h"] += nll(hx[0], tx) + nll(hy[0], ty)
            if objective == "camlm":
                terms[f"{kind}_s"] += nll(model.plugged(x, hy, y)[0], tx) + nll(model.plugged(y, hx, x)[0], ty)
            if kind == "bitext":
                joined = torch.cat([x[0], torch.tensor([EOS]), y[0, 1:]])[None]
                terms["bitext_tlm"] += nll(model.unplugged(joined)[0], torch.cat([tx, torch.tensor([PAD]), ty[1:]]))
            masked += int(tx.ne(PAD).sum() + ty.ne(PAD).sum())
    return terms, masked


@pytest.mark.parametrize("objective", ["camlm", "mlm"])
def test_loss_equals_one_worked_out_by_hand(make_task, make_model, objective):
    task, model = make_task(), make_model()
    criterion = criterion_for(task, objective=objective).eval()
    sample = next(iter(iterator(task).next_epoch_itr()))
    with torch.no_grad():
        terms, masked = loss_by_hand(model, sample, objective)
        loss, sample_size, log = task.valid_step(sample, model, criterion)
    assert sample_size == masked
    assert math.isclose(float(loss), sum(terms.values()), rel_tol=1e-5)
    # Workers add up their logs, so that a term that a worker lacks has numbers of the same kind.
    assert {
        term: [torch.is_tensor(log[f"{term}_{part}"]) for part in ("nll", "correct", "count")] for term in criterion.terms
    } == (dict.fromkeys(criterion.terms, [True, True, False]))
    for term, expected in terms.items():
        assert math.isclose(float(log[f"{term}_nll"]), expected, rel_tol=1e-5, abs_tol=1e-6), term
        assert (log[f"{term}_count"] > 0) == (expected > 0)
    with metrics.aggregate() as agg:
        KnnCamlmCriterion.reduce_metrics([log])
    values = agg.get_smoothed_values()
    expected = terms["bitext_h"] / log["bitext_h_count"] / math.log(2)
    assert math.isclose(values["bitext_h_loss"], expected, abs_tol=1e-3)
    assert math.isclose(values["bitext_h_ppl"], 2**expected, rel_tol=1e-2)
    assert ("bitext_s_loss" in values) == (objective == "camlm")


@pytest.mark.parametrize("kept, left_out", [("mono", "bitext"), ("bitext", "mono")])
def test_s_terms_of_one_kind_of_batch_alone(make_task, make_model, kept, left_out):
    """The other kind has its H and TLM as before, and no gradient gets to the cross-attention from it."""
    task, model = make_task(), make_model()
    criterion = criterion_for(task, s_terms=kept).eval()
    sample = next(iter(iterator(task).next_epoch_itr()))
    with torch.no_grad():
        terms, _ = loss_by_hand(model, sample, "camlm")
        loss, _, log = task.valid_step(sample, model, criterion)
    assert log[f"{left_out}_s_count"] == 0 and log[f"{kept}_s_count"] > 0
    assert math.isclose(float(loss), sum(terms.values()) - terms[f"{left_out}_s"], rel_tol=1e-5)
    for kind, learns in ((left_out, False), (kept, True)):
        model.zero_grad()
        criterion.train()(model, sample[kind])[0].backward()
        gradients = [tensor.grad for name, tensor in model.named_parameters() if ".encoder_attn." in name]
        assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients) == learns
    with pytest.raises(UserError, match=f"--s-terms {kept}: --objective mlm has no S terms"):
        criterion_for(task, objective="mlm", s_terms=kept)


def test_a_frozen_backbone_leaves_tlm_out_of_training_alone(make_task, make_model):
    """TLM has no cross-attention, so that nothing of it could be learnt; validation goes on measuring it."""
    task, model = make_task(), make_model()
    criterion = criterion_for(task)
    sample = next(iter(iterator(task).next_epoch_itr()))
    with torch.no_grad():
        expected, _ = loss_by_hand(model, sample, "camlm")
    model.freeze_backbone(True)
    _, _, log = task.valid_step(sample, model.eval(), criterion.eval())
    for term in ("bitext_tlm", "bitext_h", "mono_s"):
        assert math.isclose(float(log[f"{term}_nll"]), expected[term], rel_tol=1e-5) and log[f"{term}_count"] > 0
    _, _, log = criterion.train()(model.train(), sample["bitext"])
    assert log["bitext_tlm_count"] == 0 and log["bitext_s_count"] > 0


def test_an_update_whose_passes_leave_out_all_that_is_not_frozen(make_task, make_model):
    task, model = make_task(), make_model(encoder_layerdrop=1.0)
    task.frozen_updates = 1
    sample, optimizer = next(iter(iterator(task).next_epoch_itr())), SimpleNamespace(backward=lambda loss: loss.backward())
    for update, learns in ((0, False), (1, True)):
        loss, *_ = task.train_step(sample, model, criterion_for(task), optimizer, update)
        assert loss > 0 and any(p.grad is not None for p in model.parameters()) == learns


def test_training_step_adds_both_halves_gradients(make_task, make_model):
    task, model = make_task(), make_model(dropout=0)
    criterion = criterion_for(task)
    sample = next(iter(iterator(task).next_epoch_itr()))

    class Optimizer:
        backward = staticmethod(lambda loss: loss.backward())

    for update in (3, 3, 4):  # the batches of an update, with --update-freq, and the next one's; only to take part
        task.train_step(sample, model, criterion, Optimizer, update, True)
    assert [update for update, _ in task.begun] == [3, 4]
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    total, _, log = task.train_step(sample, model, criterion, Optimizer, update_num=0)
    together = model.encoder.lm_head.dense.weight.grad.clone()
    model.zero_grad()
    losses = [criterion(model, half)[0] for half in sample.values()]
    sum(losses).backward()
    assert torch.allclose(together, model.encoder.lm_head.dense.weight.grad, atol=1e-4)
    assert math.isclose(float(total), float(sum(losses).detach()), rel_tol=1e-5) and not total.requires_grad
    assert log["mono_pairs"] == sample["mono"]["nsentences"] and log["bitext_pairs"] == sample["bitext"]["nsentences"]
    # With --update-freq the logs of all batches are kept, and would keep their graphs.
    assert not any(value.requires_grad for value in log.values() if torch.is_tensor(value))


@pytest.mark.parametrize("make, criterion", [(None, criterion_for), (make_xlme, of_xlme)], ids=["VECO", "XLM-E"])
def test_masked_tokens_that_the_loader_has_found_are_not_looked_for_again(make_task, make_model, monkeypatch, make, criterion):
    """A GPU would be waited for."""
    for module in ("modules.prediction", "models.xlme"):
        monkeypatch.setattr(f"veco_fairseq.{module}.masked_places", None)
    task, model = make_task(), (make or make_model)().train()
    for batch in next(iter(iterator(task).next_epoch_itr())).values():
        assert criterion(task).train()(model, batch)[1] > 0


def test_a_batch_that_is_too_large_tells_its_shape(make_task, make_model):
    def criterion(model, batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    criterion.begin_update = lambda *_: None
    batch = {"kind": "bitext", "net_input": {"tokens": torch.zeros(2, 3, 7)}}
    with pytest.raises(torch.OutOfMemoryError, match="^out of memory in a bitext batch of 2 x 3 x 7 tokens$"):
        make_task().train_step({"bitext": batch}, make_model(), criterion, None, update_num=0)


def test_validation_logs_each_language_and_one_total(make_task, make_model):
    task, model = make_task(), make_model()
    criterion = criterion_for(task).eval()
    samples = iterator(task, "valid").next_epoch_itr(shuffle=False)
    logs = [task.valid_step(sample, model, criterion)[2] for sample in samples]
    assert len({frozenset(log) for log in logs}) == 1, "workers could not add these up"
    with metrics.aggregate() as agg:
        KnnCamlmCriterion.reduce_metrics(logs)
    values = agg.get_smoothed_values()
    of_mono = sum(log["mono_tokens"] for log in logs) / sum(log["ntokens"] for log in logs)
    assert values["mono_share"] == pytest.approx(of_mono, abs=1e-3) and values["bitext_share"] == pytest.approx(
        1 - of_mono, abs=1e-3
    )
    assert 0.1 < of_mono < 0.9
    assert {"aa_mono_h_loss", "bb_mono_s_ppl", "aa-bb_bitext_tlm_acc", "mono_h_loss", "loss"} <= set(values)
    counts = [sum(log[f"{name}_mono_h_count"] for log in logs) for name in ("aa", "bb")]
    mean = np.average([values["aa_mono_h_loss"], values["bb_mono_h_loss"]], weights=counts)
    assert math.isclose(mean, values["mono_h_loss"], abs_tol=2e-3)


def test_validation_of_many_languages_logs_each_in_one_number(make_task, make_model, monkeypatch):
    task, model = make_task(), make_model()
    criterion = criterion_for(task).eval()
    samples = list(iterator(task, "valid").next_epoch_itr(shuffle=False))

    def values():
        with metrics.aggregate(new_root=True) as agg:
            KnnCamlmCriterion.reduce_metrics([task.valid_step(sample, model, criterion)[2] for sample in samples])
        return agg.get_smoothed_values()

    detailed = values()
    monkeypatch.setattr("veco_fairseq.criterions.base.SOURCES_IN_DETAIL", 3)  # of three still
    assert values().keys() == detailed.keys()
    monkeypatch.setattr("veco_fairseq.criterions.base.SOURCES_IN_DETAIL", 2)
    short = values()
    assert {key for key in short if key.startswith(("aa", "bb"))} == {"aa_loss", "bb_loss", "aa-bb_loss"}
    terms = [detailed[f"aa-bb_bitext_{term}_loss"] for term in ("h", "s", "tlm")]
    assert math.isclose(short["aa-bb_loss"], sum(terms), abs_tol=3e-3)
    assert short["bitext_s_acc"] == detailed["bitext_s_acc"]
