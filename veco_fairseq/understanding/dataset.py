# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Batches of examples, with or without their translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from veco_fairseq.errors import UserError
from veco_fairseq.understanding.examples import Example, Question, SentencePair, has_gold
from veco_fairseq.understanding.windows import IGNORE, Notes, Window


@dataclass(slots=True)
class Side:
    """An example in one language.

    Attributes:
        lang: its language.
        example: as in its file, in training without its text.
        windows: the sequences that the model reads.
        only_seen: training has nothing to predict here, but the example's translations look at it.
    """

    lang: str
    example: Example
    windows: list[Window]
    only_seen: bool = False

    def has_nothing_to_learn(self, no_answer: bool) -> bool:
        """Return whether training has nothing to predict here; with ``no_answer``, that a question has none is something."""
        if isinstance(self.example, Question):
            # An answer that is missing in the context does not mean that the question has no answer.
            answered = any((window.target > 0).any() for window in self.windows)
            return not (answered or (no_answer and not self.example.answers))
        return not has_gold(self.example)


@dataclass(slots=True)
class Item:
    """An example and the translation that its cross-attention looks at, which are always in one batch.

    Attributes:
        x: the example to predict.
        y: its translation, or None.
        both: also predict y, from x, as in training.
    """

    x: Side
    y: Side | None = None
    both: bool = False


def paired(xs: Sequence[Side], ys: Sequence[Side], both: bool, notes: Notes) -> list[Item]:
    """Return each x with the y of the same id, or alone if there is none.

    Args:
        both: the first x of each y predicts it, too, unless the y is :attr:`Side.only_seen`.

    Raises:
        UserError: two of the ys have one id, or two sentence pairs with the same id have different labels.
    """
    by_id: dict[str, Side] = {}
    for side in ys:
        if side.example.id and by_id.setdefault(side.example.id, side) is not side:
            before = by_id[side.example.id].example.where
            twice = f"the id {side.example.id} is there twice, first at {before}"
            raise UserError(f"{side.example.where}: {twice}: an example has one translation: leave one of them out")
    items = []
    to_predict = {id(side) for side in ys if both and not side.only_seen}
    for x in xs:
        y = by_id.get(x.example.id)
        if y is None:
            notes.add("without translation", x.example.where)
        elif (
            isinstance(x.example, SentencePair)
            and isinstance(y.example, SentencePair)
            and len({x.example.label, y.example.label} - {None}) > 1
        ):
            raise UserError(
                f"{x.example.where}: is labelled {x.example.label}, and its translation ({y.example.where}) "
                f"{y.example.label}: the files must have the same rows, or ids in a column of that name"
            )
        items.append(Item(x, y, id(y) in to_predict))
        to_predict.discard(id(y))
    return items


def by_window(item: Item) -> list[Item]:
    """Return an item for each window of x, with the window of y at the same number, and items for y's other windows.

    So each window is predicted once: where several of x have the same window of y, the first of them alone predicts it, too.
    """
    xs, ys = ([Side(side.lang, side.example, [window]) for window in side.windows] if side else []
              for side in (item.x, item.y))  # fmt: skip
    if not ys:
        return [Item(x) for x in xs]
    with_x = [row * len(ys) // len(xs) for row in range(len(xs))]
    items = [Item(x, ys[place], item.both and with_x.index(place) == row) for row, (x, place) in enumerate(zip(xs, with_x))]
    left = set(range(len(ys))) - set(with_x)
    return items + [Item(ys[place], xs[place * len(xs) // len(ys)]) for place in sorted(left) if item.both]


class UnderstandingDataset(FairseqDataset):
    """Items of one split, in all its languages.

    A batch has the rows (windows) of all its examples. ``partner`` has for each row the row that its cross-attention
    attends to, or -1 where it is plugged out.

    Args:
        items: the examples.
        nlu_task: classification, tagging or span.
        pad: the id of padding.
        seed: in training, of the order of items with equal lengths; without it, items keep the order of the files, and
            batches know their examples.
    """

    def __init__(self, items: list[Item], nlu_task: str, pad: int, seed: int | None = None):
        self.items = items
        self.nlu_task = nlu_task
        self.pad = pad
        self.seed = seed
        lengths = [[len(window.tokens) for side in (item.x, item.y) if side for window in side.windows] for item in items]
        # Of the longest window, which the model must have positions for.
        self.sizes = np.array([max(of_item) for of_item in lengths])
        self.tokens = np.array([len(of_item) * max(of_item) for of_item in lengths])  # with padding
        self.max_tokens: int | None = None

    def __getitem__(self, index: int) -> Item:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def num_tokens(self, index: int) -> int:
        return int(self.tokens[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        return np.minimum(self.tokens[indices], self.max_tokens or self.tokens.max())

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """Make batches by size; an item with more tokens than ``max_tokens``, from a long context, gets its own batch.

        fairseq takes the tokens of a batch for those of its largest item times its items. They are more where one long window
        is beside items of several short ones, such as pairs of translations. Such a batch is cut in two.
        """
        self.max_tokens = max_tokens
        batches = super().batch_by_size(indices, max_tokens, max_sentences, required_batch_size_multiple)
        return [part for batch in batches for part in self._within(batch)]

    def _within(self, batch: np.ndarray) -> list[np.ndarray]:
        """Return a batch, or parts of it that have at most :attr:`max_tokens` with padding."""
        longest = self.sizes[batch]
        rows = self.tokens[batch] // longest
        if self.max_tokens is None or len(batch) == 1 or rows.sum() * longest.max() <= self.max_tokens:
            return [batch]
        half = len(batch) // 2
        return [*self._within(batch[:half]), *self._within(batch[half:])]

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        """Sort by length, so that batches have little padding; in training items of equal length are shuffled.

        The order is the same in every epoch, so a resumed epoch has the same batches; only the batches' order changes.
        """
        order = np.arange(len(self)) if self.seed is None else np.random.default_rng(self.seed).permutation(len(self))
        return order[np.argsort(self.tokens[order], kind="stable")]

    def collater(self, items: list[Item]) -> dict[str, Any]:
        """Make a batch.

        Returns:
            ``net_input``: ``tokens``, (rows, length); ``partner``, (rows); for tags ``words``, (rows, length), the number
            in the batch of each token's word, or -1. ``target``: (rows), (words) or (rows, 2), :data:`IGNORE` where
            nothing is predicted. ``rows``, except in training: each predicted example's side and its rows in the batch.
            ``id``, ``ntokens`` and ``nsentences`` as in all of fairseq. The batch is empty without items, as one of
            several workers' last batch can be.
        """
        if not items:
            return {}
        windows: list[Window] = []
        partner: list[int] = []
        predicted: list[bool] = []
        rows: list[Any] = []
        for item in items:
            first = len(windows)
            windows += item.x.windows
            here, there = len(item.x.windows), len(item.y.windows) if item.y else 0
            rows.append((item.x, range(first, first + here)))
            predicted += [True] * here + [item.both] * there
            partner += [first + here + row * there // here if there else -1 for row in range(here)]
            if item.y:
                windows += item.y.windows
                partner += [first + row * here // there if item.both else -1 for row in range(there)]
                if item.both:
                    rows.append((item.y, range(first + here, first + here + there)))
        tokens = self._padded([window.tokens for window in windows], self.pad)
        net_input = {"tokens": tokens, "partner": torch.tensor(partner)}
        targets = [window.target if wanted else np.full_like(window.target, IGNORE)
                   for window, wanted in zip(windows, predicted)]  # fmt: skip
        if self.nlu_task == "tagging":
            net_input["words"] = self._words(windows)
        target = torch.from_numpy(np.stack(targets) if self.nlu_task == "span" else np.concatenate(targets))
        return {
            "id": torch.arange(len(items)),
            "net_input": net_input,
            "target": target,
            "ntokens": int(tokens.ne(self.pad).sum()),
            "nsentences": len(rows),
            **({"rows": rows} if self.seed is None else {}),
        }

    def _words(self, windows: list[Window]) -> Tensor:
        """Return each window's words, numbered through the batch."""
        numbered, count = [], 0
        for window in windows:
            assert window.words is not None  # these are of tags
            numbered.append(np.where(window.words >= 0, window.words + count, -1))
            count += len(window.target)
        return self._padded(numbered, -1)

    @staticmethod
    def _padded(rows: list[np.ndarray], value: int) -> Tensor:
        return collate_tokens([torch.from_numpy(row).long() for row in rows], value)
