# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which file has an example's translation, rows of a batch with several windows, and what they are predicted to be."""

from pathlib import Path

import numpy as np
import pytest
import torch

from veco_fairseq.errors import UserError
from veco_fairseq.understanding.dataset import Item, Side, UnderstandingDataset, paired
from veco_fairseq.understanding.examples import Question, SentencePair, TaggedSentence
from veco_fairseq.understanding.partners import Pairing
from veco_fairseq.understanding.predictions import Prediction, predictions, sums_by_language
from veco_fairseq.understanding.windows import IGNORE, Notes, Window


def side(lang, name, label="0", only_seen=False):
    window = Window(np.array([0, 5, 2]), np.array([int(label)]))
    return Side(lang, SentencePair(name, f"{lang}, {name}", "a", "b", label), [window], only_seen)


def pairing(pivot="en", **rows):
    """Of languages with the ids of their rows; those in capitals are not learnt."""
    notes = {lang: Notes() for lang in rows}
    made = {lang: [side(lang, name.lower(), only_seen=name.isupper()) for name in names] for lang, names in rows.items()}
    return Pairing({lang: Path(lang) for lang in rows}, pivot, made.get, notes), notes


def test_a_language_none_of_whose_examples_are_learnt_has_none():
    found, notes = pairing(de=["A", "B"], en=["1", "2"])
    assert list(found.items(["de"], training=False)) == [[]] and not notes["de"].counts


def ids(items):
    return [
        (f"{item.x.lang} {item.x.example.id}", f"{item.y.lang} {item.y.example.id}" if item.y else None, item.both)
        for item in items
    ]


def test_the_partner_is_the_pivot_or_its_first_other_language():
    three, _ = pairing(fr=["1"], en=["1"], de=["1"])
    assert [three.partner(lang) for lang in ("fr", "de", "en")] == ["en", "en", "de"]
    without, _ = pairing("zz", fr=["1"], de=["1"])
    assert [without.partner(lang) for lang in ("fr", "zz")] == [None, "de"]
    assert pairing("en", en=["1"])[0].partner("en") is None


def test_in_training_both_sides_are_predicted_and_no_example_twice():
    found, notes = pairing(de=["a", "b"], en=["a", "c"], fr=["c"])
    asked = [ids(items) for items in found.items(["en", "de"], training=True)]
    assert asked == [[("de a", "en a", True), ("de b", None, False)], [("en c", None, False)]]
    assert notes["de"].counts == notes["en"].counts == {"without translation": 1}
    # without German the pivot's first translations are German all the same
    asked = [ids(items) for items in found.items(["en", "fr"], training=True)]
    assert asked == [[("fr c", "en c", True)], [("en a", "de a", False)]]
    # all of one language, or at test time: each example once, which looks at its translation
    assert [ids(items) for items in found.items(["de"], training=True)] == [[("de a", "en a", False), ("de b", None, False)]]
    asked = [ids(items) for items in found.items(["de", "en"], training=False)]
    assert asked == [[("de a", "en a", False), ("de b", None, False)], [("en a", "de a", False), ("en c", None, False)]]


def test_what_is_not_learnt_is_looked_at_all_the_same():
    """... as where its language is not chosen; and what several look at is predicted once."""
    found, notes = pairing(de=["a", "B", "c"], en=["A", "b", "c"], fr=["A", "c", "c"])
    pairs = [[("de a", "en a", False), ("de c", "en c", True)], [("en b", "de b", False)]]
    assert [ids(items) for items in found.items(["de", "en"], training=True)] == pairs
    pairs = [[("fr c", "en c", True), ("fr c", "en c", False)], [("en b", "de b", False)]]
    assert [ids(items) for items in found.items(["en", "fr"], training=True)] == pairs
    assert not notes["de"].counts and not notes["en"].counts and not notes["fr"].counts


def test_a_language_without_a_partner_is_told():
    found, notes = pairing("en", de=["a"], fr=["a"])
    assert ids(*found.items(["de"], training=True)) == [("de a", None, False)]
    assert notes["de"].lines() == ["1 without translation, since there is no file of en (--pivot-lang) (first: de, a)"]
    found, notes = pairing("en", en=["a", "b"])
    assert [ids(items) for items in found.items(["en"], training=False)] == [[("en a", None, False), ("en b", None, False)]]
    assert notes["en"].lines() == ["2 without translation, since there is no file of another language (first: en, a)"]


@pytest.mark.parametrize("de, en, together", [
    (["row 1", "row 2"], ["row 1", "ROW 2"], True), (["row 1", "row 2"], ["row 1"], False), (["row 1"], ["a", "b"], False),
    (["a", "b"], ["row 1"], False), (["a", "b"], ["a"], True), (["B", "row 2"], ["row 2"], False),
])  # fmt: skip
def test_rows_without_ids_are_translations_only_of_as_many(de, en, together):
    """Counted with rows that are not learnt."""
    found, notes = pairing(de=de, en=en)
    items = next(found.items(["de"], training=True))
    assert any(item.y for item in items) == together
    told = f"1 file of {len(de)} rows for {len(en)} rows in en: without ids no translations (first: de, {items[0].x.example.id})"
    assert (told in notes["de"].lines()) == (not together)


def test_an_empty_id_or_label_is_no_other_one():
    notes = Notes()
    (item,) = paired([side("de", "")], [side("en", ""), side("en", "")], True, notes)
    assert item.y is None and not item.both and notes.counts == {"without translation": 1}
    unlabelled = Side("en", SentencePair("1", "en, 1", "a", "b", None), [])
    (item,) = paired([side("de", "1")], [unlabelled], True, notes)
    assert item.y is unlabelled and item.both
    with pytest.raises(UserError, match="en, 1: the id 1 is there twice, first at en, 1"):
        paired([], [unlabelled, side("en", "1")], True, notes)


# Batches with several windows an example


def tagged(lang, *windows, tags=()):
    """A sentence in windows of words with so many tokens each, and the numbers of its tags."""
    made, place = [], 0
    for lengths in windows:
        words = [number for number, length in enumerate(lengths) for _ in range(length)]
        made.append(Window(np.full(len(words) + 2, 7), np.arange(place, place + len(lengths)), words=np.array([-1, *words, -1])))
        place += len(lengths)
    return Side(lang, TaggedSentence("1", f"{lang}, line 1", tuple("abcdefg"[:place]), tags), made)


@pytest.mark.parametrize("both, partner", [(True, [3, 3, 4, 0, 1]), (False, [3, 3, 4, -1, -1])])
def test_windows_look_at_the_windows_at_the_same_part(both, partner):
    """Three beside two: of the six sixths, the first window's begin with 0, the second's with 2, the third's with 4."""
    x, y = tagged("de", [2, 1], [1], [3, 1]), tagged("en", [1], [1, 2])
    alone = tagged("fr", [1, 1])
    dataset = UnderstandingDataset([Item(x, y, both), Item(alone)], "tagging", pad=1)
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["partner"].tolist() == [*partner, -1]
    assert [(side.lang, list(rows)) for side, rows in batch["rows"]] == [
        ("de", [0, 1, 2]), *([("en", [3, 4])] if both else []), ("fr", [5]),
    ]  # fmt: skip
    assert batch["net_input"]["words"].tolist() == [
        [-1, 0, 0, 1, -1, -1], [-1, 2, -1, -1, -1, -1], [-1, 3, 3, 3, 4, -1], [-1, 5, -1, -1, -1, -1], [-1, 6, 7, 7, -1, -1],
        [-1, 8, 9, -1, -1, -1],
    ]  # fmt: skip
    turned = UnderstandingDataset([Item(y, x, both)], "tagging", pad=1)  # two beside three
    assert turned.collater([turned[0]])["net_input"]["partner"].tolist() == [2, 3, *([0, 0, 1] if both else [-1] * 3)]
    of_y = [0, 1, 2] if both else [IGNORE] * 3
    assert batch["target"].tolist() == [0, 1, 2, 3, 4, *of_y, 0, 1]
    assert (batch["ntokens"], batch["nsentences"]) == (5 + 3 + 6 + 3 + 5 + 4, 3 if both else 2)
    assert dataset.tokens.tolist() == [5 * 6, 4] and dataset.sizes.tolist() == [6, 4]
    named = "ABCDEFGHIJ"
    logits = torch.nn.functional.one_hot(torch.arange(10), 10)
    found = [(one.side.lang, "".join(one.value)) for one in predictions(batch, logits, nlu_task="tagging", labels=named)]
    assert found == [("de", "ABCDE"), *([("en", "FGH")] if both else []), ("fr", "IJ")]


def test_answers_of_a_batch_are_of_their_own_windows():
    def question(name, *windows):
        made = []
        for first in windows:  # each has <s>, two words and </s>
            offsets = np.array([(-1, -1), (first, first + 1), (first + 1, first + 2), (-1, -1)])
            made.append(Window(np.arange(4), np.zeros(2, dtype=np.int64), offsets=offsets))
        return Side("en", Question(name, "f", "?", "abcdefgh", ()), made)

    dataset = UnderstandingDataset([Item(question("1", 0, 2)), Item(question("2", 4, 6)), Item(question("3", 1))], "span", pad=1)
    batch = dataset.collater([dataset[number] for number in range(3)])
    logits = torch.zeros(5, 4, 2)
    for row, place, value in ((0, 1, 3), (1, 1, 2), (2, 2, 1), (3, 2, 4), (4, 1, 9)):
        logits[row, place] = value
    found = [one.value for one in predictions(batch, logits, nlu_task="span", labels=())]
    assert found == ["a", "h", "b"]
    logits[4, 0] = 10  # "no answer" is likelier, but is not asked for unless told so
    assert [one.value for one in predictions(batch, logits, nlu_task="span", labels=())][2] == "b"
    assert [one.value for one in predictions(batch, logits, nlu_task="span", labels=(), no_answer=True)][2] == ""
    logits[:] = 0
    logits[0, 2, 0] = logits[0, 2, 1] = 1  # the first and the last word of a window can be the answer
    assert next(predictions(batch, logits, nlu_task="span", labels=())).value == "b"


def test_labels_of_a_batch_are_of_their_first_window():
    dataset = UnderstandingDataset([Item(side("de", "1"), side("en", "1")), Item(side("fr", "2"))], "classification", pad=1)
    batch = dataset.collater([dataset[0], dataset[1]])
    logits = torch.tensor([[0.0, 1.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    found = [(one.side.lang, one.value) for one in predictions(batch, logits, nlu_task="classification", labels=["x", "y", "z"])]
    assert found == [("de", "y"), ("fr", "z")]


def test_examples_without_a_gold_label_do_not_count():
    def tags(*gold):
        return Side("de", TaggedSentence("1", "f", ("a", "b"), gold), [])

    found = [Prediction(tags("X", "Y"), ["X", "X"]), Prediction(tags(), ["X", "X"])]
    sums = {"correct": 0, "predicted": 1, "gold": 2, "right": 1, "words": 2}  # one run of two words beside two of one
    assert sums_by_language(found, "tagging", "squad") == {"de": sums}
    found = [Prediction(side("de", "1", "1"), "1"), Prediction(Side("de", SentencePair("1", "f", "", "", None), []), "1")]
    assert sums_by_language(found, "classification", "squad") == {"de": {"correct": 1, "count": 1}}
    asked = [Prediction(Side("en", Question("1", "f", "?", "b", gold), []), "b") for gold in ((), ((0, "b"),))]
    assert sums_by_language(asked, "span", "squad")["en"] == {"f1": 1, "exact": 1, "count": 1}
    assert sums_by_language(asked, "span", "squad", no_answer=True)["en"] == {"f1": 1, "exact": 1, "count": 2}
    with pytest.raises(TypeError, match="'1' is no prediction for a TaggedSentence"):
        sums_by_language([Prediction(tags("X"), "1")], "tagging", "squad")


def test_batches_of_equal_lengths_are_shuffled_in_training_alone():
    items = [Item(side("de", str(number))) for number in range(9)]
    items[4].x.windows[0].tokens = np.array([0, 2])
    told = UnderstandingDataset(items, "classification", pad=1)
    assert told.ordered_indices().tolist() == [4, 0, 1, 2, 3, 5, 6, 7, 8]
    orders = [UnderstandingDataset(items, "classification", pad=1, seed=seed).ordered_indices().tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2] and {order[0] for order in orders} == {4}
    assert [sorted(order) for order in orders] == [list(range(9))] * 3
    trained = UnderstandingDataset(items, "classification", pad=1, seed=1)
    assert "rows" not in trained.collater(items[:1]) and trained.collater([]) == {}
