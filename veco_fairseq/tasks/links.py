# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--print-alignment`` of models with tokens of languages, which fairseq takes for words."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairseq import utils
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor

Links = list[tuple[int, int]]  # (token of the source, token of the translation), from 0


def link_words_alone(generator: Any, of_source: Sequence[int], of_target: Sequence[int] = (), *, before: int = 0) -> None:
    """Let a search, or the scorer of ``--score-reference``, link words with words alone.

    Args:
        generator: of fairseq; without hard links it is left as it is.
        of_source, of_target: the ids that are no words.
        before: how many of these stand before a source; they are counted, as the line ``S-`` has them.
    """
    link = partial(_links, (of_source, of_target), before)
    if isinstance(generator, SequenceScorer):
        if generator.compute_alignment:
            generator.compute_alignment = False  # it would ask nobody which tokens are words
            generator.generate = _scored(generator, link)
    elif getattr(generator, "extract_alignment", None) is utils.extract_hard_alignment:
        generator.extract_alignment = link


def _links(no_words: tuple[Sequence[int], Sequence[int]], before: int, weights: Tensor, *sentences_and_specials) -> Links:
    *sentences, pad, eos = sentences_and_specials
    for side, tokens in enumerate(no_words):
        for token in tokens:
            sentences[side] = sentences[side].masked_fill(sentences[side].eq(token), eos)
    return [(x + before, y) for x, y in utils.extract_hard_alignment(weights, *sentences, pad, eos)]


def _scored(scorer: SequenceScorer, link: Callable) -> Callable:
    """Make a ``generate`` of a scorer that links the words of references."""
    generate = scorer.generate

    def generate_and_link(models: Any, batch: dict[str, Any], **options) -> list[list[dict[str, Any]]]:
        found = generate(models, batch, **options)
        for (one,), source, target in zip(found, batch["net_input"]["src_tokens"], batch["target"]):
            if one["attention"] is not None:
                one["alignment"] = link(one["attention"], source, target, scorer.pad, scorer.eos)
        return found

    return generate_and_link
