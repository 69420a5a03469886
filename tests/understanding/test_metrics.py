# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Figures of the tasks as the official scripts count them, and the papers' averages."""

import json
from types import SimpleNamespace

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.inference.evaluation import Evaluated, label, write_predictions
from veco_fairseq.inference.finetuned import Finetuned
from veco_fairseq.understanding import metrics
from veco_fairseq.understanding.dataset import Side
from veco_fairseq.understanding.examples import Question, SentencePair, TaggedSentence
from veco_fairseq.understanding.predictions import Prediction, sums_by_language
from veco_fairseq.understanding.xtreme import Result, read_results, spread, summary


def test_spans_as_conlleval_counts_them():
    tags = ["B-PER", "I-PER", "B-PER", "O", "I-LOC", "I-LOC", "I-ORG", "B-LOC"]
    assert metrics.spans(tags) == {("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 5), ("ORG", 6, 6), ("LOC", 7, 7)}


def test_parts_of_speech_are_runs_of_one_tag():
    """A run is a span; SYM and SCONJ are each their own, since an S is a span of one word to the script."""
    tags = ["NOUN", "NOUN", "INTJ", "INTJ", "ADP", "SYM", "SYM", "SCONJ", "CCONJ", "X", "X"]
    assert metrics.spans(tags) == {("NOUN", 0, 1), ("INTJ", 2, 3), ("ADP", 4, 4), ("SYM", 5, 5), ("SYM", 6, 6),
                                   ("SCONJ", 7, 7), ("CCONJ", 8, 8), ("X", 9, 10)}  # fmt: skip


def test_a_full_stop_as_a_tag_is_in_no_span():
    """As seqeval 0.0.12 has it, which takes O and the full stop for tags that no span begins with or ends in."""
    assert metrics.spans(["NN", ".", "VB", "VB", ".", "."]) == {("NN", 0, 0), ("VB", 2, 3)}


def test_f1_of_tags_and_the_accuracy_beside_it():
    sums = metrics.of_tags(["B-PER", "O", "O", "B-LOC"], ["B-PER", "I-PER", "O", "B-LOC"])
    assert sums == {"correct": 1, "predicted": 2, "gold": 2, "right": 3, "words": 4}
    assert metrics.figures(sums) == {"f1": 50, "accuracy": 75} and metrics.score(sums) == 50
    sums = metrics.of_tags(["NOUN", "VERB", "X"], ["NOUN", "NOUN", "X"])  # two words right; X alone of 3 and 2 spans
    assert metrics.figures(sums) == {"f1": pytest.approx(40), "accuracy": pytest.approx(200 / 3)}
    assert metrics.score(sums) == pytest.approx(40)
    assert Result([{"de": metrics.figures(sums)}]).average() == pytest.approx(40)  # in XTREME's mean over tasks


def test_a_word_without_a_gold_tag_does_not_count():
    """... whatever it is predicted to be, and no span goes through it; ``_`` had been a tag to learn and to predict."""
    for guess in ("NOUN", "O", "X"):
        sums = metrics.of_tags(["NOUN", guess, "NOUN", "VERB"], ["NOUN", "", "NOUN", "X"])
        assert sums == {"correct": 2, "predicted": 3, "gold": 3, "right": 2, "words": 3}


@pytest.mark.parametrize("nlu_task, example, value", [
    ("tagging", TaggedSentence("1", "", ("a", "b"), ()), ["X", "O"]), ("span", Question("1", "", "?", "a", ()), "a"),
    ("classification", SentencePair("1", "", "a", "b", None), "yes"),
])  # fmt: skip
def test_a_language_without_gold_has_no_figures(nlu_task, example, value):
    """... and not figures of 0, which would be a part of the mean."""
    assert sums_by_language([Prediction(Side("de", example, []), value)], nlu_task, "squad") == {}


def test_no_answer_is_lost_where_questions_share_an_id(tmp_path):
    questions = [Question(name, "", "", "a b c", ()) for name in ("q", "r", "q", "q")]
    found = [Prediction(Side("en", question, []), answer) for question, answer in zip(questions, "abcd")]
    (path,) = write_predictions(Evaluated("span", {"en": found}, {}), tmp_path, "test")
    assert path.name == "test-en.json" and json.loads(path.read_text()) == {"q": "a", "r": "b", "q#2": "c", "q#3": "d"}


def test_the_second_of_an_id_has_no_name_of_others(tmp_path):
    questions = [Question(name, "", "", "a b c", ()) for name in ("q", "q#2", "q", "q", "q#4", "q#2")]
    found = [Prediction(Side("en", question, []), answer) for question, answer in zip(questions, "abcdef")]
    (path,) = write_predictions(Evaluated("span", {"en": found}, {}), tmp_path, "test")
    assert json.loads(path.read_text()) == {"q": "a", "q#2": "b", "q#3": "c", "q#5": "d", "q#4": "e", "q#2#2": "f"}


def test_predictions_by_language_in_the_files_that_xtreme_wants(tmp_path):
    sentences = [TaggedSentence("1", "", ("a", "b"), ()), TaggedSentence("2", "", ("c",), ())]
    found = [Prediction(Side("de", sentence, []), tags) for sentence, tags in zip(sentences, (["X", "Y"], ["Z"]))]
    (path,) = write_predictions(Evaluated("tagging", {"de": found}, {}), tmp_path, "dev")
    assert path == tmp_path / "dev-de.tsv" and path.read_text() == "a\tX\nb\tY\n\nc\tZ\n"
    found = {lang: [Prediction(Side(lang, None, []), word) for word in words] for lang, words in (("de", "xy"), ("fr", "z"))}
    paths = write_predictions(Evaluated("classification", found, {}), tmp_path, "test")
    assert [(path.name, path.read_text()) for path in paths] == [("test-de.txt", "x\ny\n"), ("test-fr.txt", "z\n")]


def test_only_a_tagger_can_teach_tags():
    with pytest.raises(
        UserError, match=r"^a\.pt: is a model for span, not for tagging: give a checkpoint of --nlu-task tagging$"
    ):
        label(Finetuned(None, SimpleNamespace(nlu_task="span")), [["a"]], name="a.pt")


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
    for lang in ("zh", "zh-Hans", "zh_CN", "zho"):
        assert metrics.of_answer("黑豹队308", ["黑豹"], metric="mlqa", lang=lang)["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "lang, gold, exact",
    [("de", "der Hund", 1), ("deu", "der Hund", 1), ("en", "der Hund", 0), ("en", "the Hund", 1), ("es-MX", "el Hund", 1)],
)
def test_each_language_has_its_own_articles_in_mlqa(lang, gold, exact):
    """And SQuAD's metric English ones everywhere."""
    question = Question("1", "f", "?", gold, ((0, gold),))
    found = [Prediction(Side(lang, question, []), "Hund")]
    assert sums_by_language(found, "span", "mlqa")[lang]["exact"] == exact
    assert sums_by_language(found, "span", "squad")[lang]["exact"] == (gold == "the Hund")


# As MLQA's own mlqa_evaluation_v1.py has them.
MLQA_ARTICLES = {
    "en": "a an the", "es": "un una unos unas el la los las", "de": "ein eine einen einem eines einer der die das den dem des",
    "vi": "của là cái chiếc những", "hi": "", "zh": "", "ar": "",
}  # fmt: skip


@pytest.mark.parametrize("lang", MLQA_ARTICLES)
def test_every_article_of_a_language_and_no_other_is_left_out_in_mlqa(lang):
    """In Arabic the article is a part of its word."""
    for article in " ".join(MLQA_ARTICLES.values()).split():
        kept = [] if article in MLQA_ARTICLES[lang].split() else [article]
        assert metrics.mlqa_words(f"1 {article.capitalize()} 2", lang) == ["1", *kept, "2"], article
    assert metrics.mlqa_words("الكتاب كتاب", lang) == (["كتاب", "كتاب"] if lang == "ar" else ["الكتاب", "كتاب"])


def test_only_chinese_characters_are_words_of_their_own_in_mlqa():
    """The first and the last of the block, and its neighbours."""
    assert metrics.mlqa_words("\u4e00\u9fa5\u4dff\u9fa6ab", "zh") == ["\u4e00", "\u9fa5", "\u4dff\u9fa6ab"]
    assert metrics.mlqa_words("\u4e00\u9fa5", "de") == ["\u4e00\u9fa5"]


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


def test_files_with_a_language_each_are_joined(tmp_path):
    """BUCC's F1, and what it depends on."""
    files = []
    for lang, f1, tuned in (("de", 0.5, False), ("fr", 0.625, True)):
        files.append(tmp_path / f"{lang}.json")
        files[-1].write_text(json.dumps({"lang": lang, "f1": f1, "layer": 3, "score": "csls", "tuned_here": tuned}))
    joined = read_results(files)
    assert joined.seeds == [{"de": {"f1": 50.0}, "fr": {"f1": 62.5}}]
    assert joined.note == "layer 3, by csls; layer 3, by csls, with the threshold that is best for this same set"
    with pytest.raises(UserError, match=r"de\.json: has de, as an earlier file does: give each language once \(veco"):
        read_results([*files, files[0]])
