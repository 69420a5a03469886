# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The task of pre-training: the masks of three epochs, what makes an epoch's batches, validation by language, and options."""

import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from conftest import random_lines, write_tokens
from support.pretraining import criterion_for, iterator

from veco_fairseq.data.batches import shard
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig, check_camlm

PAD = 1


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


def test_validation_takes_as_many_pairs_as_fit(make_task):
    """The batch size is training's, where a batch needs several times the memory."""
    sizes = []
    for options in ({}, {"mono_batch_size": 1, "bitext_batch_size": 2}):
        samples = iterator(make_task(**options), "valid").next_epoch_itr(shuffle=False)
        sizes.append([half["nsentences"] for sample in samples for half in sample.values()])
    assert sizes[0] == sizes[1] and max(sizes[1]) > 2


@pytest.mark.parametrize("kinds, options", [("mono", {"bitext": ()}), ("bitext", {"mono": ()})])
def test_one_kind_is_enough(make_task, make_root, make_model, kinds, options):
    task = make_task(make_root(**options))
    sample = next(iter(iterator(task).next_epoch_itr()))
    assert list(sample) == [kinds]
    _, sample_size, log = task.valid_step(sample, make_model(), criterion_for(task).eval())
    assert sample_size == log["sample_size"] > 0


def test_each_kind_is_hidden_and_cut_by_its_own_options(make_task):
    task = make_task(mono_mask_prob=0.1, bitext_mask_prob=0.3, bitext_mask_spread=0.2, mono_max_length=9, bitext_max_length=7)
    streams = task.dataset("train").streams
    found = {kind: (stream.masker.probability, stream.mask_spread, stream.tlm) for kind, stream in streams.items()}
    assert found == {"mono": (0.1, 0.0, False), "bitext": (0.3, 0.2, True)}
    longest = {kind: max(int(source.lengths.max()) for source in stream.sources) for kind, stream in streams.items()}
    assert longest == {"mono": 9, "bitext": 7}


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
    with pytest.raises(UserError, match="second.dict.txt: differs from .*first's"):
        make_task(f"{first}:{first}:{second}")
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
        ({"bitext_max_length": 3}, "--bitext-max-length 3: must be at least 4"),
        ({"mono_max_length": 3}, "--mono-max-length 3: must be at least 4"),
        ({"updates_per_epoch": 0}, "--updates-per-epoch 0"),
    ],
)
def test_bad_options(make_task, options, message):
    with pytest.raises(UserError, match=message):
        make_task(**options)


def test_sequences_must_fit_the_position_table(make_task):
    args = Namespace(_name="veco_tiny", arch="veco_tiny", max_positions=100, encoder_layers=1, encoder_embed_dim=8)
    args.encoder_attention_heads = 2
    with pytest.raises(UserError, match="TLM.* is 256 tokens, and the model has 100 positions"):
        make_task().build_model(args)
    make_task(no_tlm=True, bitext_max_length=90).build_model(args)
    with pytest.raises(UserError, match="--mono-max-length is 101 tokens, and the model has 100 positions"):
        make_task(mono_max_length=101, bitext_max_length=50).build_model(args)
    make_task(mono_max_length=100, bitext_max_length=50).build_model(args)  # which just fit


def test_symbols_are_kept_in_the_state(make_task):
    task = make_task()
    assert task.state_dict()["symbols"] == task.dictionary.symbols and task.dictionary.symbols[-1] == "<mask>"


@pytest.mark.parametrize(
    "options",
    [{"mono_max_length": 4, "bitext_max_length": 4}, {"mono_mask_prob": 1.0, "bitext_mask_prob": 1.0},
     {"mono_batch_size": 1, "bitext_batch_size": 1, "updates_per_epoch": 1}, {"bitext_mask_spread": 0.25},
     {"bitext_mask_prob": 0.75, "bitext_mask_spread": 0.25}],
    ids=str,
)  # fmt: skip
def test_the_least_and_the_most_are_enough(options):
    check_camlm(CamlmTaskConfig(data=".", **options))


@pytest.mark.parametrize(
    "options, message",
    [({"bitext_mask_prob": 1.1}, "--bitext-mask-prob 1.1: must be at most 1"),
     ({"mono_mask_prob": 1.1}, "--mono-mask-prob 1.1: must be at most 1"),
     ({"bitext_mask_spread": -0.1}, "--bitext-mask-spread -0.1: must be at least 0"),
     ({"bitext_mask_prob": 0.75, "bitext_mask_spread": 0.5}, "--bitext-mask-spread 0.5: must be from 0 to 0.25"),
     ({"mono_batch_size": 0}, "--mono-batch-size 0: must be at least 1"),
     ({"bitext_batch_size": 0}, "--bitext-batch-size 0: must be at least 1"),
     ({"data": None}, "the first argument, the data root, is missing"),
     ({"data": ""}, "the first argument, the data root, is missing"),
     ({"data": "pytest.ini"}, "pytest.ini: no such folder")],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_with_any_data(options, message):
    with pytest.raises(UserError, match=message):
        check_camlm(CamlmTaskConfig(**{"data": ".", **options}))


def test_every_worker_has_as_many_batches_to_validate():
    batches = [[number] for number in range(7)]
    assert [shard(batches, 3, worker, epoch=1) for worker in range(3)] == [
        [[0], [3], [6]], [[1], [4], []], [[2], [5], []]]  # fmt: skip
    assert shard(batches[:6], 3, 0, epoch=1) == [[0], [3]]


@pytest.mark.parametrize("arch", ["roberta_base", "transformer", "veco_mt_tiny"])
def test_models_of_other_tasks_are_refused(make_task, make_root, arch):
    with pytest.raises(UserError, match=f"^--arch {arch}: is no model of --task camlm: give --arch veco_SIZE or xlme_SIZE$"):
        make_task(make_root()).build_model(Namespace(_name=arch))
