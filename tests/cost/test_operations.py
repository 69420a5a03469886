# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Counted operations against formulas, and what count_operations.py makes of them."""

import math
import runpy
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import REPOSITORY, changed, make_dictionary, write_tokens
from fairseq import options, tasks
from fairseq.data.data_utils import numpy_seed
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules import LayerDropModuleList

from veco_fairseq.cost.flops import Operations, batches_of, count_operations, counter, layers_drawn
from veco_fairseq.cost.shapes import ShapesAlone
from veco_fairseq.errors import UserError


def counted(function) -> int:
    with counter() as operations:
        function()
    return operations.get_total_flops()


def test_attention_is_counted_on_a_cpu_too():
    """With and without dropout PyTorch takes different paths; the operations are q k^T, p v, and twice that back."""
    batch, heads, length, dim = 2, 3, 16, 8
    q = torch.randn(batch, heads, length, dim, requires_grad=True)
    product = 2 * batch * heads * length * length * dim
    attention = torch.nn.functional.scaled_dot_product_attention
    assert counted(lambda: attention(q, q, q)) == 2 * product
    assert counted(lambda: attention(q, q, q, dropout_p=0.1).sum().backward()) == 6 * product
    # The fused kernel keeps no attention weights and computes q k^T again.
    assert counted(lambda: attention(q, q, q).sum().backward()) == 7 * product


@pytest.mark.parametrize("name, shapes, operations", [
    ("addmm", [(3, 7), (3, 5), (5, 7)], 2 * 3 * 5 * 7), ("mm", [(3, 5), (5, 7)], 2 * 3 * 5 * 7),
    ("baddbmm", [(4, 3, 7), (4, 3, 5), (4, 5, 7)], 4 * 2 * 3 * 5 * 7), ("bmm", [(4, 3, 5), (4, 5, 7)], 4 * 2 * 3 * 5 * 7),
])  # fmt: skip
@pytest.mark.parametrize("options", [(), (torch.float32,)])
def test_products_into_another_type_are_counted(name, shapes, operations, options):
    """With ``out_dtype``, which only a GPU's products have: Liger's loss adds up the table's gradient in fp32."""
    factors = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
    with counter() as counting:
        count = counting.flop_registry[getattr(torch.ops.aten, name)]
    assert count(*factors, *options, out_val=torch.empty(())) == operations


def test_an_update_of_three_batches_costs_three(make_root, train, tmp_path):  # noqa: F811
    """--update-freq; and so does the error of the mean."""
    options = ["--objective", "mlm", "--no-tlm", "--max-update", "2", "--num-workers", "0", "--mono-max-length", "16"]
    assert train(make_root(), *options).returncode == 0
    path = tmp_path / "checkpoints/checkpoint_last.pt"
    path = path if path.exists() else next(tmp_path.rglob("checkpoint_last.pt"))
    one = count_operations(str(path), 3)
    with changed(path) as state:
        state["cfg"]["optimization"]["update_freq"] = [3]
    three = count_operations(str(path), 3)
    assert (one.updates, three.updates) == (2, 2) and three.per_update == 3 * one.per_update > 0
    assert three.error == pytest.approx(3 * one.error) and one.total == 2 * one.per_update


def pretraining(updates, *words) -> dict:
    """What counting reads of a checkpoint of a small pre-training: ROOT and more options."""
    words = map(str, [*words, "--task", "camlm", "--criterion", "camlm", "--arch", "veco_tiny", "--encoder-layers", 1,
                      "--encoder-embed-dim", 8, "--encoder-attention-heads", 2, "--max-tokens", 200, "--mono-max-length", 16])  # fmt: skip
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), list(words)))
    return {"cfg": cfg, "optimizer_history": [{"num_updates": updates}]}


def test_an_update_of_two_workers_costs_as_much_as_one_of_two_batches(make_root, monkeypatch):
    """All of a short epoch, with the same batches; those of one worker alone had been counted."""
    state = pretraining(2, make_root(), "--objective", "mlm", "--no-tlm", "--update-freq", 2, "--updates-per-epoch", 2)
    monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path: state)
    one = count_operations("a.pt", 4)
    state["cfg"].optimization.update_freq = [1]
    state["cfg"].distributed_training.distributed_world_size = 2
    two = count_operations("a.pt", 2)
    assert two.updates == one.updates == 2 and two.per_update == pytest.approx(one.per_update, rel=0.2)


def test_layers_left_out_by_chance_are_no_operations(make_root, monkeypatch):
    """LayerDrop: with a quarter about six of eight are left, where fractions have no values, too. None had been counted."""
    layers = LayerDropModuleList(0.25, [torch.nn.Identity() for _ in range(4000)])
    with ShapesAlone(), layers_drawn():
        passes = [len(list(layers)), len(list(layers)), len(list(layers.eval()))]
    assert all(2900 < length < 3100 for length in passes[:2]) and passes[0] != passes[1] and passes[2] == 4000
    state = pretraining(1, make_root(), "--objective", "mlm", "--no-tlm", "--updates-per-epoch", 1)
    monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path: state)
    found = []
    for state["cfg"].model.encoder_layers, state["cfg"].model.encoder_layerdrop in ((3, 0), (8, 0.25), (8, 0.25)):
        found.append(count_operations("a.pt", 1).per_update)
    assert found[0] < found[1] == found[2]
    assert LayerDropModuleList.__iter__.__module__ == "fairseq.modules.layer_drop"


def noted_lengths(monkeypatch, words, *, updates: int):
    """The options of a training of so many updates, and a list that gets the longest source of each batch that is counted."""
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    state = {"cfg": cfg, "optimizer_history": [{"num_updates": updates}]}
    monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path: state)
    lengths: list[int] = []
    monkeypatch.setattr("fairseq.tasks.fairseq_task.FairseqTask.train_step",
                        lambda task, sample, *_, **__: lengths.append(int(sample["net_input"]["src_lengths"].max())))  # fmt: skip
    return cfg, lengths


def test_batches_are_those_of_training_in_its_order(tmp_path, monkeypatch):
    """Shuffled, as fairseq does it: sorted by length, every so-manieth batch would be a sample of its own kind."""
    for lang in ("aa", "bb"):
        make_dictionary(mask=False).save(str(tmp_path / f"dict.{lang}.txt"))
        write_tokens(tmp_path / f"train.aa-bb.{lang}", [[5] * length for length in range(1, 21)])
    words = [str(tmp_path), "--arch", "transformer_tiny", "--batch-size", "1", "--max-tokens", "48", "--seed", "3"]
    cfg, lengths = noted_lengths(monkeypatch, words, updates=20)
    count_operations("a.pt", 20)
    batches = list(range(20))
    with numpy_seed(3 + 1):  # --seed and the first epoch: all is as in fairseq
        np.random.shuffle(batches)
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    with numpy_seed(3):
        ordered = task.dataset("train").ordered_indices()
    expected = [int(ordered[number]) + 2 for number in batches]  # a text of so many tokens, and </s>
    assert lengths == expected
    lengths.clear()
    count_operations("a.pt", 12)  # as many as asked for, not 20 because 20 // 12 is 1
    assert lengths == [expected[number] for number in (0, 1, 3, 5, 6, 8, 10, 11, 13, 15, 16, 18)]


def test_a_set_of_several_parts_is_counted_whole(tmp_path, monkeypatch):
    """Training reads train1 with train; its batches had not been counted."""
    for lang in ("aa", "bb"):
        make_dictionary(mask=False).save(str(tmp_path / f"dict.{lang}.txt"))
        for split, length in (("train", 3), ("train1", 7)):
            write_tokens(tmp_path / f"{split}.aa-bb.{lang}", [[5] * length] * 2)
    words = [str(tmp_path), "--arch", "transformer_tiny", "--batch-size", "1"]
    _, lengths = noted_lengths(monkeypatch, words, updates=4)
    count_operations("a.pt", 20)
    assert sorted(lengths) == [4, 4, 8, 8]  # with </s>


@pytest.mark.parametrize("updates, in_an_epoch, frequencies, skip, batches", [
    (4, 14, [4], False, 14), (3, 14, [4], False, 12), (5, 14, [4], False, 18), (8, 14, [4], False, 28), (3, 14, [4], True, 12),
    (7, 14, [4], True, 28 - 4 + 4), (16, 14, [1, 7], False, 28), (15, 14, [1, 7], False, 21), (19, 14, [1, 7], False, 28 + 21),
    (0, 14, [4], False, 0), (5, 3, [8], False, 15), (5, 3, [8], True, 15),
])  # fmt: skip
def test_an_epochs_last_update_has_the_batches_that_are_left(updates, in_an_epoch, frequencies, skip, batches):
    """It had counted as a whole one, and each epoch had had the first one's --update-freq."""
    assert batches_of(updates, lambda epoch: in_an_epoch, frequencies, skip) == batches


def test_epochs_of_other_lengths():
    """Pre-training's epochs have whole updates alone, and so more batches with a higher --update-freq."""
    assert batches_of(7, lambda epoch: 3 * epoch, [1, 2]) == 3 + 6 + 2


@pytest.mark.filterwarnings("ignore:`torch.cuda.amp.autocast:FutureWarning")  # fairseq's own
def test_batches_have_the_size_that_the_run_gave_them(tmp_path, monkeypatch):
    """Sentences of equal length: an update of twice as many has twice the products."""
    for lang in ("aa", "bb"):
        make_dictionary(mask=False).save(str(tmp_path / f"dict.{lang}.txt"))
        # ... and </s>; the last are longer than --max-tokens and than the positions of the model, and left out as in training
        write_tokens(tmp_path / f"train.aa-bb.{lang}", [[5, 6, 7]] * 12 + [[8] * 60, [8] * 1024])

    state = {}

    def operations(*size):
        words = [str(tmp_path), "--arch", "transformer_tiny", *size]
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
        state.update(cfg=cfg, optimizer_history=[{"num_updates": 3}, {"num_updates": 5}])
        monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path: state)
        found = count_operations("a.pt")
        assert (found.updates, found.error) == (5, 0)
        return found.per_update

    of_four = operations("--max-tokens", "48", "--batch-size", "4")
    # Of 8 that fit, 6 are a multiple of 3.
    assert 2 * operations("--max-tokens", "32", "--required-batch-size-multiple", "3") == 3 * of_four
    assert of_four == operations("--max-tokens", "16") == 2 * operations("--max-tokens", "48", "--batch-size", "2") > 0
    monkeypatch.setattr("fairseq.tasks.fairseq_task.FairseqTask.train_step", lambda *_, **__: None)
    # Of six batches with 1 to 6 operations the mean has the standard error sqrt(3.5 / 6); of the first and the fourth, 1.5.
    for sample, batches, error in ((20, [1, 2, 3, 4, 5, 6], (3.5 / 6) ** 0.5), (2, [1, 4], 1.5), (1, [2], math.nan)):
        totals = iter(batches)
        fake = SimpleNamespace(get_total_flops=lambda totals=totals: next(totals))
        monkeypatch.setattr("veco_fairseq.cost.flops.counter", lambda fake=fake: nullcontext(fake))
        found = count_operations("a.pt", sample)
        assert (found.per_update, found.error) == pytest.approx((sum(batches) / len(batches), error), nan_ok=True)
        assert next(totals, None) is None


@pytest.mark.filterwarnings("ignore:`torch.cuda.amp.autocast:FutureWarning")  # fairseq's own
def test_the_batch_that_an_epoch_leaves_out_is_not_counted(tmp_path, monkeypatch):
    """--skip-remainder-batch: of 3 batches in an epoch, 2 make its only update."""
    for lang in ("aa", "bb"):
        make_dictionary(mask=False).save(str(tmp_path / f"dict.{lang}.txt"))
        write_tokens(tmp_path / f"train.aa-bb.{lang}", [[5, 6, 7]] * 6)
    found = []
    for more in ([], ["--skip-remainder-batch"]):
        words = [str(tmp_path), "--arch", "transformer_tiny", "--batch-size", "2", "--required-batch-size-multiple", "1"]
        parser = options.get_training_parser()
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*words, "--update-freq", "4", *more]))
        state = {"cfg": cfg, "optimizer_history": [{"num_updates": 5}]}
        monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path, state=state: state)
        found.append(count_operations("a.pt").per_update)
    assert 2 * found[0] == 3 * found[1] > 0


def test_frozen_updates_cost_less_than_the_others(make_root, monkeypatch):
    """Two of eight: a quarter of the run; and no run is frozen for longer than it has updates."""

    def counted_of(frozen, updates):
        words = [make_root(), "--task", "camlm", "--criterion", "camlm", "--arch", "veco_tiny", "--encoder-layers", "1"]
        words += ["--encoder-embed-dim", "8", "--encoder-attention-heads", "2", "--max-tokens", "200", "--mono-max-length", "16"]
        words += ["--init-from", "nothing", "--freeze-backbone-updates", frozen] if frozen else []
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), list(map(str, words))))
        state = {"cfg": cfg, "optimizer_history": [{"num_updates": updates}]}
        monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path: state)
        return count_operations("a.pt", 2)

    found = {frozen: counted_of(frozen, 8) for frozen in (0, 2, 8, 9)}
    assert found[8] == found[9] and found[8].per_update < 0.6 * found[0].per_update
    assert found[2].per_update == pytest.approx(0.25 * found[8].per_update + 0.75 * found[0].per_update)
    assert found[2].updates == 8 and counted_of(2, 0).total == 0


def test_what_cannot_be_counted(tmp_path, monkeypatch):
    state = {"cfg": SimpleNamespace(task=SimpleNamespace(data=f"{tmp_path}:nowhere"))}
    monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path: state)
    for history in ([], [{"num_updates": 0, "criterion_name": ""}]):  # the second one is of a converted model
        state["optimizer_history"] = history
        with pytest.raises(UserError, match="a.pt: was not trained, so there is nothing to count"):
            count_operations("a.pt")
    state["optimizer_history"] = [{"num_updates": 5, "criterion_name": "CamlmCriterion"}]
    with pytest.raises(UserError, match="a.pt: was trained on nowhere, which is not there: run this command in the training's"):
        count_operations("a.pt")


def test_other_data_folders_than_the_first_are_told(tmp_path, monkeypatch, capsys):
    """Each epoch has the next one; only the first one's batches are counted."""
    cfg = SimpleNamespace(task=SimpleNamespace(data=str(tmp_path)))
    state = {"cfg": cfg, "optimizer_history": [{"num_updates": 5, "criterion_name": "CamlmCriterion"}]}
    monkeypatch.setattr("fairseq.checkpoint_utils.load_checkpoint_to_cpu", lambda path: state)
    monkeypatch.setattr("fairseq.checkpoint_utils.overwrite_args_by_name", lambda cfg, options: None)
    monkeypatch.setattr("fairseq.tasks.setup_task", lambda task: 1 / 0)
    told = f"a.pt: was trained on 2 folders in turn: all updates are taken for those of {tmp_path}, the first\n"
    for data, expected in ((f"{tmp_path}:{tmp_path / '.'}", told), (str(tmp_path), "")):
        cfg.task.data = data
        with pytest.raises(ZeroDivisionError):
            count_operations("a.pt")
        assert capsys.readouterr().err == expected


def test_the_total_is_what_is_printed_last(monkeypatch, capsys):
    runs = {"a.pt": Operations(1250, 1.2345e9, 0.13e9), "b.pt": Operations(5, 8.0, float("nan"))}
    monkeypatch.setattr("veco_fairseq.cost.flops.count_operations", lambda checkpoint, sample: runs[checkpoint])
    monkeypatch.setattr("logging.raiseExceptions", False)
    monkeypatch.setattr(sys, "argv", ["count_operations.py", *runs])
    with pytest.raises(SystemExit):
        runpy.run_path(str(REPOSITORY / "scripts/count_operations.py"), run_name="__main__")
    assert capsys.readouterr().out == (
        "a.pt: 1,250 updates x 1.23e+09 (± 1e+08) = 1.54e+12 operations\nb.pt: 5 updates x 8 = 40 operations\n"
    )


def test_equal_operations_are_in_updates_of_the_first(monkeypatch, capsys):
    runs = {"a.pt": Operations(10, 2.0, 0.1), "b.pt": Operations(5, 8.0, 0.1)}  # 20 and 40
    monkeypatch.setattr("veco_fairseq.cost.flops.count_operations", lambda checkpoint, sample: runs[checkpoint])
    monkeypatch.setattr("logging.raiseExceptions", False)
    for arguments, updates in ((["a.pt", "b.pt"], 30), (["b.pt", "a.pt"], 8)):  # 60 / 2 and 60 / 8
        monkeypatch.setattr(sys, "argv", ["count_operations.py", *arguments, "--equal"])
        with pytest.raises(SystemExit):
            runpy.run_path(str(REPOSITORY / "scripts/count_operations.py"), run_name="__main__")
        assert capsys.readouterr().out == f"{updates}\n"
