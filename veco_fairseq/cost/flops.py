# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Counts the operations of training, so that models can be compared at equal cost."""

import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules import LayerDropModuleList
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, bmm_flop, mm_flop, sdpa_backward_flop_count, sdpa_flop_count

from veco_fairseq import plugin  # noqa: F401  safe reading of the checkpoint
from veco_fairseq.compat.batches import leaves_out_one
from veco_fairseq.compat.hooks import CountsBatches
from veco_fairseq.compat.patching import replaced
from veco_fairseq.cost.shapes import ShapesAlone
from veco_fairseq.errors import UserError
from veco_fairseq.modules.products import as_elsewhere
from veco_fairseq.optim.linear_by_epoch import updates_of


@contextmanager
def counter() -> Iterator[FlopCounterMode]:
    """Count operations with PyTorch's counter, extended by what it lacks, and without the rows that AMX alone needs.

    These are the fused attention of CPUs, and products with an ``out_dtype``, which PyTorch's own formulas do not take.
    Liger's loss has such products on a GPU.
    """
    aten = torch.ops.aten
    attention = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    formulas = {
        aten.addmm: lambda _, a, b, *__, **___: mm_flop(a, b),
        aten.bmm: lambda a, b, *_, **__: bmm_flop(a, b),
        aten.baddbmm: lambda _, a, b, *__, **___: bmm_flop(a, b),
        attention: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        backward: lambda gradient, q, k, v, *_, **__: sdpa_backward_flop_count(gradient, q, k, v),
    }
    with as_elsewhere(), FlopCounterMode(display=False, custom_mapping=formulas) as operations:
        yield operations


@contextmanager
def layers_drawn() -> Iterator[None]:
    """Choose the layers of a pass as ``--encoder-layerdrop`` and ``--decoder-layerdrop`` do, from numbers that are always the same.

    fairseq draws fractions, which are 0 where only shapes are known: every layer would be left out.
    """
    drawn = random.Random(1)

    def some(layers: LayerDropModuleList) -> Iterator[nn.Module]:
        return (layer for layer in nn.ModuleList.__iter__(layers) if not layers.training or drawn.random() > layers.p)

    with replaced(LayerDropModuleList, "__iter__", some):
        yield


def batches_of(updates: int, in_an_epoch: Callable[[int], int], frequencies: Sequence[int], skip_remainder: bool = False) -> int:
    """Return how many batches the first updates of a training have.

    Args:
        updates: their number.
        in_an_epoch: gives the batches of an epoch, the first of which is 1. It is asked as long as ``frequencies`` differ.
        frequencies: ``--update-freq``, of the first epoch, the second and so on; the last one holds from then on. An epoch's last
            update has the batches that are left.
        skip_remainder: ``--skip-remainder-batch``: they are left out.
    """
    batches, epoch = 0, 0
    while updates > 0:
        epoch += 1
        if epoch <= len(frequencies):
            of_update, there = frequencies[epoch - 1], in_an_epoch(epoch)
            whole = max(1, updates_of(there, of_update, skip_remainder))
        batches += min(there, min(updates, whole) * of_update)
        updates -= whole
    return batches


class Operations(NamedTuple):
    """The operations of a training run.

    Attributes:
        updates: the number of updates.
        per_update: floating-point operations of one, with all of its batches, forward and backward, on average.
        error: the standard error of this average over the counted batches; NaN for one batch.
    """

    updates: int
    per_update: float
    error: float

    @property
    def total(self) -> float:
        return self.updates * self.per_update


def _training_of(checkpoint: str) -> tuple[Any, int]:
    """Return the options and the number of updates; errors as in :func:`count_operations`."""
    state = checkpoint_utils.load_checkpoint_to_cpu(checkpoint)
    cfg = state["cfg"] if state.get("cfg") is not None else convert_namespace_to_omegaconf(state["args"])
    history = state.get("optimizer_history")
    if not history or history[-1].get("criterion_name") == "":  # what was converted has had no criterion yet
        raise UserError(f"{checkpoint}: was not trained, so there is nothing to count")
    folders = utils.split_paths(cfg.task.data)
    for folder in folders:
        if not Path(folder).exists():
            raise UserError(
                f"{checkpoint}: was trained on {folder}, which is not there: run this command in the training's folder"
            )
    if len(folders) > 1:
        print(
            f"{checkpoint}: was trained on {len(folders)} folders in turn: all updates are taken for those of {folders[0]}, the first",
            file=sys.stderr,
        )
    checkpoint_utils.overwrite_args_by_name(cfg, {"eval_bleu": False})  # which may need a package that only the training had
    return cfg, history[-1]["num_updates"]


@layers_drawn()
def count_operations(checkpoint: str, sample_updates: int = 20) -> Operations:
    """Count the matrix products of a run's first batches, and its updates.

    PyTorch's own counter is used: a product of (m, k) and (k, n) is 2mkn operations, and everything else is left out.
    Updates with a frozen backbone (``--freeze-backbone-updates``) are fewer operations each, and count as such.
    No product is computed, unless the operations depend on the weights (k-NN target sampling).
    Runs on the same data with the same seed, batch sizes and updates an epoch are counted on the same batches. So the
    ratio of their costs is much more exact than the error of each.

    Args:
        checkpoint: of any model that fairseq-train has trained; its data is still where it was. The batches of one of several
            workers stand for all of them.
        sample_updates: the number of batches to average over, spread over an epoch.

    Raises:
        UserError: the checkpoint or its data cannot be read.
    """
    cfg, updates = _training_of(checkpoint)
    task = tasks.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model, from_checkpoint=True).train(), task.build_criterion(cfg.criterion).train()
    task.load_dataset(cfg.dataset.train_subset, combine=True)  # as in training: with train1, train2 and so on
    workers = cfg.distributed_training.distributed_world_size
    iterator = task.get_batch_iterator(
        task.dataset(cfg.dataset.train_subset),
        max_tokens=cfg.dataset.max_tokens,
        max_sentences=cfg.dataset.batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions(), cfg.dataset.max_tokens),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=cfg.dataset.required_batch_size_multiple,
        seed=cfg.common.seed,
        num_shards=workers,
        skip_remainder_batch=cfg.optimization.skip_remainder_batch,
    )
    dataset = iterator.dataset
    dataset.set_epoch(iterator.next_epoch_idx)
    batches = iterator.ordered_batches(iterator.next_epoch_idx, False, True)  # as in training, shuffled
    frozen = min(getattr(task, "frozen_updates", 0), updates)
    trained_on = len(batches) - leaves_out_one(iterator)
    in_an_epoch = iterator.batches_in if isinstance(iterator, CountsBatches) else lambda epoch: trained_on
    frequencies, skip = cfg.optimization.update_freq, cfg.optimization.skip_remainder_batch
    of_all, of_frozen = (batches_of(of, in_an_epoch, frequencies, skip) for of in (updates, frozen))
    # The first update of each phase, and the share of all batches that it has.
    phases = [(first, count / of_all) for first, count in ((0, of_frozen), (frozen, of_all - of_frozen)) if count] or [(0, 1.0)]
    by_values, of_batches = getattr(criterion, "chooses_operations_by_values", False), []
    counted = min(sample_updates, len(batches))
    evenly = {number * len(batches) // counted for number in range(counted)}
    for batch in itertools.compress(batches, (number in evenly for number in itertools.count())):
        sample = iterator.collate_fn([dataset[index] for index in batch])
        of_phases = []
        for first, share in phases:
            with nullcontext() if by_values else ShapesAlone(), counter() as operations:
                task.train_step(sample, model, criterion, SimpleNamespace(backward=Tensor.backward), update_num=first)
            of_phases.append(share * operations.get_total_flops())
        of_batches.append(sum(of_phases))
    accumulation, number = workers * of_all / max(1, updates), len(of_batches)
    error = accumulation * statistics.stdev(of_batches) / math.sqrt(number) if number > 1 else math.nan
    return Operations(updates, accumulation * statistics.mean(of_batches), error)
