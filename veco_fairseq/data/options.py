# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The options for training on a data root. Nothing here needs PyTorch."""

from dataclasses import dataclass, field, fields
from typing import Optional, get_args

from veco_fairseq.arguments import Parser
from veco_fairseq.options.flags import flag


@dataclass
class DataOptions:
    """The options for training on a data root; lengths are in tokens, with ``<s>`` and ``</s>``."""

    data: Optional[str] = field(
        default=None, metadata={"help": "data root (dict.txt, mono/, bitext/); join several with ':' to use them as shards"}
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
    bitext_alpha: float = field(default=0.5, metadata={"help": "the same for language pairs (paper: silent)"})
    mono_mask_prob: float = field(default=0.15, metadata={"help": "share of monolingual tokens to predict (paper: 0.15)"})
    bitext_mask_prob: float = field(default=0.25, metadata={"help": "share of bitext tokens to predict (paper: 0.25)"})
    bitext_mask_spread: float = field(
        default=0.0,
        metadata={"help": "mask up to this much more of one side of each bitext pair, and as much less of the other side, "
                  "so that the model translates the fuller side (paper: 0)"},
    )  # fmt: skip
    mono_max_length: int = field(default=512, metadata={"help": "longest monolingual segment, in tokens (paper: 512)"})
    bitext_max_length: int = field(
        default=128,
        metadata={"help": "longest side of a bitext pair, in tokens; longer pairs are dropped (paper: 128)"},
    )
    mono_batch_size: Optional[int] = field(
        default=None, metadata={"help": "most monolingual pairs in a batch of one worker (paper: 1024 over 64 workers)"}
    )
    bitext_batch_size: Optional[int] = field(
        default=None, metadata={"help": "most bitext pairs in a batch of one worker (paper: 4096 over 64 workers)"}
    )
    updates_per_epoch: Optional[int] = field(
        default=None, metadata={"help": "updates in an epoch (default: enough for one pass over the larger kind of data)"}
    )
    no_tlm: bool = field(default=False, metadata={"help": "leave out TLM on bitext (paper: TLM is used)"})


def add_data_options(parser: Parser) -> None:
    """Add the options of :class:`DataOptions` as fairseq-train has them; the data root is a positional argument."""
    group = parser.add_argument_group("options of the task")
    for option in fields(DataOptions):
        kind = next(iter(get_args(option.type)), option.type)
        name = option.name if option.name == "data" else flag(option.name)
        value = {"action": "store_true"} if kind is bool else {"type": kind, "default": option.default}
        group.add_argument(name, help=option.metadata["help"], **value)
