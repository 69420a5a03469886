# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Readers of the tasks' files."""

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.understanding.examples import Question, SentencePair, TaggedSentence, has_gold, without_text
from veco_fairseq.understanding.reading import find_files, read_examples
from veco_fairseq.understanding.teaching import read_words


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


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
    other = write(tmp_path / "train-de.tsv", "text_a\ttext_b\tlabel\nA\tB\tyes\n")
    with pytest.raises(UserError, match="line 1: has names of columns, but not those of sentences"):
        read_examples(other, "de", "classification")
    snli = write(tmp_path / "train-sw.tsv", "gold_label\tsentence1\tsentence2\n-\tA\tB\nneutral\tC\tD\n")
    assert [pair.label for pair in read_examples(snli, "sw", "classification")] == [None, "neutral"]
    moods = write(tmp_path / "train-es.tsv", "sentence1\tsentence2\tlabel\nA\tB\t-\n")
    assert [pair.label for pair in read_examples(moods, "es", "classification")] == ["-"]
    unlabelled = write(tmp_path / "test-en.tsv", "A\tB\n")
    assert read_examples(unlabelled, "en", "classification")[0].label is None


def test_a_file_of_several_languages_has_the_rows_of_its_own(tmp_path):
    """XNLI's own test set has fifteen languages."""
    rows = "".join(f"{lang}\t{label}\tA {lang}\tB\t{n}\n" for lang, label, n in (("de", "neutral", 1), ("en", "entailment", 2)))
    text = f"language\tgold_label\tsentence1\tsentence2\tpairID\n{rows}en\t-\tC\tD\t3\n"
    english = write(tmp_path / "test-en.tsv", text)
    assert read_examples(english, "en", "classification") == [
        SentencePair("2", f"{english}, line 3", "A en", "B", "entailment"),
        SentencePair("3", f"{english}, line 4", "C", "D", None),
    ]
    assert [pair.id for pair in read_examples(write(tmp_path / "test-deu.tsv", text), "deu", "classification")] == ["1"]
    french = write(tmp_path / "test-fr.tsv", text)
    with pytest.raises(UserError, match="test-fr.tsv: has no row of fr; its column language has de, en$"):
        read_examples(french, "fr", "classification")


def test_two_scripts_of_a_language_are_two_languages(tmp_path):
    """The rows of both had been read for each of them."""
    rows = "zh-Hans\tA\tB\t1\n zh-Hant \tA\tB\t2\nde\tA\tB\t3\n"
    text = f"language\tsentence1\tsentence2\tpairID\n{rows}"
    for lang, ids in (("zh-hans", "1"), ("zh-Hant", "2"), ("zho", "12"), ("deu", "3")):
        found = read_examples(write(tmp_path / f"test-{lang}.tsv", text), lang, "classification")
        assert "".join(pair.id for pair in found) == ids


def test_conllu_takes_words_and_leaves_out_ranges_and_empty_nodes(tmp_path):
    def row(number, word, tag):
        return "\t".join([number, word, "_", tag, *["_"] * 6])

    path = write(tmp_path / "train-de.conllu", "\n".join([
        "# sent_id = s9", row("1-2", "im", "_"), row("1", "in", "ADP"), row("2", "dem", "DET"), row("2.1", "x", "X"),
        "", "# text = Haus", row("1", "Haus", "NOUN "), "",
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
    for lang in ("deu", "de_AT"):
        (other,) = read_examples(write(tmp_path / f"dev-{lang}.tsv", "de:Haus\tO\nde:de\tB-LOC\n"), lang, "tagging")
        assert other.words == first.words
    # whatever a set calls the language; an id is no word
    for lang, code in (("tur", "tr"), ("yue", "zh-yue")):
        text = f"# sent_id = s1\n{code}:Ev\tO\n\n{code}:zh\tO\n{code}::\tO\n"
        others = read_examples(write(tmp_path / f"dev-{lang}.tsv", text), lang, "tagging")
        assert [sentence.words for sentence in others] == [("Ev",), ("zh", ":")]
    (partly,) = read_examples(write(tmp_path / "train-deu.tsv", "de:Haus\tO\nzu\tO\n"), "deu", "tagging")
    assert partly.words == ("Haus", "zu")  # the file's language in two letters, though not before every word
    (mixed,) = read_examples(write(tmp_path / "train-tur.tsv", "tr:a\tO\nno:b\tO\nc\tO\n"), "tur", "tagging")
    assert mixed.words == ("tr:a", "no:b", "c")
    untagged = read_examples(write(tmp_path / "test-de.tsv", "Haus\nde\n\nx\n"), "de", "tagging")
    assert [(sentence.words, sentence.tags) for sentence in untagged] == [(("Haus", "de"), ()), (("x",), ())]


def squad(path: Path, *questions) -> Path:
    entries = [{"context": context, "qas": [{"id": name, "question": asked, **more}]}
               for name, context, asked, more in questions]  # fmt: skip
    return write(path, json.dumps({"data": [{"paragraphs": entries}]}))


def test_a_no_break_space_is_part_of_a_word(tmp_path):
    """Such a line had three columns, where spaces separate words and tags."""
    (sentence,) = read_examples(write(tmp_path / "train-fr.tsv", "10\u00a0000  B-X\n .  O\n"), "fr", "tagging")
    assert (sentence.words, sentence.tags) == (("10\u00a0000", "."), ("B-X", "O"))


@pytest.mark.parametrize("word", ["\u00a0", "\u3000", "\f", "\u2028"])
@pytest.mark.parametrize("tag", ["", "\tO"])
def test_a_space_that_is_no_ascii_is_a_word_and_no_blank_line(tmp_path, word, tag):
    """A sentence of words without tags was cut in two there."""
    path = write(tmp_path / "test-de.tsv", f"Haus{tag}\n{word}{tag}\nBaum{word}{tag}\n \t\nx{tag}\n")
    first, second = read_examples(path, "de", "tagging")
    assert (first.words, second.words) == (("Haus", word, f"Baum{word}"), ("x",))


def test_words_to_label_are_cut_where_lines_to_align_are(tmp_path):
    """A word of a large number became two."""
    path = write(tmp_path / "de.txt", "10\u00a0000  Hunde\t\u00a0 \u200b da\n")
    assert read_words(path, None) == [["10\u00a0000", "Hunde", "da"]]


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
        ("train-en.tsv", "a\tb\tc\na\tb\n", "classification", "line 2: has 2 columns, but line 1 has 3"),
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


def test_a_file_may_be_packed_with_xz(tmp_path):
    path = tmp_path / "train-sw.tsv.xz"
    path.write_bytes(lzma.compress(b"a\tb\tyes\n"))
    assert find_files(tmp_path, "train", "classification") == {"sw": path}
    assert [pair.label for pair in read_examples(path, "sw", "classification")] == ["yes"]


def test_training_keeps_what_pairs_examples_and_no_text():
    pair = without_text(SentencePair("1", "f, line 1", "a dog", "a cat", "neutral"))
    assert pair == SentencePair("1", "f, line 1", "", "", "neutral")  # labels of translations are compared
    tagged = without_text(TaggedSentence("s", "f, line 2", ("a", "dog"), ("DET", "NOUN")))
    assert tagged == TaggedSentence("s", "f, line 2", (), ())
    question = without_text(Question("q", "f, question q", "who ?", "a dog", ((2, "dog"),)))
    assert question == Question("q", "f, question q", "", "", ())


def test_an_example_has_gold_if_it_has_a_label_tags_or_an_answer():
    pair, tagged, question = (SentencePair("p", "f", "a", "b", "neutral"), TaggedSentence("s", "f", ("a",), ("DET",)),
                              Question("q", "f", "who ?", "a dog", ((2, "dog"),)))  # fmt: skip
    assert has_gold(pair) and has_gold(tagged) and has_gold(question)
    assert not has_gold(replace(pair, label="")) and not has_gold(replace(tagged, tags=()))
    assert not has_gold(replace(question, answers=()))
