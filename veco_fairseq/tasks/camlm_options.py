# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The options of ``--task camlm``."""

import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Optional

from fairseq import utils
from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from veco_fairseq.compat.stopping import LAST
from veco_fairseq.data.options import DataOptions
from veco_fairseq.errors import UserError
from veco_fairseq.options import borders
from veco_fairseq.options.flags import flag

logger = logging.getLogger(__name__)

# Options of fairseq that do nothing for the task, and why.
WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("curriculum", "grouped_shuffling", "update_epoch_batch_itr", "update_ordered_indices_seed", "fix_batches_to_gpus"),
        "--task camlm plans its batches, whose order depends on --seed alone",
    ),
    "required_batch_size_multiple": "a batch has --mono-batch-size or --bitext-batch-size pairs, or as many as --max-tokens allows",
    "skip_invalid_size_inputs_valid_test": "--task camlm leaves out longer pairs in any case, and cuts longer documents",
}


@dataclass
class CamlmTaskConfig(DataOptions, FairseqDataclass):
    """The task's options."""

    seed: int = II("common.seed")
    update_freq: Any = II("optimization.update_freq")
    max_update: int = II("optimization.max_update")
    save_dir: str = II("checkpoint.save_dir")
    no_save: bool = II("checkpoint.no_save")
    restore_file: str = II("checkpoint.restore_file")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    train_subset: str = II("dataset.train_subset")


def training_split(cfg) -> str:
    """Return the name of the set to train on: ``--train-subset``, or "train" where fairseq's other options are not there."""
    name = cfg.train_subset
    return "train" if name.startswith("${") else name


def init_from_counts(cfg, start: str) -> bool:
    """Return whether a training begins with ``--init-from``: neither its last checkpoint nor another option's is loaded over it.

    Args:
        cfg: the task's options.
        start: the value of ``--init-from``, for the warning where another option wins.
    """
    if (Path(cfg.save_dir) / f"checkpoint_last{cfg.checkpoint_suffix}.pt").exists():
        return False
    for name in ("finetune_from_model", "restore_file", "continue_once"):
        path = getattr(cfg, name)
        if path and path != LAST and not path.startswith("${"):  # which stands where fairseq's other options are not there
            logger.warning(
                f"--init-from {start}: is not read, since the training begins with {flag(name)} {path}: leave out one of the two"
            )
            return False
    return True


def check_camlm(cfg) -> None:
    """Raise UserError for an option that is wrong with any data."""
    borders.check_options({option.name: getattr(cfg, option.name) for option in fields(DataOptions)})
    most = min(cfg.bitext_mask_prob, 1 - cfg.bitext_mask_prob)
    if cfg.bitext_mask_spread > most:
        raise UserError(
            f"--bitext-mask-spread {cfg.bitext_mask_spread}: must be from 0 to {most:g}, so that --bitext-mask-prob "
            f"{cfg.bitext_mask_prob} plus or minus it is between 0 and 1"
        )
    if not cfg.data:
        raise UserError("the first argument, the data root, is missing")
    for path in utils.split_paths(cfg.data):
        if not Path(path).is_dir():
            raise UserError(f"{path}: no such folder: the first argument is the data root (or several, joined with ':')")
