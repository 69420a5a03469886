# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Readers, windows and figures of the understanding tasks, against what was worked out by hand."""

import numpy as np
import pytest
import sentencepiece
import torch

from veco_fairseq.data.sentencepiece import MASK, ordinary_pieces, train_sentencepiece
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.understanding.dataset import Item, Side, UnderstandingDataset, by_window, paired
from veco_fairseq.understanding.examples import Question, SentencePair, TaggedSentence
from veco_fairseq.understanding.predictions import best_answer
from veco_fairseq.understanding.windows import IGNORE, Notes, Window, Windows

TEXT = ["the dog sees the cat .", "who sees the cat ?", "a dog and a cat are here .", "where is the dog ?"] * 3


# Readers


# Windows


@pytest.fixture(scope="module")
def vocabulary():
    pieces = sentencepiece.SentencePieceProcessor(model_proto=train_sentencepiece(TEXT, 22, character_coverage=1.0))
    return dictionary_of([*ordinary_pieces(pieces), MASK]), pieces


@pytest.fixture
def make_windows(vocabulary):
    dictionary, pieces = vocabulary

    def make(labels=(), max_length=64, stride=4, word_pooling="first"):
        return Windows(dictionary, pieces, labels, max_length=max_length, stride=stride, word_pooling=word_pooling, notes=Notes())

    return make


def text_of(vocabulary, tokens) -> str:
    dictionary, pieces = vocabulary
    return pieces.decode([dictionary[int(token)] for token in tokens if token > 3])


def test_a_sentence_pair_is_cut_at_its_longer_sentence(make_windows):
    windows = make_windows(["no", "yes"], max_length=14)
    pair = SentencePair("1", "f, line 1", " ".join(["dog"] * 20), "cat", "yes")
    (window,) = windows(pair)
    cat = windows.encode("cat")
    assert len(window.tokens) == 14 and window.target.tolist() == [1]
    assert window.tokens[[0, -1]].tolist() == [0, 2] and window.tokens.tolist().count(2) == 3
    assert window.tokens[-1 - len(cat) : -1].tolist() == cat.tolist()
    assert windows.notes.lines() == ["1 longer than --max-length, cut (first: f, line 1)"]
    (window,) = windows(SentencePair("2", "f, line 2", "", "cat", "maybe"))
    assert window.target.tolist() == [IGNORE] and len(windows.notes.lines()) == 3


@pytest.mark.parametrize("max_length", range(5, 16))
def test_a_window_takes_as_many_whole_words_as_fit(make_windows, max_length):
    windows = make_windows(["D", "N"], max_length=max_length)
    words = ("the", "dog", "where", "cat", "sees", "a", "dog")
    lengths = [min(len(windows.encode(word)), max_length - 2) for word in words]
    expected, left = [], 0
    for length in lengths:
        if length > left:
            expected.append(0)
            left = max_length - 2
        expected[-1] += 1
        left -= length
    made = windows(TaggedSentence("1", "f, line 1", words, ("D", "N") * 3 + ("D",)))
    assert [len(window.target) for window in made] == expected


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_words_and_the_tokens_that_stand_for_them(make_windows, pooling):
    windows = make_windows(["D", "N"], max_length=10, word_pooling=pooling)
    lengths = [len(windows.encode(word)) for word in ("the", "dog", "where", "cat")]
    sentence = TaggedSentence("1", "f, line 1", ("the", "dog", "where", "cat"), ("D", "N", "D", "N"))
    made = windows(sentence)
    assert [tag for window in made for tag in window.target] == [0, 1, 0, 1]
    assert all(len(window.tokens) <= 10 for window in made) and len(made) > 1
    seen = []
    for window in made:
        assert window.words[0] == window.words[-1] == -1
        counts = np.bincount(window.words[window.words >= 0])
        assert len(counts) == len(window.target)
        seen += counts.tolist()
    assert seen == ([1] * 4 if pooling == "first" else lengths)


def test_a_long_context_is_read_in_windows_that_overlap(vocabulary, make_windows):
    context = "the dog sees the cat . a dog and a cat are here ."
    start = context.index("a cat are")
    question = Question("1", "f, question 1", "who sees ?", context, ((start, "a cat are"),))
    whole = make_windows(max_length=200)
    asked = len(whole.encode("who sees ?"))
    (window,) = whole(question)
    first, last = window.target
    assert context[window.offsets[first][0] : window.offsets[last][1]] == "a cat are"
    assert text_of(vocabulary, window.tokens[first : last + 1]) == "a cat are"

    for stride in range(1, 12):  # some of these windows begin inside the answer, and have none
        for part in make_windows(max_length=asked + 4 + 20, stride=stride)(question):
            first, last = part.target
            assert first == last == 0 or context[part.offsets[first][0] : part.offsets[last][1]] == "a cat are"
            assert first >= 0
    parts = make_windows(max_length=asked + 4 + 20, stride=8)(question)
    covered = {place for part in parts for span in part.offsets if span[0] >= 0 for place in range(*span)}
    assert covered >= {place for place, char in enumerate(context) if char != " "}
    found = [part for part in parts if part.target.any()]
    assert len(parts) > 1 and found
    for part in found:
        first, last = part.target
        assert context[part.offsets[first][0] : part.offsets[last][1]] == "a cat are"


@pytest.mark.parametrize("before", ["", "\n", "  ", "\u3000", "\u200b", " \u200f", "\ufeff"], ids=ascii)
def test_what_sentencepiece_takes_for_spaces_is_no_part_of_a_word(make_windows, before):
    """The zero-width U+200B had been the beginning of the next word, which an answer that ends with it had, too."""
    context = f"{before}the{before or ' '}dog sees"
    for answer, text in (("dog", "dog"), (f"the{before}", "the")):
        (window,) = make_windows(max_length=200)(Question("1", "f", "who ?", context, ((context.index(answer), answer),)))
        first, last = window.target
        assert context[window.offsets[first][0] : window.offsets[last][1]] == text


def test_answers_that_are_elsewhere_or_nowhere(make_windows):
    windows = make_windows(max_length=200)
    moved = Question("1", "f, question 1", "who ?", "the dog sees", ((0, "dog"),))
    (window,) = windows(moved)
    assert window.target.any()
    (window,) = windows(Question("2", "f, question 2", "who ?", "the dog sees", ((0, "bird"),)))
    assert not window.target.any()
    assert windows.notes.counts["whose answer is not in its context"] == 1


def test_the_best_answer_is_a_substring_of_the_context(make_windows):
    context = "the dog  sees\u200b the cat"  # spaces that SentencePiece drops; the zero-width one belongs to the word before it
    windows = make_windows(max_length=200)(Question("1", "f", "who ?", context, ()))
    side = Side("en", Question("1", "f", "who ?", context, ()), windows)
    offsets = windows[0].offsets
    logits = torch.zeros(1, len(offsets), 2)
    first = next(place for place, span in enumerate(offsets) if span[0] == context.index("dog"))
    last = next(place for place, span in enumerate(offsets) if span[1] == context.index("sees") + 4)
    logits[0, first, 0] = logits[0, last, 1] = 5
    logits[0, 1, 0] = logits[0, 2, 1] = 9  # of the question, which is no answer
    assert best_answer(side, logits, no_answer=False) == "dog  sees\u200b"
    logits[0, 0] = 6
    assert best_answer(side, logits, no_answer=True) == ""


def of_context(*windows, words=60):
    """A question about "w0 w1 ...", and logits of 0 for its windows, each from one word of the context to another.

    A window has ``<s>``, a word of the question and ``</s> </s>`` before its words, and ``</s>`` behind them.
    """
    context = " ".join(f"w{number}" for number in range(words))
    starts = [context.index(f"w{number}") for number in range(words)]
    made = []
    for first, last in windows:
        spans = [(starts[number], starts[number] + len(f"w{number}")) for number in range(first, last + 1)]
        offsets = np.array([(-1, -1)] * 4 + spans + [(-1, -1)])
        made.append(Window(np.arange(len(offsets)), np.zeros(2), offsets=offsets))
    question = Question("1", "f", "who ?", context, ())
    return Side("en", question, made), torch.zeros(len(made), max(len(window.tokens) for window in made), 2)


@pytest.mark.parametrize("longest, found", [(30, True), (31, False)])
def test_an_answer_has_30_tokens_at_most(longest, found):
    """As XTREME's script (--max_answer_length 30): the best pair of tokens that is allowed is taken instead."""
    side, logits = of_context((0, 59))
    first, last = 4 + 5, 4 + 5 + longest - 1
    logits[0, first, 0] = logits[0, last, 1] = 9
    expected = [f"w{number}" for number in range(5, 5 + longest)]
    answer = best_answer(side, logits, no_answer=False).split()
    assert (answer == expected) == found and len(answer) <= 30


def test_the_best_answer_is_looked_for_in_all_windows():
    side, logits = of_context((0, 19), (10, 29), (20, 39))
    for window, value in enumerate((5.0, 7.0, 6.0)):
        logits[window, 4 + window, 0] = logits[window, 6 + window, 1] = value
    assert best_answer(side, logits, no_answer=False) == "w11 w12 w13"  # of the second, its tokens 5 to 7


def test_an_answer_has_no_space_around_it():
    """A token may stand for a space, too."""
    side, logits = of_context((0, 19))
    side.windows[0].offsets[7] += [-1, 1]
    assert side.example.context[slice(*side.windows[0].offsets[7])] == " w3 "
    logits[0, 7, :] = 5
    assert best_answer(side, logits, no_answer=False) == "w3"


def test_the_windows_of_a_long_context_are_full(make_windows):
    first, *_, last = make_windows(max_length=24)(Question("1", "f", "who sees", "the dog sees the cat " * 20, ()))
    assert len(first.tokens) == 24 >= len(last.tokens)


def test_an_answer_may_begin_with_the_context():
    side, logits = of_context((0, 19))
    logits[0, 4, :] = 2  # the first token behind <s>, the question and </s>
    assert best_answer(side, logits, no_answer=False) == "w0"


@pytest.mark.parametrize("nothing, answer", [((9.0, 5.5), "w11"), ((9.0, 8.0), ""), ((1.0, 9.0), "w11"), ((9.0, 6.0), "w11")])
def test_no_answer_must_be_better_in_every_window(nothing, answer):
    """As SQuAD 2.0's baselines: the window in which "no answer" is least likely decides."""
    side, logits = of_context((0, 19), (10, 29))
    logits[1, 5, :] = 3.0  # 6 in all
    for window, value in enumerate(nothing):
        logits[window, 0, :] = value / 2
    assert best_answer(side, logits, no_answer=True) == answer
    assert best_answer(side, logits, no_answer=False) == "w11"


def test_the_padding_of_a_short_window_is_no_answer():
    side, logits = of_context((0, 19), (20, 24))
    logits[1, 4 + 5 + 1 :] = 9  # behind the last </s> of the short one
    logits[0, 7, :] = 1
    assert best_answer(side, logits, no_answer=False) == "w3"


def test_a_question_is_cut_after_64_tokens(make_windows):
    """XTREME's --max_query_length."""
    windows = make_windows(max_length=200)
    asked = "the dog sees " * 40
    assert len(windows.encode(asked)) > 100
    (window,) = windows(Question("1", "f", asked, "the cat", ((4, "cat"),)))
    before = 1 + 64 + 2
    assert (window.offsets[:before] == -1).all() and window.offsets[before].tolist()[0] >= 0
    assert window.tokens[1:65].tolist() == windows.encode(asked)[:64].tolist()


# Batches


def side(lang, name, *lengths, label=0):
    windows = [Window(np.arange(4, 4 + length), np.array([label])) for length in lengths]
    return Side(lang, SentencePair(name, f"{lang}, line {name}", "a", "b", str(label)), windows)


def test_a_batch_of_translations():
    notes = Notes()
    items = paired([side("de", "1", 3), side("de", "2", 4)], [side("en", "1", 2)], True, notes)
    assert notes.counts == {"without translation": 1}
    dataset = UnderstandingDataset(items, "classification", pad=1)
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["tokens"].tolist() == [[4, 5, 6, 1], [4, 5, 1, 1], [4, 5, 6, 7]]
    assert batch["net_input"]["partner"].tolist() == [1, 0, -1]
    assert batch["target"].tolist() == [0, 0, 0] and [where.lang for where, _ in batch["rows"]] == ["de", "en", "de"]
    assert dataset.sizes.tolist() == [dataset.size(0), dataset.size(1)] == [3, 4] and dataset.num_tokens(0) == 6
    assert len(dataset.batch_by_size(np.arange(2), max_tokens=5)) == 2  # the first has more, and is one all the same
    # at test time the translation is only looked at
    (item,) = paired([side("de", "1", 3)], [side("en", "1", 2)], False, notes)
    batch = dataset.collater([item])
    assert batch["net_input"]["partner"].tolist() == [1, -1] and batch["target"].tolist() == [0, IGNORE]


def test_a_batch_has_no_more_tokens_than_allowed_with_padding():
    """A pair has two rows of 50 tokens, and one of 100 is beside four of them: 9 rows of 100 would be 900 tokens, not 500."""
    items = [Item(side("de", str(number), 50), side("en", str(number), 50)) for number in range(9)]
    dataset = UnderstandingDataset([*items, Item(side("de", "long", 100))], "classification", pad=1)
    batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=500, required_batch_size_multiple=1)
    shapes = [dataset.collater([dataset[index] for index in batch])["net_input"]["tokens"].shape for batch in batches]
    assert [tuple(shape) for shape in shapes] == [(10, 50), (4, 50), (5, 100)]
    assert len(dataset.batch_by_size(dataset.ordered_indices(), max_sentences=10)) == 1


def test_a_long_context_and_its_translation_window_by_window():
    item = Item(side("de", "q", 3, 3, 3), side("en", "q", 2, 2), both=True)
    parts = by_window(item)
    assert [part.x.windows[0] is window for part, window in zip(parts, item.x.windows)] == [True] * 3

    def place(window, windows):
        return [known is window for known in windows].index(True)

    assert [place(part.y.windows[0], item.y.windows) for part in parts] == [0, 0, 1]
    assert [part.both for part in parts] == [True, False, True]  # y's first window is predicted once, and not by both
    batch = UnderstandingDataset(parts, "span", pad=1).collater(parts)
    assert sorted(batch["target"].tolist()) == sorted([[0], [0], [0], [0], [0], [IGNORE]])  # three of x, and two of y
    turned = by_window(Item(item.y, item.x, both=True))  # two windows beside three: one of them is on its own
    assert [(part.x.lang, place(part.y.windows[0], item.x.windows)) for part in turned[:2]] == [("en", 0), ("en", 1)]
    assert turned[2].x.windows[0] is item.x.windows[2] and turned[2].y.windows[0] is item.y.windows[1]
    assert not turned[2].both


def test_rows_that_are_no_translations_of_each_other():
    with pytest.raises(
        UserError, match="en, line 1: the id 1 is there twice, first at en, line 1: an example has one translation"
    ):
        paired([side("de", "1", 3)], [side("en", "1", 2), side("en", "1", 2)], True, Notes())
    with pytest.raises(UserError, match="is labelled 0, and its translation .*en, line 1.* 1"):
        paired([side("de", "1", 3)], [side("en", "1", 2, label=1)], True, Notes())


# Figures
