# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--task camlm``: pre-training on monolingual and bilingual batches in turn (VECO, section 4)."""

import logging
import math
import time
from collections import deque
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.tasks import register_task

from veco_fairseq.checkpoints.xlmr import init_from
from veco_fairseq.compat.precision import amp
from veco_fairseq.criterions.base import PretrainingCriterion
from veco_fairseq.data import roots
from veco_fairseq.data.batches import PlannedBatchIterator, TrainingBatches, make_plans, shard, validation_batches
from veco_fairseq.data.dataset import PretrainingDataset
from veco_fairseq.data.masking import Masker
from veco_fairseq.data.plan import KINDS
from veco_fairseq.data.sources import find_sources, load_streams
from veco_fairseq.data.vocabulary import require_same_symbols
from veco_fairseq.errors import UserError
from veco_fairseq.options.flags import flag
from veco_fairseq.tasks.base import VecoTask
from veco_fairseq.tasks.camlm_options import WITHOUT_EFFECT, CamlmTaskConfig, check_camlm, init_from_counts, training_split

logger = logging.getLogger(__name__)


@register_task("camlm", dataclass=CamlmTaskConfig)
class CamlmTask(VecoTask):
    """Pre-training of VECO, of XLM with ``--objective mlm``, and of XLM-E.

    A training sample is {"mono": batch, "bitext": batch}, planned by update number; a validation sample has one batch
    of one language or pair. The checkpoint's ``task_state`` keeps the dictionary's symbols.

    Raises:
        UserError: the options or the data cannot be trained with.
    """

    without_effect = {**VecoTask.without_effect, **WITHOUT_EFFECT}
    task_name, archs = "camlm", "--arch veco_SIZE or xlme_SIZE"
    instead_of_translating = "convert one (veco convert) and fine-tune it with --task translation"

    def __init__(self, cfg: CamlmTaskConfig, dictionary: Dictionary):
        self.paths = utils.split_paths(cfg.data)  # of the roots that epochs have in turn
        super().__init__(cfg, dictionary, Path(self.paths[0]))
        self.validation_names: list[str] = []
        self.training_set: PretrainingDataset | None = None
        self.frozen_updates = 0
        self.criterion: PretrainingCriterion | None = None
        self.passes: dict[int, dict[str, Fraction]] = {}  # by epoch and kind: how far it went
        self.begun: deque[tuple[int, float]] = deque(maxlen=101)  # the last updates, and when they began

    @classmethod
    def setup_task(cls, cfg: CamlmTaskConfig, **kwargs) -> "CamlmTask":
        check_camlm(cfg)
        paths = list(map(Path, utils.split_paths(cfg.data)))
        for path in paths[1:]:  # check them now, and not when their epoch comes
            find_sources(path, training_split(cfg), cfg)
        dictionary = roots.load_dictionary_of_all(paths)
        logger.info(f"dictionary: {len(dictionary):,} types, <mask> included")
        return cls(cfg, dictionary)

    def state_dict(self) -> dict[str, Any]:
        """Return what checkpoints keep: the symbols, and what the criterion needs to go on."""
        return {**super().state_dict(), **({} if self.criterion is None else self.criterion.task_state())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.resume_task_state(state_dict, "the checkpoint")

    def resume_task_state(self, task_state: dict[str, Any], checkpoint: str) -> None:
        """Go on with a checkpoint's state; refuse one of another dictionary, even of the same size.

        Raises:
            UserError: names both sizes and the first token that differs.
        """
        require_same_symbols(task_state.get("symbols"), self.dictionary, checkpoint, self.cfg.data)
        if self.criterion is not None:
            self.criterion.load_task_state(task_state)

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model, from XLM-R with ``--init-from``; check that it has positions for the longest sequences."""
        model = super().build_model(cfg, from_checkpoint)
        self.frozen_updates = model.args.freeze_backbone_updates
        if self.frozen_updates and not model.args.init_from and not from_checkpoint:
            raise UserError(
                f"--freeze-backbone-updates {self.frozen_updates}: would freeze random weights: add --init-from XLMR, "
                "or leave it out"
            )
        longest = {"--mono-max-length": self.cfg.mono_max_length}
        if not self.cfg.no_tlm:
            longest["twice --bitext-max-length (TLM)"] = 2 * self.cfg.bitext_max_length
        for option, length in longest.items():
            if length > model.max_positions():
                raise UserError(
                    f"{option} is {length} tokens, and the model has {model.max_positions()} positions: "
                    "lower it, or raise --max-positions"
                )
        if model.args.init_from and not from_checkpoint and init_from_counts(self.cfg, model.args.init_from):
            heads = model.args.encoder_attention_heads
            for group in init_from(model.encoder, self.dictionary, heads, model.args.init_from):
                logger.info(f"--init-from: {group}")
        return model

    def build_criterion(self, cfg, from_checkpoint: bool = False):
        """Build the criterion; check that it has something to train from the start."""
        if self.frozen_updates and getattr(cfg, "objective", None) == "mlm":
            raise UserError(
                f"--freeze-backbone-updates {self.frozen_updates}: leaves nothing to train with --objective mlm, which "
                "has no cross-attention: leave out one of the two"
            )
        if self.frozen_updates and str(getattr(cfg, "s_terms", "both")) != "both":
            raise UserError(
                f"--freeze-backbone-updates {self.frozen_updates}: leaves nothing to train on the batches without S terms of "
                f"--s-terms {cfg.s_terms}: leave out one of the two"
            )
        self.criterion = super().build_criterion(cfg, from_checkpoint)
        if self.criterion.loss_is and not from_checkpoint:
            logger.info(f"loss in this log is {self.criterion.loss_is}")
        return self.criterion

    # Data

    def load_dataset(self, split: str, combine: bool = False, task_cfg=None, epoch: int = 1, **kwargs) -> None:
        """Index a split's pairs; of several roots joined with ':', those of the root for this epoch."""
        root = Path(self.paths[(epoch - 1) % len(self.paths)])
        masker = Masker if self.criterion is None else self.criterion.masker
        streams = load_streams(root, split, self.cfg, self.dictionary, masker=masker)
        needs = None if self.criterion is None else self.criterion.needs
        training = split == training_split(self.cfg) and task_cfg is None  # which fairseq-validate gives
        if training and needs:
            option, kind = needs
            for path in map(Path, self.paths):  # all of them now, and not when their epoch comes
                if not find_sources(path, split, self.cfg)[kind]:
                    raise UserError(f"{option}: {path} has no {kind}/ to train on: leave the option out")
        for kind, stream in streams.items():
            for source in stream.sources:
                logger.info(
                    f"{split} {kind} {source.name}: {source.sentences:,} sentences, {len(source):,} pairs"
                    f" ({source.dropped:,} dropped)"
                )
        self.datasets[split] = PretrainingDataset(streams, self.dictionary, self.cfg.seed)
        if training:
            self.training_set = self.datasets[split]
            self._tell_what_is_not_validated(Path(self.paths[0]), split)  # whose sets fairseq validates on

    def _tell_what_is_not_validated(self, root: Path, training: str) -> None:
        """Warn of languages and pairs that the sets to validate on, which fairseq loads first, do not have."""
        names = {split: dataset.names for split, dataset in self.datasets.items()}
        missing = [name for name in names.pop(training) if not any(name in validated for validated in names.values())]
        if names and missing:
            logger.warning(f"{root}: has no {' or '.join(names)} data of {', '.join(missing)}")

    def get_batch_iterator(
        self,
        dataset: PretrainingDataset,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        num_shards: int = 1,
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        disable_iterator_cache: bool = False,
        **kwargs,
    ) -> PlannedBatchIterator:
        """Return an iterator over samples, which are planned lazily for training and listed for validation.

        Args:
            max_tokens: ``--max-tokens``, the most padded tokens of x and y in each kind of batch of one worker.
            max_sentences: ``--batch-size`` or ``--batch-size-valid``, which are refused.

        The other arguments are as in :meth:`fairseq.tasks.FairseqTask.get_batch_iterator`.
        """
        if max_sentences is not None:
            raise UserError(
                "--batch-size and --batch-size-valid are not for --task camlm, whose two kinds of batch have their own sizes: use "
                "--mono-batch-size and --bitext-batch-size to train, and --max-tokens and --max-tokens-valid"
            )
        if max_tokens is None:
            raise UserError("--task camlm needs --max-tokens: the padded tokens of x and y in each kind of batch")
        training = dataset is self.training_set
        if not training:  # each time, since there may be several sets to validate on
            self.validation_names = dataset.names
        if dataset in self.dataset_to_epoch_iter and not disable_iterator_cache:
            return self.dataset_to_epoch_iter[dataset]
        if training:
            batches = self._training_batches(dataset, max_tokens, num_shards, epoch)
        else:
            batches = partial(shard, validation_batches(dataset, max_tokens, seed=self.cfg.seed))
        iterator = PlannedBatchIterator(
            dataset,
            batches,
            partial(self._batches_made_from, dataset, max_tokens, num_shards),
            passes=self.passes,
            roots=":".join(Path(path).name for path in self.paths),
            seed=self.cfg.seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            reuse_dataloader=True,
        )
        if not disable_iterator_cache:  # of several roots, each epoch's would stay, with its loaders' processes
            self.dataset_to_epoch_iter[dataset] = iterator
        return iterator

    def _batches_made_from(self, dataset: PretrainingDataset, max_tokens: int, num_shards: int, epoch: int) -> dict[str, Any]:
        """Return everything that an epoch's batches depend on, by option."""
        made_from: dict[str, Any] = {"number of workers": num_shards, "--max-tokens": max_tokens}
        made_from |= {"--update-freq": self._update_freq(epoch), **{f"pairs of {kind}": "none" for kind in KINDS}}
        for name in ("seed", "updates_per_epoch", "mono_batch_size", "bitext_batch_size", "mono_alpha", "bitext_alpha"):
            made_from[flag(name)] = getattr(self.cfg, name)
        for kind, stream in dataset.streams.items():
            made_from[f"pairs of {kind}"] = ", ".join(f"{source.name} {len(source)}" for source in stream.sources)
            made_from[f"checksum of the lengths of {kind}"] = dataset.checksums[kind]
        return made_from

    def _update_freq(self, epoch: int) -> int:
        return self.cfg.update_freq[min(epoch, len(self.cfg.update_freq)) - 1]

    def _training_batches(self, dataset: PretrainingDataset, max_tokens: int, num_shards: int, epoch: int):
        """Return a function of (number of workers, worker, epoch): see :class:`PlannedBatchIterator`."""
        plans = make_plans(dataset.streams, self.cfg, max_tokens)

        def length(epoch: int) -> tuple[int, int]:
            an_update = num_shards * self._update_freq(epoch)
            updates = self.cfg.updates_per_epoch or max(-(-plan.batches_per_pass // an_update) for plan in plans.values())
            return updates, an_update

        def passes(visit: int) -> dict[str, Fraction]:
            return self.passes.get(visit) or {kind: plan.passes(math.prod(length(visit))) for kind, plan in plans.items()}

        def batches(*, epoch: int, **worker) -> TrainingBatches:
            before = list(map(passes, roots.visits(self.paths, epoch)[:-1]))
            return TrainingBatches(plans, math.prod(length(epoch)), before, **worker)

        for plan in plans.values():
            logger.info(str(plan))
        updates, an_update = length(epoch)
        logger.info(f"an epoch is {updates:,} updates of {an_update} x ({' + '.join(plans)})")
        return batches

    # Training

    def train_step(self, sample, model, criterion, optimizer, update_num: int, ignore_grad: bool = False):
        """Run forward and backward for each kind of batch in turn, so that memory holds the activations of one."""
        model.train()
        model.set_num_updates(update_num)
        # Not earlier: before the first update, fairseq builds its optimizer over the parameters that can be trained.
        model.freeze_backbone(update_num < self.frozen_updates)
        if not self.begun or self.begun[-1][0] != update_num:
            self.begun.append((update_num, time.monotonic()))
        criterion.begin_update(update_num, model, sample)
        step = partial(self._train_on, model=model, criterion=criterion, optimizer=optimizer, ignore_grad=ignore_grad)
        return self._add_up(sample, step)

    def valid_step(self, sample, model, criterion):
        """Run forward for each kind of batch, without gradients."""
        return self._add_up(sample, partial(super().valid_step, model=model, criterion=criterion))

    def reduce_metrics(self, logging_outputs: list[dict], criterion) -> None:
        """Log the criterion's metrics, and in training ``hours_left`` at the speed of the last 100 updates."""
        super().reduce_metrics(logging_outputs, criterion)
        if criterion.training and self.cfg.max_update > 0 and len(self.begun) > 1:
            (first, then), (last, now) = self.begun[0], self.begun[-1]
            hours = (now - then) / (last - first) * (self.cfg.max_update - last) / 3600
            metrics.log_scalar("hours_left", hours, weight=0, priority=190, round=2)

    def _train_on(self, batch: dict, *, model, criterion, optimizer, ignore_grad: bool):
        try:
            with amp(model, optimizer):
                loss, sample_size, log = criterion(model, batch)
            if loss.requires_grad:  # not where --encoder-layerdrop has left out all that is not frozen
                optimizer.backward(loss * 0 if ignore_grad else loss)
        except torch.OutOfMemoryError as error:
            shape = " x ".join(map(str, batch["net_input"]["tokens"].shape))
            raise torch.OutOfMemoryError(f"out of memory in a {batch['kind']} batch of {shape} tokens") from error
        return loss.detach(), sample_size, log

    @staticmethod
    def _add_up(sample: dict[str, dict], step):
        """Return the sums of (loss, sample size, log) over the kinds of batch of a sample."""
        loss, sample_size, total = 0.0, 0, dict[str, Any]()
        for kind in KINDS:
            if kind in sample:
                of_batch, size_of_batch, log = step(sample[kind])
                loss, sample_size = loss + of_batch, sample_size + size_of_batch
                total = {key: total.get(key, 0) + value for key, value in log.items()}
        return loss, sample_size, total
