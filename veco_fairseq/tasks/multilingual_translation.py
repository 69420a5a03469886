# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--task veco_multilingual_translation``: one model for many directions (Johnson et al., 2017)."""

import copy
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.translation import EVAL_BLEU_ORDER, TranslationConfig
from omegaconf import II

from veco_fairseq.compat.batches import made_from
from veco_fairseq.data.directions import (
    DirectionsDataset,
    find_directions,
    parse_directions,
    prepend,
    require_target_tokens,
)
from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.symbols import target_token
from veco_fairseq.data.vocabulary import read_dictionary, require_dictionaries
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.bleu import log_bleu
from veco_fairseq.tasks.links import link_words_alone
from veco_fairseq.tasks.translation import CheckedTranslationTask, refuse_fixed_lengths, require_translation_model

logger = logging.getLogger(__name__)


@dataclass
class VecoMultilingualTranslationConfig(TranslationConfig):
    """The options of the task: those of fairseq's translation, and these."""

    lang_pairs: Optional[str] = field(
        default=None,
        metadata={"help": "directions to train and validate, such as de-en,en-de (default: both of every pair that the "
                  "folder has training data of); -s and -t choose one to translate"},
    )  # fmt: skip
    alpha: float = field(
        default=0.5,
        metadata={"help": "directions are drawn with p ~ (their share of sentences)^alpha: 1 is all sentences once an epoch, "
                  "0 as many of each direction"},
    )  # fmt: skip
    seed: int = II("common.seed")


@register_task("veco_multilingual_translation", dataclass=VecoMultilingualTranslationConfig)
class VecoMultilingualTranslationTask(CheckedTranslationTask):
    """Translation between many languages by one model, which a token before the source tells the target: ``<2de> x </s>``.

    The token stands where pre-training has ``<s>``. The data are a folder of fairseq-preprocess with any number of pairs,
    of which one pair of files serves both directions, and one dictionary that has the token of each target.

    Training draws directions with ``--alpha``, see :class:`veco_fairseq.data.directions.DirectionsDataset`; validation
    logs loss, perplexity and BLEU of each direction, and of all together. The checkpoint's ``task_state`` keeps the
    dictionary's symbols and the directions.

    Args:
        cfg: the options; ``lang_pairs`` is filled in.
        src_dict, tgt_dict: the dictionary, twice.

    Raises:
        UserError: options or data that cannot be trained on; a checkpoint of one direction, or without the target.
    """

    tokens_beside = 2

    def __init__(self, cfg: VecoMultilingualTranslationConfig, src_dict: Dictionary, tgt_dict: Dictionary):
        super().__init__(cfg, src_dict, tgt_dict)
        refuse_fixed_lengths(cfg)
        if cfg.load_alignments:
            raise UserError("--load-alignments: does not work with many directions: leave it out")
        self.directions = directions_of(cfg)
        self.targets = sorted({sides_of(direction)[1] for direction in self.directions})
        self.targets_are_of_models = False  # of checkpoints, not of the options
        self.state.merge_state_dict({"lang_pairs": self.directions})

    @classmethod
    def setup_task(cls, cfg: VecoMultilingualTranslationConfig, **kwargs) -> "VecoMultilingualTranslationTask":
        """Make the task of the folder's dictionary, which all languages share."""
        folder = Path(utils.split_paths(cfg.data)[0])
        if not (cfg.source_lang and cfg.target_lang) and not cfg.lang_pairs:
            cfg.lang_pairs = ",".join(find_directions(folder, cfg.train_subset)) or None
        directions = directions_of(cfg)
        if not directions:
            raise UserError(
                f"{folder}: has no {cfg.train_subset} data of any pair of languages: check the folder, or name the directions "
                "with --lang-pairs"
            )
        langs = list(dict.fromkeys(lang for direction in directions for lang in sides_of(direction)))
        paths = [folder / f"dict.{lang}.txt" for lang in langs]
        require_dictionaries(folder, langs, "--lang-pairs (or -s and -t)")
        dictionary = read_dictionary(paths[0])
        for path in paths[1:]:
            if path.read_bytes() != paths[0].read_bytes() and read_dictionary(path) != dictionary:
                raise UserError(
                    f"{path}: is another dictionary than {paths[0]}: all languages share one: make the data with --srcdict and "
                    "--tgtdict of it"
                )
        require_target_tokens(dictionary, sorted({sides_of(direction)[1] for direction in directions}), paths[0])
        return cls(cfg, dictionary, dictionary)

    # Checkpoints

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Check the state of a model to translate with; an ensemble translates into what all of its models do."""
        require_translation_model(state_dict)
        directions = state_dict.get("lang_pairs")
        if directions is None and state_dict.get("languages"):
            raise UserError("the checkpoint is of one direction: give --task translation instead")
        if directions:
            targets = {sides_of(direction)[1] for direction in directions}
            self.targets = sorted(targets.intersection(self.targets) if self.targets_are_of_models else targets)
            self.targets_are_of_models = True
            if self.cfg.target_lang:
                self.choose_target(self.cfg.target_lang)
        self.resume_task_state(state_dict, "the checkpoint")

    # Data

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs) -> None:
        """Load a set of all directions; what is not trained on may lack some of them.

        Raises:
            UserError: there is no such set, or of a direction to train; or -s and -t are given beside --lang-pairs, or one of the
                two alone.
        """
        training = split == self.cfg.train_subset
        if training and bool(self.cfg.source_lang) != bool(self.cfg.target_lang):
            raise UserError("-s and -t: give both to train one direction, or neither for all: --lang-pairs names some")
        if training and self.cfg.lang_pairs and directions_of(self.cfg) != parse_directions("--lang-pairs", self.cfg.lang_pairs):
            raise UserError("--lang-pairs and -s, -t: name the directions to train twice: take -s and -t away")
        paths = utils.split_paths(self.cfg.data)
        folder = Path(paths[(epoch - 1) % len(paths) if training else 0])
        there = find_directions(folder, split)
        missing = [direction for direction in self.directions if direction not in there]
        if missing and (training or len(missing) == len(self.directions)):
            raise UserError(
                f"{folder}: has no {split} data of {missing[0]}: check --lang-pairs, or make it with fairseq-preprocess"
            )
        if missing:
            logger.warning(f"{folder}: has no {split} data of {', '.join(missing)}")
        parts = {
            name: self._load(name, split, epoch, combine=combine, **kwargs) for name in self.directions if name not in missing
        }
        first = next(iter(parts.values()))
        if first.tgt is None:  # a text to translate, without its translation
            self.datasets[split] = first
            return
        dataset = DirectionsDataset(parts, self.cfg.alpha if training else None, self.cfg.seed)
        if dataset.draws is not None:
            logger.info(f"dictionary of all {len(self.directions)} directions: {len(self.src_dict):,} types")
            drawn = zip(dataset.names, dataset.pairs_of, dataset.draws)
            logger.info("an epoch has " + ", ".join(f"{name} {draws:,} of {pairs:,}" for name, pairs, draws in drawn))
        self.datasets[split] = dataset

    def _load(self, direction: str, split: str, epoch: int, **kwargs):
        cfg = copy.copy(self.cfg)
        cfg.source_lang, cfg.target_lang = sides_of(direction)
        task = CheckedTranslationTask(cfg, self.src_dict, self.tgt_dict)
        task.load_dataset(split, epoch, **kwargs)
        return prepend(task.datasets[split], self.tgt_dict.index(target_token(cfg.target_lang)))

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """Make batches; those to train on tell what they are made from, for a training that is resumed."""
        iterator = super().get_batch_iterator(dataset, *args, **kwargs)
        if dataset is self.datasets.get(self.cfg.train_subset):
            iterator.made_from = {
                "--lang-pairs": ",".join(self.directions), "--alpha": self.cfg.alpha, **made_from(iterator)
            }  # fmt: skip
        return iterator

    # Translating

    def choose_target(self, lang: str) -> None:
        """Choose the language to translate into.

        Raises:
            UserError: the model was not trained for it.
        """
        if lang not in self.targets:
            raise UserError(f"{lang}: the model does not translate into it, but into {', '.join(self.targets)}: choose one")
        self.cfg.target_lang = lang

    def build_dataset_for_inference(self, src_tokens, src_lengths, constraints=None):
        """Make a set of sources with the token of the chosen language; ``src_tokens`` end in ``</s>``."""
        if not self.cfg.target_lang:
            raise UserError(f"the language to translate into is missing: choose one of {', '.join(self.targets)} (-t)")
        token = self.tgt_dict.index(target_token(self.cfg.target_lang))
        tokens = [source.new_tensor([token, *source.tolist()]) for source in src_tokens]
        return super().build_dataset_for_inference(tokens, [len(source) for source in tokens], constraints)

    def build_generator(self, models, args, *more, **options):
        """Make the search of fairseq, whose links are of words alone."""
        generator = super().build_generator(models, args, *more, **options)
        link_words_alone(generator, [self.tgt_dict.index(target_token(lang)) for lang in self.targets], before=1)
        return generator

    # Validation

    def valid_step(self, sample, model, criterion):
        """Log what fairseq does, and once more under the direction's name; all workers log the same keys."""
        loss, sample_size, log = super().valid_step(sample, model, criterion)
        here = sample.get("direction")
        by_direction = {
            f"{name}:{key}": value if name == here else torch.zeros_like(value) if torch.is_tensor(value) else 0
            for name in self.directions
            for key, value in log.items()
        }
        return loss, sample_size, {**log, **by_direction}

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion) -> None:
        """Log what fairseq does, and loss, perplexity and BLEU of each direction that there is something of."""
        super().reduce_metrics(logging_outputs, criterion)
        for name in self.directions:
            marked = [key for key in next(iter(logging_outputs), {}) if key.startswith(f"{name}:")]
            total = {key.split(":", 1)[1]: sum(log[key] for log in logging_outputs) for key in marked}
            if total.get("sample_size"):
                _log_direction(name, {key: float(value) for key, value in total.items()})


def directions_of(cfg: VecoMultilingualTranslationConfig) -> list[str]:
    """Return the directions of the options: the one of -s and -t, or those of --lang-pairs."""
    if cfg.source_lang and cfg.target_lang:
        return parse_directions("-s, -t", f"{cfg.source_lang}-{cfg.target_lang}")
    return parse_directions("--lang-pairs", cfg.lang_pairs) if cfg.lang_pairs else []


def _log_direction(name: str, total: dict[str, float]) -> None:
    """Log the sums of a direction: its loss in bits, its perplexity and, with ``--eval-bleu``, its BLEU."""
    size, tokens = total["sample_size"], total["ntokens"]
    metrics.log_scalar(f"{name}_loss", total["loss"] / size / math.log(2), size, priority=20, round=3)
    nll = total.get("nll_loss", total["loss"])  # per token, where --sentence-avg has the loss per sentence
    metrics.log_scalar(f"_{name}_nll", nll / tokens / math.log(2), tokens)
    metrics.log_derived(f"{name}_ppl", lambda meters: utils.get_perplexity(meters[f"_{name}_nll"].avg), priority=21)
    if "_bleu_sys_len" in total:
        log_bleu(f"{name}_")
        for part in ("counts", "totals"):
            orders = [total[f"_bleu_{part}_{order}"] for order in range(EVAL_BLEU_ORDER)]
            metrics.log_scalar(f"_{name}_bleu_{part}", np.array(orders))
        for part in ("sys_len", "ref_len"):
            metrics.log_scalar(f"_{name}_bleu_{part}", total[f"_bleu_{part}"])
