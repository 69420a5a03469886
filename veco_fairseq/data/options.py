# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The options that say what becomes of a data root. Nothing here needs PyTorch."""

from dataclasses import dataclass, field, fields
from typing import Optional, get_args

from veco_fairseq.arguments import Parser


@dataclass
class DataOptions:
    """What of a data root is trained on, and how; lengths are in tokens, ``<s>`` and ``</s>`` included."""

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
    mono_mask_prob: float = field(default=0.15, metadata={"help": "share of monolingual tokens to predict (paper: 0.15)"})
    bitext_mask_prob: float = field(default=0.25, metadata={"help": "share of bitext tokens to predict (paper: 0.25)"})
    bitext_mask_spread: float = field(
        default=0.0,
        metadata={"help": "of every bitext pair predict a share of x that is up to this much larger or smaller, and a "
                  "share of y that is as much smaller or larger: the fuller side is then translated (paper: 0)"},
    )  # fmt: skip
    mono_max_length: int = field(default=512, metadata={"help": "tokens of a monolingual segment at most (paper: 512)"})
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


def add_data_options(parser: Parser) -> None:
    """The options of :class:`DataOptions`, as fairseq-train has them; the data root is a positional argument."""
    group = parser.add_argument_group("options of the task")
    for option in fields(DataOptions):
        kind = next(iter(get_args(option.type)), option.type)
        name = option.name if option.name == "data" else f"--{option.name.replace('_', '-')}"
        value = {"action": "store_true"} if kind is bool else {"type": kind, "default": option.default}
        group.add_argument(name, help=option.metadata["help"], **value)
