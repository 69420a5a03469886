# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Task and criterion: the loss by hand, the masks of three epochs, and the samples."""

import math
import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from conftest import random_lines, write_tokens
from fairseq.logging import metrics
from support.pretraining import criterion_for, iterator

from veco_fairseq.criterions.knn import KnnCamlmCriterion
from veco_fairseq.data.batches import shard
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig, check_options

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


def test_training_step_adds_both_halves_gradients(make_task, make_model):
    task, model = make_task(), make_model()
    criterion = criterion_for(task)
    sample = next(iter(iterator(task).next_epoch_itr()))

    class Optimizer:
        backward = staticmethod(lambda loss: loss.backward())

    total, _, log = task.train_step(sample, model, criterion, Optimizer, update_num=0)
    together = model.encoder.lm_head.dense.weight.grad.clone()
    model.zero_grad()
    losses = [criterion(model, half)[0] for half in sample.values()]
    sum(losses).backward()
    assert torch.allclose(together, model.encoder.lm_head.dense.weight.grad, atol=1e-4)
    assert math.isclose(float(total), float(sum(losses).detach()), rel_tol=1e-5)
    assert log["mono_pairs"] == sample["mono"]["nsentences"] and log["bitext_pairs"] == sample["bitext"]["nsentences"]


def flatten(samples):
    return [(kind, half["net_input"]) for sample in samples for kind, half in sample.items()]


def test_masks_follow_seed_epoch_and_index_alone(make_task, make_root):
    """Three epochs, read with no and with two loader processes (which stay alive), and resumed in mid-epoch."""
    root = make_root()
    runs = {}
    for workers in (0, 2):
        epochs = iterator(make_task(root, mono_langs="aa"), num_workers=workers)
        runs[workers] = [flatten(epochs.next_epoch_itr()) for _ in range(3)]
    for plain, loaded in zip(runs[0], runs[2], strict=True):
        assert len(plain) == len(loaded)
        for (kind, batch), (other_kind, other) in zip(plain, loaded, strict=True):
            assert kind == other_kind and all(torch.equal(batch[key], other[key]) for key in batch)

    def masks_by_text(epoch):
        """(original x and y) -> where it is masked."""
        masks = {}
        for _, batch in epoch:
            original = torch.where(batch["targets"].ne(PAD), batch["targets"], batch["tokens"])
            for row in range(original.size(1)):
                text = tuple(original[:, row][original[:, row].ne(PAD)].tolist())
                masks.setdefault(text, []).append(tuple(map(tuple, batch["targets"][:, row].ne(PAD).nonzero().tolist())))
        return masks

    first, second, third = (masks_by_text(epoch) for epoch in runs[0])
    common = [text for text in first if text in second and text in third]
    assert len(common) > 40
    different = sum(first[t] != second[t] and second[t] != third[t] for t in common)
    assert different > 0.5 * len(common), "the masks stay the same from epoch to epoch"

    resumed = iterator(make_task(root, mono_langs="aa"))
    resumed.load_state_dict({"version": 2, "epoch": 2, "iterations_in_epoch": 4, "shuffle": True})
    rest = flatten(resumed.next_epoch_itr())
    assert len(rest) == len(runs[0][1]) - 8
    for (_, batch), (_, other) in zip(rest, runs[0][1][8:], strict=True):
        assert all(torch.equal(batch[key], other[key]) for key in batch)


@pytest.mark.parametrize("option, then, now", [
    ("seed", 3, 4), ("updates_per_epoch", 9, 8), ("mono_batch_size", 5, 6), ("bitext_batch_size", 5, 6), ("mono_alpha", 0.5, 0.7),
    ("bitext_alpha", 0.5, 0.7), ("update_freq", [1], [2]), ("mono_max_length", 16, 12), ("mono_langs", "aa,bb", "bb"),
    ("bitext_pairs", None, "bb-cc"), ("bitext_max_length", 128, 8),
])  # fmt: skip
def test_an_epoch_of_other_batches_is_not_gone_on_with(make_task, make_root, option, then, now):
    root = make_root(bitext=("aa-bb", "bb-cc"))

    def epochs(value):
        return iterator(make_task(root, **{"updates_per_epoch": 9, option: value}))

    begun = epochs(then)
    next(begun.next_epoch_itr())
    epochs(then).load_state_dict(begun.state_dict())
    name = {"update_freq": "update-freq", "mono_max_length": "pairs of mono", "mono_langs": "pairs of mono",
            "bitext_pairs": "pairs of bitext", "bitext_max_length": "pairs of bitext"}.get(option, option.replace("_", "-"))  # fmt: skip
    with pytest.raises(UserError, match=f"in the middle of epoch 1, .*{name} was .* and is .*: change it back"):
        epochs(now).load_state_dict(begun.state_dict())
    between = {**begun.state_dict(), "iterations_in_epoch": 0}
    epochs(now).load_state_dict(between)  # the next epoch can have what it wants


@pytest.mark.parametrize("how", ["max_tokens", "workers", "mono", "bitext"])
def test_an_epoch_of_grown_data_or_other_workers_is_not_gone_on_with(make_task, make_root, how):
    root = make_root()
    begun = iterator(make_task(root, updates_per_epoch=9))
    next(begun.next_epoch_itr())
    options = {"max_tokens": 180} if how == "max_tokens" else {"num_shards": 3} if how == "workers" else {}
    rng = np.random.default_rng(1)
    if how == "mono":
        write_tokens(root / "mono/bb/train", random_lines(rng, 90))
    elif how == "bitext":
        for lang in ("aa", "bb"):
            write_tokens(root / f"bitext/aa-bb/train.aa-bb.{lang}", random_lines(rng, 61))
    words = {"max_tokens": "--max-tokens was 200 and is 180", "workers": "number of workers was 1 and is 3",
             "mono": r"pairs of mono was aa \d+, bb \d+ and is aa \d+, bb \d+", "bitext": "pairs of bitext was aa-bb 60 and is aa-bb 61"}  # fmt: skip
    with pytest.raises(UserError, match=words[how]):
        iterator(make_task(root, updates_per_epoch=9), **options).load_state_dict(begun.state_dict())


def test_two_workers_share_an_epoch(make_task, make_root):
    root = make_root()
    whole = flatten(iterator(make_task(root, updates_per_epoch=6, update_freq=[2])).next_epoch_itr())
    parts = [
        flatten(iterator(make_task(root, updates_per_epoch=6), num_shards=2, shard_id=shard).next_epoch_itr()) for shard in (0, 1)
    ]
    assert len(whole) == 24 and [len(part) for part in parts] == [12, 12]
    interleaved = [half for a, b in zip(zip(*[iter(parts[0])] * 2), zip(*[iter(parts[1])] * 2)) for half in (*a, *b)]
    for (kind, batch), (other_kind, other) in zip(whole, interleaved, strict=True):
        assert kind == other_kind and torch.equal(batch["tokens"], other["tokens"])


def test_validation_covers_every_pair_once_by_language(make_task):
    task = make_task()
    samples = list(iterator(task, "valid").next_epoch_itr(shuffle=False))
    assert task.validation_names == ["aa", "bb", "aa-bb"]
    pairs = {}
    for sample in samples:
        ((kind, half),) = sample.items()
        pairs[half["name"]] = pairs.get(half["name"], 0) + half["nsentences"]
    assert pairs == {source.name: len(source) for stream in task.dataset("valid").streams.values() for source in stream.sources}
    again = list(iterator(task, "valid").next_epoch_itr(shuffle=False))
    assert all(
        torch.equal(a["net_input"]["tokens"], b["net_input"]["tokens"])
        for (_, a), (_, b) in zip(*([(k, h) for s in run for k, h in s.items()] for run in (samples, again)))
    )


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


def test_time_left_is_told_at_the_rate_of_the_last_updates(make_task):
    task = make_task(max_update=310)
    criterion, log = criterion_for(task), {"loss": torch.tensor(1.0), "sample_size": 1, "ntokens": 1, "nsentences": 1}
    log.update({f"{kind}_{what}": 0 for kind in ("mono", "bitext") for what in ("pairs", "tokens")})
    task.begun.extend([(10, 1000.0), (110, 2800.0)])  # 18 seconds an update, and 200 updates to go
    for training, expected in ((True, 1.0), (False, None)):
        with metrics.aggregate(new_root=True) as agg:
            task.reduce_metrics([log], criterion.train(training))
        assert agg.get_smoothed_values().get("hours_left") == expected


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


@pytest.mark.parametrize("kinds, options", [("mono", {"bitext": ()}), ("bitext", {"mono": ()})])
def test_one_kind_is_enough(make_task, make_root, make_model, kinds, options):
    task = make_task(make_root(**options))
    sample = next(iter(iterator(task).next_epoch_itr()))
    assert list(sample) == [kinds]
    _, sample_size, log = task.valid_step(sample, make_model(), criterion_for(task).eval())
    assert sample_size == log["sample_size"] > 0


def test_no_tlm(make_task):
    assert "tlm_tokens" not in next(iter(iterator(make_task(no_tlm=True)).next_epoch_itr()))["bitext"]["net_input"]


def test_a_pair_may_be_named_either_way_round(make_task):
    assert make_task(bitext_pairs="bb-aa").dataset("train").streams["bitext"].sources[0].name == "aa-bb"


def test_the_first_language_of_a_pairs_name_is_x(make_task, make_root):
    """Also where the alphabet has it later; and no other pair's files are taken for it."""
    root = make_root(mono=(), bitext=("zu-de", "de-fr"))
    for lang, token in (("zu", 7), ("de", 8)):
        for split in ("train", "valid"):
            write_tokens(root / f"bitext/zu-de/{split}.zu-de.{lang}", [[token] * 6] * 9)
    for named in ("zu-de", "de-zu"):
        task = make_task(root, bitext_pairs=named, bitext_mask_prob=0.2)
        assert task.dataset("train").streams["bitext"].sources[0].name == "zu-de"
        for sample in iterator(task).next_epoch_itr():
            x, y = sample["bitext"]["net_input"]["targets"].unbind()
            assert set(x.unique().tolist()) == {PAD, 7} and set(y.unique().tolist()) == {PAD, 8}


def test_shards_take_turns(make_root, make_task, tmp_path):
    first = make_root(mono=("aa",), bitext=())
    second = tmp_path / "second"
    first.rename(second)
    first = make_root(mono=("bb",), bitext=())
    task = make_task(f"{first}:{second}")
    names = []
    for epoch in (1, 2, 3):
        task.load_dataset("train", epoch=epoch)
        names.append(task.dataset("train").streams["mono"].sources[0].name)
    assert names == ["bb", "aa", "bb"]


def test_a_shard_that_is_missing_or_not_of_the_same_data_is_refused_at_the_start(make_task, make_root, tmp_path):
    first = make_root().rename(tmp_path / "first")
    with pytest.raises(UserError, match="nowhere: no such folder"):
        make_task(f"{first}:{tmp_path / 'nowhere'}")
    second = make_root(mono=("aa",)).rename(tmp_path / "second")
    make_task(f"{first}:{second}")
    with pytest.raises(UserError, match="--mono-langs bb: not in .*second"):
        make_task(f"{first}:{second}", mono_langs="aa,bb")
    (second / "dict.txt").write_text("other 1\n")
    with pytest.raises(UserError, match="second.dict.txt: is another dictionary than .*first's"):
        make_task(f"{first}:{second}")
    shutil.rmtree(second / "mono")
    shutil.rmtree(second / "bitext")
    with pytest.raises(UserError, match="second: no train data"):
        make_task(f"{first}:{second}")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mono_langs": "aa,xx"}, r"--mono-langs xx: not in .*mono \(there is: aa, bb\)"),
        ({"bitext_pairs": "aa-cc"}, r"--bitext-pairs aa-cc: not in .*bitext \(there is: aa-bb\)"),
        ({"mono_langs": "aa,aa"}, "named twice"),
        ({"mono_mask_prob": 0.0}, "--mono-mask-prob 0.0: must be above 0"),
        ({"bitext_mask_spread": 0.3}, "--bitext-mask-spread 0.3: must be from 0 to 0.25"),
        ({"bitext_max_length": 3}, "--bitext-max-length 3: must be 4 at least"),
        ({"mono_max_length": 3}, "--mono-max-length 3: must be 4 at least"),
        ({"updates_per_epoch": 0}, "--updates-per-epoch 0"),
    ],
)
def test_bad_options(make_task, options, message):
    with pytest.raises(UserError, match=message):
        make_task(**options)


def test_batch_size_is_refused_and_max_tokens_required(make_task):
    with pytest.raises(UserError, match="use --mono-batch-size and --bitext-batch-size"):
        iterator(make_task(), max_sentences=8)
    with pytest.raises(UserError, match="needs --max-tokens"):
        iterator(make_task(), max_tokens=None)


def test_sequences_must_fit_the_position_table(make_task):
    args = Namespace(_name="veco_tiny", arch="veco_tiny", max_positions=100, encoder_layers=1, encoder_embed_dim=8)
    args.encoder_attention_heads = 2
    with pytest.raises(UserError, match="TLM.* is 256 tokens, and the model has 100 positions"):
        make_task().build_model(args)
    make_task(no_tlm=True, bitext_max_length=90).build_model(args)


def test_symbols_are_kept_in_the_state(make_task):
    task = make_task()
    assert task.state_dict()["symbols"] == task.dictionary.symbols and task.dictionary.symbols[-1] == "<mask>"


def test_sequences_of_four_tokens_are_enough():
    check_options(CamlmTaskConfig(data=".", mono_max_length=4, bitext_max_length=4))


def test_every_worker_has_as_many_batches_to_validate():
    batches = [[number] for number in range(7)]
    assert [shard(batches, 3, worker, epoch=1) for worker in range(3)] == [
        [[0], [3], [6]], [[1], [4], []], [[2], [5], []]]  # fmt: skip
    assert shard(batches[:6], 3, 0, epoch=1) == [[0], [3]]
