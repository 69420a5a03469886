# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Where the pairs of a data root come from: languages and pairs by name, and how those of one kind become a batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq.data import Dictionary

from veco_fairseq.data import roots
from veco_fairseq.data.masking import Masker
from veco_fairseq.data.pairs import AdjacentSegments, BitextPairs
from veco_fairseq.data.plan import KINDS
from veco_fairseq.errors import UserError


class Stream(NamedTuple):
    """How the pairs of one kind become a batch.

    Attributes:
        sources: see :mod:`veco_fairseq.data.pairs`.
        masker: of this kind.
        tlm: also concatenate the pairs for TLM.
        mask_spread: how far the share of x to predict may lie from the masker's; that of y lies as far on the other
            side of it.
    """

    sources: Sequence
    masker: Masker
    tlm: bool
    mask_spread: float = 0.0


def find_sources(root: Path, split: str, options) -> dict[str, dict[str, Any]]:
    """The token files of the languages and pairs to train on, by kind and name; nothing is read.

    Args:
        options: the task's (:class:`veco_fairseq.tasks.camlm_options.CamlmTaskConfig`).

    Raises:
        UserError: a language or pair asked for is not there, or there is no data at all.
    """
    mono, bitext = roots.find_languages(root, split), roots.find_pairs(root, split)
    found = {
        "mono": {name: mono[name] for name in roots.choose(mono, options.mono_langs, "--mono-langs", root / "mono")},
        "bitext": {name: bitext[name] for name in roots.choose(bitext, options.bitext_pairs, "--bitext-pairs", root / "bitext")},
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
    """The streams of a root that have this split.

    Args:
        options: the task's (:class:`veco_fairseq.tasks.camlm_options.CamlmTaskConfig`).
        dictionary: with ``<mask>``.
        masker: the objective's, called with the dictionary, the id of ``<mask>``, and the share to predict.

    Raises:
        UserError: as :func:`find_sources`; or a file is damaged.
    """
    found = find_sources(root, split, options)
    sources = {
        "mono": [
            AdjacentSegments(name, roots.load_tokens(prefix, dictionary), options.mono_max_length)
            for name, prefix in found["mono"].items()
        ],
        "bitext": [
            BitextPairs(name, *(roots.load_tokens(prefix, dictionary) for prefix in prefixes), options.bitext_max_length)
            for name, prefixes in found["bitext"].items()
        ],
    }
    mask = dictionary.index(roots.MASK)
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
