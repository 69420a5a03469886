# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Aligns the words of sentences with those of their translations."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from veco_fairseq.alignment.transport import mutual, sinkhorn
from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import split_words
from veco_fairseq.inference.batches import by_length
from veco_fairseq.inference.pretrained import PretrainedModel, require_layers
from veco_fairseq.inference.states import layer_states

Links = list[tuple[int, int]]  # (word of x, word of y), from 0
SMALLEST = 1e-6  # of a similarity, whose logarithm is the cost


class Sentence(NamedTuple):
    """A sentence's pieces: their ids, without ``<s>`` and ``</s>``, and the number of each one's word."""

    ids: list[int]
    words: list[int]


def usual_layer(pretrained: PretrainedModel) -> int:
    """Return the layer of XLM-E's alignments, 9 of 12 (section 4.6), or the middle one if the depth is another."""
    return 9 if pretrained.depth == 12 else (pretrained.depth + 1) // 2


@torch.inference_mode()
def align(
    pretrained: PretrainedModel, source: Sequence[str], target: Sequence[str], *, layer: int, apart: bool = False,
    regularisation: float = 1.0, iterations: int = 2, max_tokens: int = 8192, names: tuple[str, str] = ("x", "y"),
) -> list[Links]:  # fmt: skip
    """Return the links between the words of each source line and those of its target line.

    Pieces i and j with states h_i and h_j have the cost -log max(1e-6, h_i . h_j), and the pieces of each side share a
    mass of 1. Pieces i and j are linked if most of i's mass goes to j, and most of j's mass comes from i. Words are linked
    if any of their pieces are. A single piece gives all pieces of the other side the same mass, so it is linked to the
    one at the least cost.

    XLM-E (section 4.6) gives only the method and the layer. Everything else is as in the released aligner of XLM-Align:
    both sentences in one sequence, inner products, a regularisation of 1, 2 iterations, and only links that both
    directions have. Four things differ. The sequence is that of TLM, with two ``</s>`` between the sentences, as in
    training. Rows are scaled before columns. Each side, not each piece, has a mass of 1, since both sides must have the
    same; the plan is the released aligner's times a constant. And 1e-6 stands for what is not above it: the released code
    fills it into a copy, and goes on with negative products, which have no logarithm.

    Args:
        pretrained: on the device to compute on.
        source, target: equally many lines, with spaces between words.
        layer: 0 for the embeddings, n for the states after the n-th layer.
        apart: encode each sentence alone, so that x does not see y.
        regularisation, iterations: as in :func:`sinkhorn`.
        max_tokens: of a batch, with padding.
        names: of the texts, for the messages.

    Raises:
        UserError: a line has no words, or is longer than the model has positions, or there is no such layer.
    """
    require_layers(pretrained, [layer], "--layer")
    sides = [_sentences(pretrained, lines, name) for lines, name in zip((source, target), names)]
    pairs = list(zip(*sides, strict=True))
    _check_lengths(pretrained, pairs, apart, names)
    found: list[Links] = [[] for _ in pairs]
    with tqdm(total=len(pairs), unit=" pairs", disable=None, leave=False) as progress:
        for batch in by_length([len(x.ids) + len(y.ids) + 4 for x, y in pairs], max_tokens):
            here = [pairs[number] for number in batch]
            (x, x_mass), (y, y_mass) = map(_with_mass, _states(pretrained, here, layer, apart))
            cost = -(x @ y.transpose(1, 2)).clamp(min=SMALLEST).log()
            plan = sinkhorn(cost, x_mass, y_mass, regularisation=regularisation, iterations=iterations)
            single = (x_mass.gt(0).sum(1) == 1) | (y_mass.gt(0).sum(1) == 1)  # whose plan differs by rounding alone
            plan = plan.where(~single[:, None, None] | plan.isneginf(), -cost)
            for place, i, j in zip(*(numbers.tolist() for numbers in mutual(plan))):
                of_x, of_y = here[place]
                found[batch[place]].append((of_x.words[i], of_y.words[j]))
            progress.update(len(batch))
    return [sorted(set(links)) for links in found]


def _sentences(pretrained: PretrainedModel, lines: Sequence[str], name: str) -> list[Sentence]:
    require_list(lines, name)
    texts = [split_words(line) for line in lines]
    for number, words in enumerate(texts, start=1):
        if not words:
            raise UserError(f"{name}, line {number}: is empty: leave the pair out of both files (and of the gold file)")
    firsts = dict.fromkeys((words[0], True) for words in texts)
    vocabulary = [*firsts, *dict.fromkeys((word, False) for words in texts for word in words[1:])]
    found = pretrained.encoder.words([word for word, _ in vocabulary], first=len(firsts))
    pieces = dict(zip(vocabulary, map(np.ndarray.tolist, found)))
    sentences = ([pieces[word, number == 0] for number, word in enumerate(words)] for words in texts)
    return [
        Sentence(list(chain(*of_words)), [number for number, ids in enumerate(of_words) for _ in ids]) for of_words in sentences
    ]


def _check_lengths(
    pretrained: PretrainedModel, pairs: Sequence[tuple[Sentence, Sentence]], apart: bool, names: tuple[str, str]
) -> None:
    longest = pretrained.model.encoder.max_positions()
    for number, (x, y) in enumerate(pairs, start=1):
        lengths = [len(x.ids) + 2, len(y.ids) + 2]
        if not apart and sum(lengths) > longest:
            raise UserError(
                f"{names[0]}, line {number}: has {sum(lengths):,} tokens with its translation, but the model has "
                f"{longest:,} positions: shorten it, leave it out, or encode the sentences --apart"
            )
        for length, name in zip(lengths, names):
            if length > longest:
                raise UserError(
                    f"{name}, line {number}: has {length:,} tokens, but the model has {longest:,} positions: shorten it, "
                    "or leave it out"
                )


def _states(
    pretrained: PretrainedModel, pairs: Sequence[tuple[Sentence, Sentence]], layer: int, apart: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the states of each x's pieces and of each y's, (pieces, dim) each, fp64."""
    bos, eos = pretrained.dictionary.bos(), pretrained.dictionary.eos()
    xs, ys = zip(*pairs)

    def states(rows: list[list[int]]) -> Tensor:
        return layer_states(pretrained.model, pretrained.batch(rows))[layer].double()

    if apart:
        of_x, of_y = (states([[bos, *sentence.ids, eos] for sentence in side]) for side in (xs, ys))
        starts = [1] * len(ys)
    else:
        of_x = of_y = states([[bos, *x.ids, eos, eos, *y.ids, eos] for x, y in pairs])
        starts = [len(x.ids) + 3 for x in xs]
    return (
        [row[1 : 1 + len(x.ids)] for row, x in zip(of_x, xs)],
        [row[start : start + len(y.ids)] for row, start, y in zip(of_y, starts, ys)],
    )


def _with_mass(states: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return sentences' states as a batch, (batch, length, dim), and their shares of a mass of 1, (batch, length)."""
    masses = [pieces.new_full((len(pieces),), 1 / len(pieces)) for pieces in states]
    return pad_sequence(states, batch_first=True), pad_sequence(masses, batch_first=True)


def pharaoh(found: Sequence[Links]) -> str:
    """Return a line of ``i-j`` for each sentence, with words numbered from 0."""
    return "".join(" ".join(f"{i}-{j}" for i, j in links) + "\n" for links in found)
