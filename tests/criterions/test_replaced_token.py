# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""XLM-E: sampled replacements, the loss by hand, where gradients go, the log, and training from the command line."""

import math
from types import SimpleNamespace

import pytest
import torch
from conftest import make_dictionary
from fairseq.logging import metrics
from support.pretraining import iterator
from support.xlme import criterion_for, make_xlme
from support.xlme_task import make_task  # noqa: F401  fixtures

from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterion
from veco_fairseq.models.veco import VecoEncoder
from veco_fairseq.models.xlme import Detection, XlmeModel
from veco_fairseq.modules import masked_loss as masked_loss_module
from veco_fairseq.modules.masked_loss import drawn_loss, masked_loss
from veco_fairseq.modules.token_sampler import Draw

PAD, EOS, MASK = 1, 2, 44


def fixed(gold):
    """Of every other ordinary token the next one, and the others again."""
    return torch.where(gold % 2 == 0, gold, 4 + (gold - 3) % 40)


@pytest.fixture
def fixed_samples(monkeypatch):
    monkeypatch.setattr(XlmeModel, "_draw", lambda self, gold: lambda probabilities, rows: fixed(gold)[rows])


# Sampling


def test_a_token_is_where_the_running_total_passes_the_number(monkeypatch):
    monkeypatch.setattr("veco_fairseq.modules.token_sampler.PROBABILITIES_A_PART", {"cpu": 10})  # two rows at a time
    p = torch.tensor([0.1, 0.2, 0.0, 0.3, 0.4]).expand(6, 5)
    # Tokens 1 to 3 alone: running totals 0.2, 0.2, 0.5, of which the numbers are shares.
    numbers = torch.tensor([9.0, 0.0, 0.39, 0.41, 0.9999999, float("nan")])
    draw = Draw(numbers, 1, 4)
    assert draw(p[1:], slice(1, None)).tolist() == [1, 1, 3, 3, 3]
    # What cannot be is not drawn, even by the smallest number.
    assert Draw(torch.zeros(1), 0, 3)(torch.tensor([[0.0, 0.5, 0.5]]), slice(0, 1)).tolist() == [1]


def test_samples_follow_the_softmax_and_not_the_chunks(monkeypatch):
    torch.manual_seed(1)
    rows, weight, bias = torch.randn(3, 8), torch.randn(12, 8), torch.randn(12)
    many, gold = rows.repeat(2000, 1).requires_grad_(), torch.arange(6000) % 12
    draw = Draw(torch.rand(6000), 4, 11)
    nll, correct, drawn = drawn_loss(many, weight, bias, gold, draw=draw)
    assert drawn.dtype == torch.int64 and not drawn.requires_grad
    assert all(torch.equal(*pair) for pair in zip((nll, correct), masked_loss(many, weight, bias, gold)))
    expected = torch.softmax((rows @ weight.t() + bias)[:, 4:11], 1)
    for row in range(3):
        shares = torch.bincount(drawn[row::3], minlength=12)[4:11] / 2000
        assert torch.allclose(shares, expected[row], atol=0.04)  # four standard deviations of a half
    monkeypatch.setattr(masked_loss_module, "LOGITS_A_CHUNK", 12 * 700)
    assert torch.equal(drawn_loss(many, weight, bias, gold, draw=draw)[2], drawn)


def test_samples_are_of_the_batch_in_validation_and_of_the_seed_in_training(make_task):
    model, sample = make_xlme(), next(iter(iterator(make_task()).next_epoch_itr()))["mono"]["net_input"]

    def judged(seed):
        torch.manual_seed(seed)
        return model(**sample).logits  # of another sentence if a sample is another

    assert torch.equal(judged(1), judged(2))
    model.train()
    assert torch.equal(judged(1), judged(1)) and not torch.equal(judged(1), judged(2))


@pytest.mark.parametrize("training", [False, True])
def test_a_special_token_is_never_sampled(make_task, training):
    """However likely the generator holds it: ``<unk>`` or ``<mask>`` could be no word of the text."""
    model = make_xlme().train(training)
    with torch.no_grad():
        model.generator.lm_head.bias[[0, 1, 2, 3, MASK]] = 50.0
    seen = []
    model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for sample in iterator(make_task(mono_mask_prob=0.6)).next_epoch_itr():
        given = sample["mono"]["net_input"]
        model(**given)
        chosen = given["targets"].flatten(0, 1).ne(PAD)
        assert chosen.any() and seen[-1][chosen].min() > 3 and seen[-1][chosen].max() < MASK
    assert len(torch.cat([tokens.flatten() for tokens in seen]).unique()) > 30


# The loss


def one_by_one(half):
    """(x, targets) of every sequence of a batch without its padding: pairs concatenated if they are."""
    given = half["net_input"]
    tokens, targets = (
        (given["tlm_tokens"], given["tlm_targets"]) if "tlm_tokens" in given
        else (given["tokens"].flatten(0, 1), given["targets"].flatten(0, 1))
    )  # fmt: skip
    for row, of_row in zip(tokens, targets, strict=True):
        length = int(row.ne(PAD).sum())
        yield torch.where(of_row.ne(PAD), of_row, row)[:length], of_row[:length]


def by_hand(model, half):
    """Sums of equations 1, and 3 or 5, over one sequence at a time, and over how many tokens each."""
    generator = discriminator = 0.0
    masked = tokens = 0
    for x, targets in one_by_one(half):
        M = [i for i, target in enumerate(targets.tolist()) if target != PAD]
        x_masked, x_corrupt = x.clone(), x.clone()
        for i in M:
            x_masked[i] = MASK
            x_corrupt[i] = fixed(x[i])
        p_G = torch.softmax(model.generator.lm_head(model.generator(x_masked[None]))[0], 1)
        generator -= sum(math.log(p_G[i, x[i]]) for i in M)
        p_D = torch.sigmoid(model.detection_head(model.unplugged(x_corrupt[None])))[0]
        for i in range(len(x)):
            discriminator -= math.log(p_D[i] if x_corrupt[i] != x[i] else 1 - p_D[i])
        masked, tokens = masked + len(M), tokens + len(x)
    return generator, masked, discriminator, tokens


@pytest.mark.parametrize("options", [{}, {"no_tlm": True}], ids=["tlm", "no tlm"])
def test_loss_equals_the_equations(make_task, fixed_samples, options):
    task, model = make_task(**options), make_xlme()
    criterion = criterion_for(task).eval()
    sample = next(iter(iterator(task).next_epoch_itr()))
    with torch.no_grad():
        for kind, half in sample.items():
            of_generator, masked, of_discriminator, tokens = by_hand(model, half)
            loss, sample_size, log = criterion(model, half)
            # L_G + lambda L_D (section 3.2), each the mean over its positions, times the masked tokens
            expected = masked * (of_generator / masked + 50 * of_discriminator / tokens)
            assert sample_size == masked and loss.item() == pytest.approx(expected, rel=1e-5)
            tasks = ("tlm", "trtd") if kind == "bitext" and not options else ("mlm", "mrtd")
            terms = [f"{kind}_{name}" for name in tasks]
            found = {term: log[f"{term}_nll"].item() for term in ReplacedTokenCriterion.terms if log[f"{term}_count"]}
            assert found == pytest.approx(dict(zip(terms, (of_generator, of_discriminator))), rel=1e-5)
            assert [log[f"{term}_count"] for term in terms] == [masked, tokens]


def test_figures_by_hand():
    """Two masked tokens of 1 and 2 bits; five tokens, three of them replaced, two called so, one of these rightly."""
    sure, unsure = math.log(3), math.log(3 / 2)  # probability 3/4: log2(4/3) bits if right, and 2 if wrong; 3/5: log2(5/2)
    detection = Detection(
        torch.tensor([math.log(2), math.log(4)]), torch.tensor([True, False]),
        torch.tensor([-sure, sure, -unsure, -sure, unsure]), torch.tensor([False, True, True, True, False]),
    )  # fmt: skip
    task = SimpleNamespace(cfg=SimpleNamespace(no_tlm=False), target_dictionary=None, validation_names=["aa", "bb"])
    sample = {"kind": "mono", "name": "aa", "ntokens": 5, "nsentences": 1, "net_input": {}}
    _, size, log = criterion_for(task).eval()(lambda **_: detection, sample)
    assert size == 2
    with metrics.aggregate(new_root=True) as agg:
        ReplacedTokenCriterion.reduce_metrics([log, log])
    values = agg.get_smoothed_values()
    detection_loss = (2 * math.log2(4 / 3) + 2 * math.log2(5 / 2) + 2) / 5
    for name in ("", "aa_"):
        assert values[f"{name}mono_mlm_loss"] == 1.5 and values[f"{name}mono_mlm_acc"] == 0.5
        assert values[f"{name}mono_mrtd_loss"] == pytest.approx(detection_loss, abs=1e-3)
        figures = [values[f"{name}mono_mrtd_{key}"] for key in ("acc", "precision", "recall", "replaced")]
        assert figures == pytest.approx([2 / 5, 1 / 2, 1 / 3, 3 / 5], abs=1e-4)
    assert values["loss"] == pytest.approx(1.5 + 50 * detection_loss, abs=1e-3)
    assert "mono_mlm_ppl" in values and "mono_mrtd_ppl" not in values
    assert not [key for key in values if key.startswith(("bb_", "bitext_t", "bitext_m"))]
    # Nothing is called replaced: no division by zero.
    detection = detection._replace(logits=-detection.logits.abs())
    with metrics.aggregate(new_root=True) as agg:
        ReplacedTokenCriterion.reduce_metrics([criterion_for(task)(lambda **_: detection, sample)[2]])
    assert agg.get_smoothed_values()["mono_mrtd_precision"] == agg.get_smoothed_values()["mono_mrtd_recall"] == 0


# What is masked, replaced and learnt


def test_generator_sees_masks_and_discriminator_samples(make_task, fixed_samples):
    task, model = make_task(mono_mask_prob=0.5), make_xlme()
    half = next(iter(iterator(task).next_epoch_itr()))["mono"]
    seen = {}
    for name, encoder in (("masked", model.generator), ("corrupt", model.encoder)):
        encoder.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
    found = model(**half["net_input"])
    targets, tokens = half["net_input"]["targets"].flatten(0, 1), half["net_input"]["tokens"].flatten(0, 1)
    chosen = targets.ne(PAD)
    assert tokens[chosen].eq(MASK).all()  # without BERT's 80/10/10
    assert seen["masked"][chosen].eq(MASK).all() and torch.equal(seen["masked"][~chosen], tokens[~chosen])
    assert torch.equal(seen["corrupt"][chosen], fixed(targets[chosen]))
    assert torch.equal(seen["corrupt"][~chosen], tokens[~chosen])
    # A sample that is the original is an original; every token but padding is classified.
    assert len(found.logits) == half["ntokens"] == len(found.replaced)
    assert found.replaced.sum() == (targets[chosen] % 2).sum() < chosen.sum()


def with_gradients(model):
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}


@pytest.mark.parametrize("embeddings", ["shared", "own"])
def test_gradients_of_one_do_not_reach_the_other(make_task, embeddings):  # noqa: F811
    model = make_xlme(generator_embeddings=embeddings).train()
    shared = {f"encoder.sentence_encoder.{name}.weight" for name in ("embed_tokens", "embed_positions")}
    tables = [[getattr(part.sentence_encoder, name).weight for part in (model.encoder, model.generator)]
              for name in ("embed_tokens", "embed_positions")]  # fmt: skip
    assert [a is b for a, b in tables] == [embeddings == "shared"] * 2
    assert model.generator.lm_head.weight is model.generator.sentence_encoder.embed_tokens.weight
    sample = next(iter(iterator(make_task()).next_epoch_itr()))["bitext"]["net_input"]
    everything = {name for name, _ in model.named_parameters()}
    generators = {name for name in everything if name.startswith("generator.")}
    both = shared if embeddings == "shared" else set()
    model(**sample).logits.square().sum().backward()
    assert with_gradients(model) >= {name for name in everything - generators if "k_proj.bias" not in name}
    assert not with_gradients(model) & generators
    model.zero_grad()
    model(**sample).nll.sum().backward()
    assert with_gradients(model) >= both | {name for name in generators if "k_proj.bias" not in name}
    assert with_gradients(model) <= both | generators


def test_without_trtd_pairs_are_the_generators_alone(make_task):
    task, model = make_task(), make_xlme().train()
    sample = next(iter(iterator(task).next_epoch_itr()))
    criterion = criterion_for(task, no_trtd=True)
    loss, _, log = criterion(model, sample["bitext"])
    loss.backward()
    assert log["bitext_tlm_count"] and not log["bitext_trtd_count"]
    assert not [name for name in with_gradients(model) if ".layers." in name and not name.startswith("generator.")]
    assert criterion(model, sample["mono"])[2]["mono_mrtd_count"]


def test_discriminator_is_an_encoder_with_ordinary_names():
    model, dictionary = make_xlme(), make_dictionary()
    ours = {name: tensor.shape for name, tensor in model.encoder.state_dict().items()}
    veco = VecoEncoder(model.args, dictionary).state_dict()
    without = ("encoder_attn", "lm_head")
    assert ours == {name: t.shape for name, t in veco.items() if not any(part in name for part in without)}
    assert {name.split(".")[0] for name in model.state_dict()} == {"encoder", "generator", "detection_head"}


# The commands
