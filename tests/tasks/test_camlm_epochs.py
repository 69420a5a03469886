# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the task of pre-training makes: the length of an epoch, its seeds, its start, and what lies beside checkpoints."""

import gc
import logging
import shutil
import weakref
import zlib
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_tokens
from omegaconf import OmegaConf
from support.pretraining import criterion_for, iterator

from veco_fairseq.criterions.knn import KnnCamlmCriterionConfig
from veco_fairseq.data import roots
from veco_fairseq.data.batches import TrainingBatches
from veco_fairseq.data.dataset import SampleIndex
from veco_fairseq.data.plan import EXAMPLE
from veco_fairseq.errors import UserError
from veco_fairseq.tasks import base, camlm


def test_an_epoch_is_whole_updates_with_the_update_freq_of_its_epoch(make_task):
    """60 pairs in fives are 12 batches: 3 updates of 5, the last of which goes on with the next pass; then 2 of 7."""
    task = make_task(bitext_batch_size=5, update_freq=[5, 7])
    lengths = [len(iterator(task, epoch=epoch, disable_iterator_cache=True)) for epoch in (1, 2, 3)]
    assert lengths == [3 * 5, 2 * 7, 2 * 7]
    assert len(iterator(make_task(bitext_batch_size=5, update_freq=[5], updates_per_epoch=2))) == 2 * 5


def test_all_texts_of_a_kind_have_a_part_in_its_checksum(make_task):
    """Also the first of two languages."""
    dataset = make_task().dataset("train")
    first, second = (source.lengths for source in dataset.streams["mono"].sources)
    assert dataset.checksums["mono"] == f"{zlib.crc32(first.tobytes() + second.tobytes()):08x}"


def test_an_iterator_is_made_again_where_that_is_asked_for(make_task):
    task = make_task()
    first = iterator(task)
    assert iterator(task) is first
    again = iterator(task, disable_iterator_cache=True, epoch=2, num_workers=3, data_buffer_size=7)
    assert again is not first and (again.epoch, again.num_workers, again.buffer_size) == (2, 3, 7)


def test_what_is_trained_on_and_not_validated_is_told(make_task, make_root, caplog):
    caplog.set_level(logging.WARNING)
    root = make_root(mono=("aa", "bb"), bitext=("aa-bb", "bb-cc"))
    make_task(root).load_dataset("train")
    assert not caplog.records
    whole = shutil.copytree(root, root.with_name("whole"))
    for name in ("mono/bb/valid", "bitext/aa-bb/valid.aa-bb.aa", "bitext/aa-bb/valid.aa-bb.bb"):
        for suffix in (".bin", ".idx"):
            (root / f"{name}{suffix}").unlink()
    task = make_task(root)
    assert not caplog.records  # in this order nothing is known of the set to validate on
    task.load_dataset("train")
    assert [record.getMessage() for record in caplog.records] == [f"{root}: has no valid data of bb, aa-bb"]
    caplog.clear()
    task = make_task(f"{root}:{whole}")
    task.load_dataset("train", epoch=2)  # of the second root, whose own set to validate on is not looked at
    assert [record.getMessage() for record in caplog.records] == [f"{root}: has no valid data of bb, aa-bb"]


def test_what_is_trained_on_is_the_set_of_that_option(make_task, make_root):
    """--train-subset: planned for training, and not every pair once with the masks of validation."""
    task = make_task(make_root(), train_subset="valid")
    trained, other = (iterator(task, split).batches(num_shards=1, shard_id=0, epoch=1) for split in ("valid", "train"))
    assert isinstance(trained, TrainingBatches) and not isinstance(other, TrainingBatches)
    assert isinstance(iterator(make_task()).batches(num_shards=1, shard_id=0, epoch=1), TrainingBatches)


def test_batch_size_is_refused_and_max_tokens_required(make_task):
    for split in ("train", "valid"):  # of --batch-size-valid
        with pytest.raises(
            UserError, match="^--batch-size and --batch-size-valid are not .* use --mono-batch-size and --bitext-"
        ):
            iterator(make_task(), split, max_sentences=8)
    with pytest.raises(UserError, match="needs --max-tokens"):
        iterator(make_task(), max_tokens=None)
    for split, words in (("train", "--max-tokens 7"), ("valid", r"--max-tokens-valid \(or --max-tokens\) 7")):
        with pytest.raises(UserError, match=f"^{words} cannot hold a mono pair of twice"):
            iterator(make_task(), split, max_tokens=7)


def test_each_validation_has_the_names_of_its_own_set(make_task, make_root):
    """Of two sets with other languages, also when their batches were made before."""
    root = make_root(mono=("aa", "bb"), bitext=())
    for suffix in ("bin", "idx"):
        (root / f"mono/bb/valid.{suffix}").rename(root / f"mono/bb/test.{suffix}")
    task, names = make_task(root), []
    task.load_dataset("test")
    for split in ("valid", "test", "valid"):
        iterator(task, split)
        names.append(task.validation_names)
    assert names == [["aa"], ["bb"], ["aa"]]


def test_the_data_of_a_root_go_when_its_epoch_ends(make_task, make_root, tmp_path):
    """With their offsets in memory, and the processes that load them."""
    root = make_root()
    (tmp_path / "copy").symlink_to(root)
    task, kept = make_task(f"{root}:{tmp_path / 'copy'}", updates_per_epoch=1), []
    for epoch in (1, 2, 3):
        task.load_dataset("train", epoch=epoch)
        batches = iterator(task, epoch=epoch, disable_iterator_cache=task.has_sharded_data("train"))
        assert len(list(batches.next_epoch_itr())) == 1
        kept.append(weakref.ref(task.dataset("train")))
        del batches
    gc.collect()
    assert [dataset() is None for dataset in kept] == [True, True, False]


@pytest.mark.parametrize("updates, update_freq, epochs", [(4, [1], (1, 3, 5)), (2, [2, 1, 4], (1, 3))])
def test_every_pair_of_a_root_comes_before_any_comes_again(make_task, make_root, tmp_path, updates, update_freq, epochs):
    """Twelve batches of five pairs are a pass, and an epoch has four of them, or 4 and 8; one root's are every other one."""
    root, taken = make_root(), []
    (tmp_path / "copy").symlink_to(root)
    task = make_task(f"{root}:{tmp_path / 'copy'}", bitext_batch_size=5, updates_per_epoch=updates, update_freq=update_freq)
    for epoch in epochs:
        task.load_dataset("train", epoch=epoch)
        batches = iterator(task, epoch=epoch, disable_iterator_cache=True).batches(num_shards=1, shard_id=0, epoch=epoch)
        taken += [pair for (sample,) in batches for pair in sample.bitext["index"].tolist()]
    assert sorted(taken) == list(range(60))


def test_a_root_that_is_there_twice_is_visited_twice_as_often():
    assert [roots.visits(["a", "a", "b"], epoch) for epoch in (1, 2, 3, 6, 7)] == [[1], [1, 2], [3], [3, 6], [1, 2, 4, 5, 7]]
    assert roots.visits(["a"], 3) == [1, 2, 3]


def test_fairseq_validate_has_every_pair_of_the_training_set_once(make_task):
    """It gives task_cfg, as a training does not, whose batches are drawn by --mono-alpha and end with its epoch."""
    task = make_task(mono_batch_size=2, updates_per_epoch=4)
    assert len(iterator(task, disable_iterator_cache=True)) == 4
    task.load_dataset("train", task_cfg=task.cfg)
    found = [half for sample in iterator(task).next_epoch_itr(shuffle=False) for half in sample.values()]
    sources = [source for stream in task.dataset("train").streams.values() for source in stream.sources]
    pairs = {source.name: len(source) for source in sources}
    assert task.validation_names == list(pairs) == ["aa", "bb", "aa-bb"]
    assert {name: sum(half["nsentences"] for half in found if half["name"] == name) for name in pairs} == pairs
    assert len({half["net_input"]["tokens"].numpy().tobytes() for half in found}) == len(found) > 4


def test_what_is_told_of_each_language_and_pair(make_task, make_root, caplog):
    """Three sentences of two documents are two pairs, one of them a sentence cut in two; and one pair is far too long."""
    caplog.set_level(logging.INFO)
    root = make_root(mono=("aa",), bitext=("aa-bb",), lines=10)
    write_tokens(root / "mono/aa/train", [[5, 6, 3], [7, 8], [], [9, 10]])
    write_tokens(root / "bitext/aa-bb/train.aa-bb.aa", [[5, 6]] * 3 + [[7] * 200])
    write_tokens(root / "bitext/aa-bb/train.aa-bb.bb", [[8]] * 3 + [[9]])
    make_task(root)
    assert "train mono aa: 3 sentences, 2 pairs (0 dropped)" in caplog.text
    assert "train bitext aa-bb: 3 sentences, 3 pairs (1 dropped)" in caplog.text
    assert "dictionary: 45 types, <mask> included" in caplog.text


@pytest.mark.parametrize("split", ["train", "valid"])
def test_other_seeds_hide_other_tokens(make_task, make_root, split):
    root, pairs = make_root(), SampleIndex(bitext=np.array([(0, 0, index) for index in range(9)], dtype=EXAMPLE))
    found = [make_task(root, seed=seed).dataset(split)[pairs]["bitext"]["net_input"]["tokens"] for seed in (3, 3, 4)]
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


TINY = {"arch": "veco_tiny", "encoder_layers": 1, "encoder_embed_dim": 8, "encoder_attention_heads": 2, "init_from": "xlmr"}


@pytest.mark.parametrize("suffix, of_another", [("", "-x"), ("-x", "")])
def test_a_start_is_read_unless_there_is_a_checkpoint_to_go_on_from(make_task, tmp_path, monkeypatch, suffix, of_another):
    read = []
    monkeypatch.setattr(camlm, "init_from", lambda encoder, dictionary, *given: read.append(given) or [])
    task = make_task(save_dir=str(tmp_path), checkpoint_suffix=suffix)
    (tmp_path / f"checkpoint_last{of_another}.pt").touch()
    task.build_model(Namespace(**TINY))
    assert read == [(2, "xlmr")]
    task.build_model(Namespace(**TINY), from_checkpoint=True)
    (tmp_path / f"checkpoint_last{suffix}.pt").touch()
    task.build_model(Namespace(**TINY))
    assert len(read) == 1


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model", "--continue-once"])
def test_a_start_that_another_option_replaces_is_told_and_not_read(option, make_task, tmp_path, monkeypatch, caplog):
    caplog.set_level("WARNING")
    monkeypatch.setattr(camlm, "init_from", lambda *given: pytest.fail("is read"))
    name = option.strip("-").replace("-", "_")
    make_task(save_dir=str(tmp_path), **{name: "veco.pt"}).build_model(Namespace(**TINY))
    expected = f"--init-from xlmr: is not read, since the training begins with {option} veco.pt: leave out one of the two"
    assert caplog.messages == [expected]
    caplog.clear()
    (tmp_path / "checkpoint_last.pt").touch()  # of this training, which goes on by the same command
    make_task(save_dir=str(tmp_path), checkpoint_suffix="", **{name: "veco.pt"}).build_model(Namespace(**TINY))
    assert not caplog.messages


def test_what_was_trained_with_a_frozen_backbone_is_read_without_its_start(make_task):
    frozen = {**TINY, "init_from": None, "freeze_backbone_updates": 3}
    assert make_task().build_model(Namespace(**frozen), from_checkpoint=True).args.freeze_backbone_updates == 3
    with pytest.raises(UserError, match="--freeze-backbone-updates 3: would freeze random weights"):
        make_task().build_model(Namespace(**frozen))


def test_the_first_worker_alone_copies_the_vocabulary(tmp_path, monkeypatch):
    root, saved = tmp_path / "root", tmp_path / "saved"
    for folder in (root, saved):
        folder.mkdir()
    (root / "dict.txt").write_text("new")
    (saved / "dict.txt").write_text("old")
    cfg = SimpleNamespace(save_dir=str(saved))
    task = SimpleNamespace(vocabulary=root, cfg=cfg)
    for rank, cfg.no_save, expected in ((1, False, "old"), (0, True, "old"), (0, False, "new")):
        monkeypatch.setattr(base.distributed_utils, "get_global_rank", lambda rank=rank: rank)
        base.VecoTask.begin_epoch(task, 1, None)
        assert (saved / "dict.txt").read_text() == expected
    assert [path.name for path in saved.iterdir()] == ["dict.txt"]  # and no SentencePiece model, of which there is none


def test_the_log_tells_what_its_loss_is_where_a_training_begins(make_task, caplog):
    """... and not where a checkpoint is read for its figures."""
    task = make_task()
    for from_checkpoint, told in ((True, 0), (False, 1)):
        with caplog.at_level("INFO"):
            task.build_criterion(OmegaConf.structured(KnnCamlmCriterionConfig(_name="camlm")), from_checkpoint)
        assert caplog.text.count("loss in this log is ") == told


def test_s_terms_need_batches_of_their_kind(make_task, make_root, tmp_path):
    """Otherwise cross-attention is never trained."""
    task = make_task(make_root(bitext=()))
    task.criterion = criterion_for(task, s_terms="bitext")
    with pytest.raises(UserError, match=r"--s-terms bitext: \S+ has no bitext/ to train on: leave the option out"):
        task.load_dataset("train")
    task.load_dataset("valid")
    task.criterion = criterion_for(task, s_terms="mono")
    task.load_dataset("train")
    whole, pairs = make_root(), tmp_path / "pairs"
    shutil.copytree(whole, pairs, ignore=lambda *_: ["mono"])
    task = make_task(f"{whole}:{pairs}")  # the second one's epoch would come later
    task.criterion = criterion_for(task, s_terms="mono")
    with pytest.raises(UserError, match=rf"--s-terms mono: {pairs} has no mono/ to train on: leave the option out"):
        task.load_dataset("train")


def test_a_batch_that_is_not_to_count_leaves_no_gradient(make_task, make_model):
    """fairseq trains on such a one where a worker has none left while others have."""
    task, model = make_task(), make_model()
    sample = next(iter(iterator(task).next_epoch_itr()))
    optimizer, largest = SimpleNamespace(backward=lambda loss: loss.backward()), []
    for ignored in (True, False):
        model.zero_grad()
        loss, *_ = task.train_step(sample, model, criterion_for(task), optimizer, 1, ignore_grad=ignored)
        assert loss > 0
        largest.append(max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None))
    assert largest[0] == 0 < largest[1]
