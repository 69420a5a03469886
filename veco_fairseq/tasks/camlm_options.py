# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The options of ``--task camlm``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from fairseq import utils
from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from veco_fairseq.errors import UserError


@dataclass
class CamlmTaskConfig(FairseqDataclass):
    """Options of the task; lengths are in tokens, ``<s>`` and ``</s>`` included."""

    data: Optional[str] = field(
        default=None, metadata={"help": "data root (dict.txt, mono/, bitext/); several joined with ':' are shards"}
    )
    mono_langs: Optional[str] = field(
        default=None, metadata={"help": "comma-separated languages of ROOT/mono (default: all found)"}
    )
    bitext_pairs: Optional[str] = field(
        default=None, metadata={"help": "comma-separated pairs src-tgt of ROOT/bitext (default: all found)"}
    )
    mono_alpha: float = field(
        default=0.5, metadata={"help": "languages are sampled with p ~ (their share of sentences)^alpha (paper: 0.5)"}
    )
    bitext_alpha: float = field(default=0.5, metadata={"help": "the same for pairs (paper: silent)"})
    mono_mask_prob: float = field(
        default=0.15, metadata={"help": "share of monolingual tokens to predict (paper: 0.15)"}
    )
    bitext_mask_prob: float = field(default=0.25, metadata={"help": "share of bitext tokens to predict (paper: 0.25)"})
    bitext_mask_spread: float = field(
        default=0.0,
        metadata={"help": "of every bitext pair predict a share of x that is up to this much larger or smaller, and a "
                  "share of y that is as much smaller or larger: the fuller side is then translated (paper: 0)"},
    )  # fmt: skip
    mono_max_length: int = field(
        default=512, metadata={"help": "tokens of a monolingual segment at most (paper: 512)"}
    )
    bitext_max_length: int = field(
        default=128,
        metadata={"help": "tokens of a side of a bitext pair at most; longer pairs are dropped (paper: 128)"},
    )
    mono_batch_size: Optional[int] = field(
        default=None, metadata={"help": "monolingual pairs a worker and batch at most (paper: 1024 over 64 workers)"}
    )
    bitext_batch_size: Optional[int] = field(
        default=None, metadata={"help": "bitext pairs a worker and batch at most (paper: 4096 over 64 workers)"}
    )
    updates_per_epoch: Optional[int] = field(
        default=None, metadata={"help": "updates of an epoch (default: those that the larger kind of data needs for one pass)"}
    )
    no_tlm: bool = field(default=False, metadata={"help": "leave TLM out on bitext (paper: it is in)"})
    seed: int = II("common.seed")
    update_freq: Any = II("optimization.update_freq")
    max_update: int = II("optimization.max_update")
    save_dir: str = II("checkpoint.save_dir")
    fp16: bool = II("common.fp16")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")


def check_options(cfg) -> None:
    """Raise UserError for an option that cannot be right, whatever the data."""
    for name in ("mono_mask_prob", "bitext_mask_prob"):
        if not 0 < getattr(cfg, name) <= 1:
            raise UserError(f"--{name.replace('_', '-')} {getattr(cfg, name)}: must be above 0 and at most 1")
    most = min(cfg.bitext_mask_prob, 1 - cfg.bitext_mask_prob)
    if not 0 <= cfg.bitext_mask_spread <= most:
        raise UserError(
            f"--bitext-mask-spread {cfg.bitext_mask_spread}: must be from 0 to {most:g}, so that --bitext-mask-prob "
            f"{cfg.bitext_mask_prob} and it stay between 0 and 1"
        )
    for name in ("mono_max_length", "bitext_max_length"):
        if getattr(cfg, name) < 4:
            raise UserError(
                f"--{name.replace('_', '-')} {getattr(cfg, name)}: must be 4 at least, <s> and </s> included"
            )
    for name in ("mono_batch_size", "bitext_batch_size", "updates_per_epoch"):
        if getattr(cfg, name) is not None and getattr(cfg, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} {getattr(cfg, name)}: must be 1 at least")
    paths = utils.split_paths(cfg.data or "")
    if not paths:
        raise UserError("the first argument, the data root, is missing")
    for path in paths:
        if not Path(path).is_dir():
            raise UserError(f"{path}: no such folder: the first argument is the data root (or several, joined with ':')")
