# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""k-NN target sampling: the table, V', the loss over it, and training with it."""

import math
from types import SimpleNamespace

import pytest
import torch
from support.pretraining import criterion_for, iterator

from veco_fairseq.criterions import knn
from veco_fairseq.criterions.knn import KnnTargetSampler
from veco_fairseq.modules import nearest as module
from veco_fairseq.modules.embedding import FactorizedEmbedding, TokenEmbedding
from veco_fairseq.modules.nearest import nearest

by_products = module._by_products


def embeddings(table) -> TokenEmbedding:
    module = TokenEmbedding(*table.shape, 0)
    module.weight.data = table
    return module


TABLE = embeddings(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0], [0.1, 3.0]]))


def test_neighbours_have_the_largest_inner_products_in_chunks_too(monkeypatch):
    # By hand: row 1 . (rows 0 to 4) = 0.9, 0.82, 0.1, -0.9, 0.39; the long row 4 is nearer to row 2 than row 2 itself.
    assert [sorted(row) for row in nearest(torch.tensor([1, 2, 3]), TABLE, 2).tolist()] == [[0, 1], [2, 4], [2, 3]]
    torch.manual_seed(1)
    table, tokens = torch.randn(50, 8), torch.arange(0, 50, 3)
    whole = nearest(tokens, embeddings(table), 7)
    monkeypatch.setattr(module, "LOGITS_A_CHUNK", 120)  # two tokens at a time
    by_chunks = nearest(tokens, embeddings(table), 7)
    for token, row, chunked in zip(tokens, whole, by_chunks, strict=True):
        expected = sorted(range(50), key=lambda other: -float(table[token] @ table[other]))[:7]
        assert set(row.tolist()) == set(chunked.tolist()) == set(expected)


@pytest.mark.parametrize("spread, certain", [(1.0, True), (1e-3, False)], ids=["apart", "close"])
def test_neighbours_are_exact_under_autocast(monkeypatch, spread, certain):
    """Also where all embeddings are so close that bf16 rounds them to the same few: those rows are computed anew."""
    torch.manual_seed(1)
    table = 1 + spread * torch.randn(300, 32)
    if certain:
        table -= 1
    monkeypatch.setitem(module.ROWS_A_BLOCK, "cpu", 128)  # three blocks, the last one smaller
    again = []
    monkeypatch.setattr(module, "_by_products", lambda queries, *rest: again.append(len(queries)) or by_products(queries, *rest))
    with torch.autocast("cpu", torch.bfloat16):
        found = nearest(torch.arange(40), embeddings(table), 5)
    exact = (table[:40].double() @ table.double().t()).topk(5).indices
    assert torch.equal(found.long().sort()[0], exact.sort()[0])
    assert (sum(again) < 30) if certain else (sum(again) == 40)


@pytest.mark.parametrize("place", range(8))
def test_a_product_that_bf16_rounds_three_times_is_not_overlooked(monkeypatch, place):
    """8.531 and its product 72.78 become 8.5 and 72, as the others', of which four are candidates; the next block's are short.

    One that is certain, at right angles to them, does not speak for them."""
    monkeypatch.setitem(module.ROWS_A_BLOCK, "cpu", 9)
    table = torch.tensor([[8.5305, 0.0]] * 8 + [[0.0, 9.0]] + [[0.0, 0.0]] * 4)
    table[place, 0] = 8.531
    with torch.autocast("cpu", torch.bfloat16):
        assert nearest(torch.arange(9), embeddings(table), 1).tolist() == [[place]] * 8 + [[8]]


@pytest.mark.parametrize("count", [1, 4, 9, 19, 20, 21])
def test_a_table_of_few_tokens_has_too_few_candidates_and_is_not_rounded(count):
    """Four times as many candidates as neighbours would be all of 20 tokens."""
    torch.manual_seed(2)
    table = torch.randn(count, 6)
    wanted = min(5, count)
    with torch.autocast("cpu", torch.bfloat16):
        found = nearest(torch.arange(count), embeddings(table), wanted)
    exact = (table.double() @ table.double().t()).topk(wanted).indices
    assert torch.equal(found.long().sort()[0], exact.sort()[0])


@pytest.mark.parametrize("tokens", [1, 4, 11])
def test_workers_share_the_rows(monkeypatch, tokens):
    """Each of three makes its part of them, the last one less or nothing, and all get the whole."""
    torch.manual_seed(1)
    table, wanted = embeddings(torch.randn(50, 8)), torch.arange(0, 4 * tokens, 4)
    gathered = []
    monkeypatch.setattr(knn.distributed_utils, "get_global_world_size", lambda: 3)
    monkeypatch.setattr(knn.distributed_utils, "all_gather", lambda rows, group: gathered.append(rows) or gathered)
    monkeypatch.setattr(knn.dist, "group", SimpleNamespace(WORLD=None))
    for rank in range(3):
        monkeypatch.setattr(knn.dist, "get_rank", lambda rank=rank: rank)
        found = knn._made_together(wanted, table, 5)
    assert [len(rows) for rows in gathered] == [-(-tokens // 3)] * 3
    assert torch.equal(found, nearest(wanted, table, 5))


def test_neighbours_of_projected_embeddings():
    torch.manual_seed(1)
    factorized = FactorizedEmbedding(30, 8, 1, 4)
    torch.nn.init.normal_(factorized.project.weight)
    tokens = torch.arange(30)
    ours, theirs = nearest(tokens, factorized, 5), nearest(tokens, embeddings(factorized(tokens).detach()), 5)
    assert torch.equal(ours.sort()[0], theirs.sort()[0])
    # A whole model in 16 bits, as fairseq's --bf16 makes it: the projection is in bf16, too.
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            assert nearest(tokens, factorized.to(torch.bfloat16), 5).shape == (30, 5)


def test_the_subset_is_the_union_of_the_targets_and_their_neighbours():
    sampled = KnnTargetSampler(2, 10)(torch.tensor([[2, 3], [3, 2]]), TABLE)
    assert sampled.vocabulary.tokens.tolist() == [2, 3, 4]
    assert (sampled.targets, sampled.looked_up, sampled.age) == (2, 2, 0) and sampled.seconds > 0
    # Of a token whose nearest is another the token itself is there all the same.
    assert KnnTargetSampler(1, 10)(torch.tensor([2]), TABLE).vocabulary.tokens.tolist() == [2, 4]


def test_a_row_is_made_when_needed_and_again_when_it_is_old():
    sampler = KnnTargetSampler(2, refresh=3)
    looked_up, ages = [], []
    for update, targets in enumerate(([1, 2], [1], [1, 3], [1, 3], [1, 3], [1, 3])):
        sampler.update = update
        sampled = sampler(torch.tensor(targets), TABLE)
        looked_up.append(sampled.looked_up)
        ages.append(sampled.age)
    # 1 and 2 at update 0, 3 at update 2, 1 again at update 3, 3 again at update 5.
    assert looked_up == [2, 0, 1, 1, 0, 1]
    assert ages == [0, 1, 2, 1, 1 + 2, 2]


def test_rows_that_are_there_are_not_looked_at_again_before_their_time():
    sampler = KnnTargetSampler(2, refresh=3)
    sampler(torch.tensor([1]), TABLE)
    other = embeddings(TABLE.weight.flip(0).detach())
    sampler.update = 2
    assert sampler(torch.tensor([1]), other).vocabulary.tokens.tolist() == [0, 1]
    sampler.update = 3
    assert sampler(torch.tensor([1]), other).vocabulary.tokens.tolist() == sorted(
        {1, *nearest(torch.tensor([1]), other, 2)[0].tolist()}
    )


def test_state_is_taken_over_but_not_with_another_k():
    sampler = KnnTargetSampler(2, 10)
    for sampler.update, targets in ((0, [2]), (4, [3])):
        sampler(torch.tensor(targets), TABLE)
    resumed = KnnTargetSampler(2, 10)
    assert resumed.load_state_dict(sampler.state_dict())
    resumed.update = 5
    sampled = resumed(torch.tensor([3]), embeddings(torch.zeros(5, 2)))
    assert (sampled.vocabulary.tokens.tolist(), sampled.looked_up, sampled.age) == ([2, 3], 0, 1)
    assert torch.equal(resumed.made_at, sampler.made_at) and torch.equal(resumed.neighbours, sampler.neighbours)
    assert not KnnTargetSampler(3, 10).load_state_dict(sampler.state_dict())


def test_tokens_of_the_rest_stand_for_all_of_it():
    torch.manual_seed(1)
    table = embeddings(torch.randn(40, 4))
    subset = KnnTargetSampler(3, 10)(torch.tensor([5, 9]), table).vocabulary
    assert not subset.offsets.any()
    sampler = KnnTargetSampler(3, 10, rest=8)
    with_rest = [sampler(torch.tensor([5, 9]), table).vocabulary for _ in range(400)]
    others = 40 - len(subset.tokens)
    for tokens, offsets in with_rest:
        assert tokens.tolist() == sorted(set(tokens.tolist())) and len(tokens) == len(subset.tokens) + 8
        drawn = offsets.ne(0)
        assert tokens[~drawn].tolist() == subset.tokens.tolist()
        assert offsets[drawn].tolist() == pytest.approx([math.log(others / 8)] * 8)
    # In expectation the softmax's sum is that over all tokens.
    logits = torch.randn(40) / 3
    sums = torch.stack([(logits[tokens] + offsets).exp().sum() for tokens, offsets in with_rest])
    assert sums.mean().item() == pytest.approx(logits.exp().sum().item(), rel=0.02)
    # More than there are others: all of them, as they are.
    everything = KnnTargetSampler(3, 10, rest=99)(torch.tensor([5, 9]), table).vocabulary
    assert everything.tokens.tolist() == list(range(40)) and not everything.offsets.any()


def test_the_state_of_another_run_is_not_taken_over():
    """Updates begin anew after --finetune-from-model: the rows are of other embeddings. Only one that overflowed comes twice."""
    sampler = KnnTargetSampler(2, 10)
    sampler.update = 4
    sampler(torch.tensor([2, 3]), TABLE)
    for update, looked_up in ((5, 0), (4, 0), (3, 1), (0, 1), (7, 1)):
        resumed = KnnTargetSampler(2, 10)
        resumed.load_state_dict(sampler.state_dict())
        resumed.update = update
        assert resumed(torch.tensor([3]), TABLE).looked_up == looked_up


def test_neighbours_are_exact_in_low_precision():
    torch.manual_seed(1)
    table, tokens = torch.randn(300, 16).bfloat16(), torch.arange(0, 300, 7)
    exact = nearest(tokens, embeddings(table.float()), 9).sort()[0]
    assert torch.equal(nearest(tokens, embeddings(table), 9).sort()[0], exact)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(nearest(tokens, embeddings(table.float()), 9).sort()[0], exact)


def test_never_is_a_number_of_updates():
    sampler = KnnTargetSampler(2, 2**31 - 1)
    assert [sampler(torch.tensor([1]), TABLE).looked_up for sampler.update in (0, 1, 2**30)] == [1, 0, 0]


def of_criterion(task, model, sample, **options):
    """Loss, and gradients by name, of a training step's forward and backward."""
    criterion = criterion_for(task, **options).train()
    model.zero_grad()
    total = 0.0
    for half in sample.values():
        loss, _, log = criterion(model, half)
        loss.backward()
        total += loss.item()
    return total, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}, log


def test_with_all_neighbours_it_is_the_full_softmax(make_task, make_model):  # noqa: F811
    task = make_task()
    model, sample = make_model(task.dictionary, dropout=0).train(), next(iterator(task).next_epoch_itr())
    full, of_full, _ = of_criterion(task, model, sample)
    # All are neighbours; or those who are not are drawn, all of them.
    size = len(task.dictionary)
    for options in ({"knn_targets": size}, {"knn_targets": 2, "knn_rest": size}):
        ours, of_ours, log = of_criterion(task, model, sample, **options)
        assert log["knn_vocabulary"] == size and log["knn_ms"] >= 0
        assert (log["knn_ms"] == 0) == (options["knn_targets"] == size)
        assert ours == pytest.approx(full, rel=1e-6)
        assert all(torch.allclose(of_ours[name], gradient, rtol=1e-5, atol=1e-5) for name, gradient in of_full.items())


def test_loss_and_gradients_are_of_the_subset_alone(make_task, make_model):  # noqa: F811
    """Equation 4 for H, written out; theirs are the only rows of the embeddings with a gradient."""
    task = make_task(no_tlm=True)
    model, sample = make_model(task.dictionary, dropout=0).train(), next(iterator(task).next_epoch_itr())
    half = sample["mono"]
    tokens, targets = half["net_input"]["tokens"], half["net_input"]["targets"]
    loss, gradients, log = of_criterion(task, model, {"mono": half}, knn_targets=2, knn_rest=0, objective="mlm")
    table = model.encoder.sentence_encoder.embed_tokens
    words = targets[targets.ne(1)].unique().tolist()
    subset = sorted({*words, *nearest(torch.tensor(words), table, 2).flatten().tolist()})
    assert len(words) < len(subset) == log["knn_vocabulary"] < len(task.dictionary)
    expected = 0.0
    with torch.no_grad():
        for side, gold in zip(tokens, targets, strict=True):
            rows = model.encoder.lm_head(model.unplugged(side))[gold.ne(1)]
            for row, word in zip(rows, gold[gold.ne(1)].tolist(), strict=True):
                expected += math.log(sum(math.exp(row[j]) for j in subset)) - row[word].item()
    assert loss == pytest.approx(expected, rel=1e-5)
    touched = gradients["encoder.sentence_encoder.embed_tokens.weight"].abs().sum(1).nonzero().flatten().tolist()
    assert set(touched) == {*subset, *tokens.unique().tolist()} - {1}
    assert gradients["encoder.lm_head.bias"].nonzero().flatten().tolist() == subset


def test_loss_with_tokens_that_stand_for_the_rest(make_task, make_model):  # noqa: F811
    """The default: of the others some are drawn, and each counts in the softmax's sum for others / drawn."""
    task = make_task(no_tlm=True)
    model, sample = make_model(task.dictionary, dropout=0).train(), next(iterator(task).next_epoch_itr())
    half = sample["bitext"]
    tokens, targets = half["net_input"]["tokens"], half["net_input"]["targets"]
    criterion = criterion_for(task, knn_targets=2, knn_rest=7, objective="mlm").train()
    given, sampler = [], criterion.sampler
    criterion.sampler = lambda *arguments: given.append(sampler(*arguments)) or given[0]
    loss, _, log = criterion(model, half)
    table = model.encoder.sentence_encoder.embed_tokens
    words = targets[targets.ne(1)].unique().tolist()
    near = {*words, *nearest(torch.tensor(words), table, 2).flatten().tolist()}
    drawn = set(given[0].vocabulary.tokens.tolist()) - near
    others = len(task.dictionary) - len(near)
    assert 7 == len(drawn) < others and log["knn_vocabulary"] == len(near) + 7
    expected = 0.0
    with torch.no_grad():
        for side, gold in zip(tokens, targets, strict=True):
            rows = model.encoder.lm_head(model.unplugged(side))[gold.ne(1)]
            for row, word in zip(rows, gold[gold.ne(1)].tolist(), strict=True):
                total = sum(math.exp(row[j]) for j in near) + others / 7 * sum(math.exp(row[j]) for j in drawn)
                expected += math.log(total) - row[word].item()
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_both_kinds_of_batch_are_looked_up_in_one_go(make_task, make_model, monkeypatch):  # noqa: F811
    task = make_task()
    model, sample = make_model(task.dictionary).train(), next(iterator(task).next_epoch_itr())
    criterion = criterion_for(task, knn_targets=2).train()
    asked = []
    monkeypatch.setattr(knn, "nearest", lambda tokens, *rest: asked.append(tokens.tolist()) or nearest(tokens, *rest))
    criterion.begin_update(7, model, sample)
    logs = [criterion(model, half)[2] for half in sample.values()]
    everything = torch.cat([half["net_input"]["targets"].flatten() for half in sample.values()]).unique()
    assert asked == [everything[everything.ne(1)].tolist()]
    assert [log["knn_looked_up"] for log in logs] == [len(asked[0]), 0] and criterion.sampler.made_at[asked[0]].eq(7).all()


def test_validation_is_over_the_whole_vocabulary(make_task, make_model):  # noqa: F811
    task = make_task()
    model, sample = make_model(task.dictionary), next(iterator(task).next_epoch_itr())["bitext"]
    full, sampled = (criterion_for(task, **options).eval() for options in ({}, {"knn_targets": 2}))
    assert torch.equal(full(model, sample)[0], sampled(model, sample)[0])
    assert not sampled.sampler.made_at.numel()
