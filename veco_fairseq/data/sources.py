# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The sources of a data root's pairs: languages and pairs by name, and how the pairs of a kind become a batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq.data import Dictionary

from veco_fairseq.data import roots
from veco_fairseq.data.masking import Masker
from veco_fairseq.data.pairs import AdjacentSegments, BitextPairs
from veco_fairseq.data.plan import KINDS
from veco_fairseq.data.sentencepiece import DICT_NAME, MASK
from veco_fairseq.data.tokens import load_tokens
from veco_fairseq.errors import UserError


class Stream(NamedTuple):
    """How the pairs of one kind become a batch.

    Attributes:
        sources: see :mod:`veco_fairseq.data.pairs`.
        masker: masks the pairs of this kind.
        tlm: whether the pairs are also concatenated for TLM.
        mask_spread: how far the share of x to predict may differ from the masker's; y's share differs as far in the
            other direction.
    """

    sources: Sequence
    masker: Masker
    tlm: bool
    mask_spread: float = 0.0


def find_sources(root: Path, split: str, options) -> dict[str, dict[str, Any]]:
    """Find the token files of the languages and pairs to train on, by kind and name, without reading them.

    Args:
        options: the task's (:class:`veco_fairseq.tasks.camlm_options.CamlmTaskConfig`).

    Raises:
        UserError: a language or pair in the options is not there, or there is no data at all.
    """
    mono, bitext = roots.find_languages(root, split), roots.find_pairs(root, split)
    found = {
        "mono": roots.choose(mono, options.mono_langs, "--mono-langs", root / "mono"),
        "bitext": roots.choose(bitext, options.bitext_pairs, "--bitext-pairs", root / "bitext"),
    }
    if not any(found.values()):
        raise UserError(
            f"{root}: no {split} data: neither mono/<lang>/{split}.bin nor "
            f"bitext/<src>-<tgt>/{split}.<src>-<tgt>.<lang>.bin is there"
        )
    return found


def load_streams(
    root: Path, split: str, options, dictionary: Dictionary, *, masker: Callable[..., Masker] = Masker
) -> dict[str, Stream]:
    """Load the streams of a root that have this split.

    Args:
        options: the task's (:class:`veco_fairseq.tasks.camlm_options.CamlmTaskConfig`).
        dictionary: with ``<mask>``.
        masker: makes the objective's masker from the dictionary, the id of ``<mask>``, and the share to predict.

    Raises:
        UserError: as in :func:`find_sources`; or a file is damaged, or ``<mask>`` is not the dictionary's last token.
    """
    mask = dictionary.index(MASK)
    if mask != len(dictionary) - 1:  # tokens are drawn from those between the special ones and the mask
        raise UserError(
            f"{root}: its {DICT_NAME} has {MASK} as token {mask} of {len(dictionary):,}, but it must be the last: take "
            "the line away, and make the token files again"
        )
    found = find_sources(root, split, options)
    sources: dict[str, Sequence] = {
        "mono": [
            AdjacentSegments(name, load_tokens(prefix, dictionary), options.mono_max_length)
            for name, prefix in found["mono"].items()
        ],
        "bitext": [
            BitextPairs(name, load_tokens(source, dictionary), load_tokens(target, dictionary), options.bitext_max_length)
            for name, (source, target) in found["bitext"].items()
        ],
    }
    return {
        kind: Stream(
            sources[kind],
            masker(dictionary, mask, getattr(options, f"{kind}_mask_prob")),
            tlm=kind == "bitext" and not options.no_tlm,
            mask_spread=options.bitext_mask_spread if kind == "bitext" else 0.0,
        )
        for kind in KINDS
        if sources[kind]
    }
