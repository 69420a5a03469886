# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Readers, windows and figures of the understanding tasks, against what was worked out by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

from veco_fairseq.data.roots import MASK
from veco_fairseq.data.sentencepiece import ordinary_pieces, train_sentencepiece
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.inference.evaluation import Evaluated, write_predictions
from veco_fairseq.understanding import metrics
from veco_fairseq.understanding.dataset import Item, Side, UnderstandingDataset, by_window, paired
from veco_fairseq.understanding.examples import (
    Question,
    SentencePair,
    TaggedSentence,
    find_files,
    read_examples,
    without_text,
)
from veco_fairseq.understanding.predictions import Prediction, best_answer, sums_by_language
from veco_fairseq.understanding.windows import IGNORE, Notes, Window, Windows
from veco_fairseq.understanding.xtreme import Result, spread, summary

TEXT = ["the dog sees the cat .", "who sees the cat ?", "a dog and a cat are here .", "where is the dog ?"] * 3


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# Readers


def test_sentence_pairs_without_and_with_names_of_columns(tmp_path):
    plain = write(tmp_path / "train-en.tsv", "A dog .\tA cat .\tneutral\nIt is\tIt was\tContradiction\n")
    assert read_examples(plain, "en", "classification") == [
        SentencePair("row 1", f"{plain}, line 1", "A dog .", "A cat .", "neutral"),
        SentencePair("row 2", f"{plain}, line 2", "It is", "It was", "contradiction"),
    ]
    header = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n7\tA\tB\tENTAILMENT\t4.5\n"
    sick = write(tmp_path / "train-nl.tsv", header)
    assert read_examples(sick, "nl", "classification") == [SentencePair("7", f"{sick}, line 2", "A", "B", "entailment")]
    xnli = write(tmp_path / "train-fr.tsv", "\ufeffpremise\thypo\tlabel\nA\tB\tcontradictory\n")
    read = [SentencePair("row 1", f"{xnli}, line 2", "A", "B", "contradiction")]
    assert read_examples(xnli, "fr", "classification") == read
    unlabelled = write(tmp_path / "test-en.tsv", "A\tB\n")
    assert read_examples(unlabelled, "en", "classification")[0].label is None


def test_conllu_takes_words_and_leaves_out_ranges_and_empty_nodes(tmp_path):
    def row(number, word, tag):
        return "\t".join([number, word, "_", tag, *["_"] * 6])

    path = write(tmp_path / "train-de.conllu", "\n".join([
        "# sent_id = s9", row("1-2", "im", "_"), row("1", "in", "ADP"), row("2", "dem", "DET"), row("2.1", "x", "X"),
        "", "# text = Haus", row("1", "Haus", "NOUN"), "",
    ]))  # fmt: skip
    assert read_examples(path, "de", "tagging") == [
        TaggedSentence("s9", f"{path}, line 1", ("in", "dem"), ("ADP", "DET")),
        TaggedSentence("", f"{path}, line 7", ("Haus",), ("NOUN",)),
    ]


def test_wikiann_lines_lose_their_language(tmp_path):
    path = write(tmp_path / "train-de.tsv", "# sent_id = s1\nde:Haus\tO\nde:de\tB-LOC\n\nen:x O\n")
    first, second = read_examples(path, "de", "tagging")
    assert (first.id, first.words, first.tags) == ("s1", ("Haus", "de"), ("O", "B-LOC"))
    assert (second.id, second.words, second.tags) == ("", ("en:x",), ("O",))
    untagged = read_examples(write(tmp_path / "test-de.tsv", "Haus\nde\n\nx\n"), "de", "tagging")
    assert [(sentence.words, sentence.tags) for sentence in untagged] == [(("Haus", "de"), ()), (("x",), ())]


def squad(path: Path, *questions) -> Path:
    entries = [{"context": context, "qas": [{"id": name, "question": asked, **more}]}
               for name, context, asked, more in questions]  # fmt: skip
    return write(path, json.dumps({"data": [{"paragraphs": entries}]}))


def test_questions_with_and_without_answer(tmp_path):
    path = squad(
        tmp_path / "train-en.json",
        ("q1", "the dog sees", "who sees ?", {"answers": [{"text": "dog", "answer_start": 4}]}),
        ("q2", "the dog", "where ?", {"answers": [{"text": "dog", "answer_start": 4}], "is_impossible": True}),
        ("q3", "the dog", "why ?", {"answers": [{"text": "", "answer_start": 0}]}),
    )
    assert [question.answers for question in read_examples(path, "en", "span")] == [((4, "dog"),), (), ()]


@pytest.mark.parametrize(
    "name, content, nlu_task, message",
    [
        ("train-en.tsv", "a\tb\tc\na\tb\n", "classification", "line 2: has 2 columns, and line 1 has 3"),
        ("train-en.tsv", "a\n", "classification", "line 1: has 1 columns"),
        ("train-en.tsv", "", "classification", "has no examples"),
        ("train-en.conllu", "1\ta\tX\n", "tagging", "line 1: has 3 columns, not the 10 of CoNLL-U"),
        ("train-en.tsv", "a\tX\nb\n", "tagging", "line 2: has 1 columns, not a word and its tag"),
        ("train-en.json", "{", "span", "line 1: is not JSON"),
        ("train-en.json", '{"data": [{}]}', "span", "'paragraphs' is missing"),
        (
            "train-en.json",
            '{"data": [{"paragraphs": [{"context": null, "qas": [{"id": "q", "question": "?"}]}]}]}',
            "span",
            "question q: is not in SQuAD's format: texts are strings",
        ),
    ],
    ids=["ragged pairs", "one column", "empty", "conllu", "ragged tags", "no json", "no squad", "null"],
)
def test_bad_files(tmp_path, name, content, nlu_task, message):
    with pytest.raises(UserError, match=message):
        read_examples(write(tmp_path / name, content), "en", nlu_task)


def test_two_files_of_a_language(tmp_path):
    path = write(tmp_path / "dev-en.tsv", "a\tb\t0\n")
    assert find_files(tmp_path, "valid", "classification") == {"en": path}
    write(tmp_path / "valid-en.tsv", "a\tb\t0\n")
    with pytest.raises(UserError, match="are both the valid set of en"):
        find_files(tmp_path, "valid", "classification")


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


def test_a_sentence_pair_is_cut_at_its_longer_sentence(vocabulary, make_windows):
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


@pytest.mark.parametrize("before", ["", "\n", "  ", "\u3000"], ids=["nothing", "line end", "spaces", "wide space"])
def test_offsets_count_what_stands_before_the_text(make_windows, before):
    context = before + "the dog sees"
    (window,) = make_windows(max_length=200)(Question("1", "f", "who ?", context, ((context.index("dog"), "dog"),)))
    first, last = window.target
    assert context[window.offsets[first][0] : window.offsets[last][1]] == "dog"


def test_answers_that_are_elsewhere_or_nowhere(make_windows):
    windows = make_windows(max_length=200)
    moved = Question("1", "f, question 1", "who ?", "the dog sees", ((0, "dog"),))
    (window,) = windows(moved)
    assert window.target.any()
    (window,) = windows(Question("2", "f, question 2", "who ?", "the dog sees", ((0, "bird"),)))
    assert not window.target.any()
    assert windows.notes.counts["whose answer is not in its context"] == 1


def test_the_best_answer_is_a_substring_of_the_context(make_windows):
    context = "the dog  sees the cat"  # two spaces, which SentencePiece drops
    windows = make_windows(max_length=200)(Question("1", "f", "who ?", context, ()))
    side = Side("en", Question("1", "f", "who ?", context, ()), windows)
    offsets = windows[0].offsets
    logits = torch.zeros(1, len(offsets), 2)
    first = next(place for place, span in enumerate(offsets) if span[0] == context.index("dog"))
    last = next(place for place, span in enumerate(offsets) if span[1] == context.index("sees") + 4)
    logits[0, first, 0] = logits[0, last, 1] = 5
    logits[0, 1, 0] = logits[0, 2, 1] = 9  # of the question, which is no answer
    assert best_answer(side, logits, no_answer=False) == "dog  sees"
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


@pytest.mark.parametrize("nothing, answer", [((9.0, 5.5), "w11"), ((9.0, 8.0), ""), ((1.0, 9.0), "w11")])
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


def test_a_batch_of_translations(tmp_path):
    notes = Notes()
    items = paired([side("de", "1", 3), side("de", "2", 4)], [side("en", "1", 2)], True, notes)
    assert notes.counts == {"without translation": 1}
    dataset = UnderstandingDataset(items, "classification", pad=1)
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["tokens"].tolist() == [[4, 5, 6, 1], [4, 5, 1, 1], [4, 5, 6, 7]]
    assert batch["net_input"]["partner"].tolist() == [1, 0, -1]
    assert batch["target"].tolist() == [0, 0, 0] and [where.lang for where, _ in batch["rows"]] == ["de", "en", "de"]
    assert dataset.sizes.tolist() == [3, 4] and dataset.num_tokens(0) == 6
    assert len(dataset.batch_by_size(np.arange(2), max_tokens=5)) == 2  # the first has more, and is one all the same
    # at test time the translation is only looked at
    (item,) = paired([side("de", "1", 3)], [side("en", "1", 2)], False, notes)
    batch = dataset.collater([item])
    assert batch["net_input"]["partner"].tolist() == [1, -1] and batch["target"].tolist() == [0, IGNORE]


def test_a_long_context_and_its_translation_window_by_window():
    item = Item(side("de", "q", 3, 3, 3), side("en", "q", 2, 2), both=True)
    parts = by_window(item)
    assert [part.x.windows[0] is window for part, window in zip(parts, item.x.windows)] == [True] * 3

    def place(window, windows):
        return [known is window for known in windows].index(True)

    assert [place(part.y.windows[0], item.y.windows) for part in parts] == [0, 0, 1]
    turned = by_window(Item(item.y, item.x, both=True))  # two windows beside three: one of them is on its own
    assert [(part.x.lang, place(part.y.windows[0], item.x.windows)) for part in turned[:2]] == [("en", 0), ("en", 1)]
    assert turned[2].x.windows[0] is item.x.windows[2] and turned[2].y.windows[0] is item.y.windows[1]
    assert not turned[2].both


def test_rows_that_are_no_translations_of_each_other():
    with pytest.raises(UserError, match="en, line 1: the id 1 was there before, at en, line 1"):
        paired([side("de", "1", 3)], [side("en", "1", 2), side("en", "1", 2)], True, Notes())
    with pytest.raises(UserError, match="is labelled 0, and its translation .*en, line 1.* 1"):
        paired([side("de", "1", 3)], [side("en", "1", 2, label=1)], True, Notes())


# Figures


def test_spans_as_conlleval_counts_them():
    tags = ["B-PER", "I-PER", "B-PER", "O", "I-LOC", "I-LOC", "I-ORG", "B-LOC"]
    assert metrics.spans(tags) == {("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 5), ("ORG", 6, 6), ("LOC", 7, 7)}


def test_parts_of_speech_are_runs_of_one_tag():
    """A run is a span; SYM and SCONJ are each their own, since an S is a span of one word to the script."""
    tags = ["NOUN", "NOUN", "INTJ", "INTJ", "ADP", "SYM", "SYM", "SCONJ", "CCONJ", "X", "X"]
    assert metrics.spans(tags) == {("NOUN", 0, 1), ("INTJ", 2, 3), ("ADP", 4, 4), ("SYM", 5, 5), ("SYM", 6, 6),
                                   ("SCONJ", 7, 7), ("CCONJ", 8, 8), ("X", 9, 10)}  # fmt: skip


def test_f1_of_tags_and_the_accuracy_beside_it():
    sums = metrics.of_tags(["B-PER", "O", "O", "B-LOC"], ["B-PER", "I-PER", "O", "B-LOC"])
    assert sums == {"correct": 1, "predicted": 2, "gold": 2, "right": 3, "words": 4}
    assert metrics.figures(sums) == {"f1": 50, "accuracy": 75} and metrics.score(sums) == 50
    sums = metrics.of_tags(["NOUN", "VERB", "X"], ["NOUN", "NOUN", "X"])  # two words right; X alone of 3 and 2 spans
    assert metrics.figures(sums) == {"f1": pytest.approx(40), "accuracy": pytest.approx(200 / 3)}
    assert metrics.score(sums) == pytest.approx(40)
    assert Result([{"de": metrics.figures(sums)}]).average() == pytest.approx(40)  # in XTREME's mean over tasks


def test_no_answer_is_lost_where_questions_share_an_id(tmp_path):
    questions = [Question(name, "", "", "a b c", ()) for name in ("q", "r", "q")]
    found = [Prediction(Side("en", question, []), answer) for question, answer in zip(questions, "abc")]
    (path,) = write_predictions(Evaluated("span", {"en": found}, {}), tmp_path, "test")
    assert path.name == "test-en.json" and json.loads(path.read_text()) == {"q": "a", "r": "b", "q#2": "c"}


def test_answers_as_squad_counts_them():
    # "cat sat" and "cat": one word in common of 2 and 1: F1 = 2 * 1 / 3
    sums = metrics.of_answer("The cat!", ["a cat sat", "dog"])
    assert sums == {"f1": pytest.approx(2 / 3), "exact": 0, "count": 1}
    assert metrics.of_answer("The cat!", ["dog", "cat"]) == {"f1": 1, "exact": 1, "count": 1}
    assert metrics.of_answer("", [], no_answer=True) == {"f1": 1, "exact": 1, "count": 1}
    assert metrics.of_answer("cat", [], no_answer=True) == {"f1": 0, "exact": 0, "count": 1}
    assert metrics.score({"f1": 3.0, "exact": 1.0, "count": 4.0}) == 50


def test_answers_as_mlqa_counts_them():
    assert metrics.mlqa_words("Der Hund, „Rex“", "de") == ["hund", "rex"]
    assert metrics.squad_words("Der Hund, „Rex“") == ["der", "hund", "„rex“"]
    # three characters and a number against two of the characters: F1 = 2 * 2 / (4 + 2)
    assert metrics.mlqa_words("黑豹队，308", "zh") == ["黑", "豹", "队", "308"]
    assert metrics.of_answer("黑豹队308", ["黑豹"], metric="mlqa", lang="zh")["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "lang, gold, exact", [("de", "der Hund", 1), ("en", "der Hund", 0), ("en", "the Hund", 1), ("es", "el Hund", 1)]
)
def test_each_language_has_its_own_articles_in_mlqa(lang, gold, exact):
    """And SQuAD's metric English ones everywhere."""
    question = Question("1", "f", "?", gold, ((0, gold),))
    found = [Prediction(Side(lang, question, []), "Hund")]
    assert sums_by_language(found, "span", "mlqa")[lang]["exact"] == exact
    assert sums_by_language(found, "span", "squad")[lang]["exact"] == (gold == "the Hund")


def test_the_papers_averages():
    """Table 2: VECO plugged in, translate-train-all, 81.0; XLM-R, cross-lingual transfer, 68.1."""

    def row(*values):
        names = ("xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa", "bucc", "tatoeba")
        results = {}
        for name, value in zip(names, values):
            figures = dict(zip(("f1", "exact"), value)) if isinstance(value, tuple) else {"f1": value}
            results[name] = Result([{"all": figures}])
        return summary(results)["average"]

    plugged_in = row(84.3, 92.8, 79.8, 71.0, (83.9, 70.9), (77.5, 59.3), (79.4, 63.7), 92.6, 91.1)
    assert plugged_in == pytest.approx(81.0, abs=0.05)
    xlmr = row(79.2, 86.4, 72.6, 65.4, (76.6, 60.8), (71.6, 53.2), (65.1, 45.0), 66.0, 57.3)
    assert xlmr == pytest.approx(68.1, abs=0.05)


def test_seeds_have_a_mean_and_a_spread():
    result = Result([{"de": {"f1": 10.0}, "fr": {"f1": 30.0}}, {"de": {"f1": 20.0}, "fr": {"f1": 30.0}}])
    assert result.of("f1", "mean") == [20, 25] and result.average() == 22.5
    assert spread(result.of("f1", "de")) == "15.0 ± 7.1"


def test_training_keeps_what_pairs_examples_and_no_text():
    pair = without_text(SentencePair("1", "f, line 1", "a dog", "a cat", "neutral"))
    assert pair == SentencePair("1", "f, line 1", "", "", "neutral")  # labels of translations are compared
    tagged = without_text(TaggedSentence("s", "f, line 2", ("a", "dog"), ("DET", "NOUN")))
    assert tagged == TaggedSentence("s", "f, line 2", (), ())
    question = without_text(Question("q", "f, question q", "who ?", "a dog", ((2, "dog"),)))
    assert question == Question("q", "f, question q", "", "", ())
