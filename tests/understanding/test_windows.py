# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is cut and told where examples do not fit, and rows and lines of files that are not as others."""

import io
import json
from types import SimpleNamespace

import pytest
import sentencepiece

from veco_fairseq.alignment.words import _sentences
from veco_fairseq.data.sentencepiece import ordinary_pieces
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.understanding.examples import Question, SentencePair, TaggedSentence
from veco_fairseq.understanding.reading import find_files, read_examples
from veco_fairseq.understanding.windows import IGNORE, Notes, Windows

TEXT = ["ab cd ef gh", "abcd efgh", "hgfedcba", "a b c d e f g h"] * 3


@pytest.fixture(scope="module")
def pieces():
    """A piece for each letter and space: a word has one token more than letters."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model, vocab_size=12, model_type="char",
                                             minloglevel=2)  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.fixture
def make(pieces):
    def make(labels=("A", "B"), max_length=12, stride=4, word_pooling="first"):
        return Windows(dictionary_of(ordinary_pieces(pieces)), pieces, labels, max_length=max_length, stride=stride,
                       word_pooling=word_pooling, notes=Notes())  # fmt: skip

    return make


@pytest.mark.parametrize("first, second, kept", [
    ("abc", "efg", (4, 4)), ("abc", "efgh", (4, 4)), ("abcdefgh", "ef", (5, 3)), ("ef", "abcdefgh", (3, 5)), ("abcdef", "abcdef", (4, 4)),
    ("", "abcdefg", (0, 8)), ("", "abcdefgh", (0, 8)),
])  # fmt: skip
def test_eight_tokens_are_shared_by_two_sentences(make, first, second, kept):
    """12 tokens with <s> and three </s>; the shorter one keeps at least half of them."""
    windows = make()
    (window,) = windows(SentencePair("1", "f", first, second, "B"))
    assert len(window.tokens) == sum(kept) + 4 and window.target.tolist() == [1]
    places = [place for place, token in enumerate(window.tokens.tolist()) if token == 2]
    assert places == [kept[0] + 1, kept[0] + 2, sum(kept) + 3]
    whole = [len(windows.encode(text)) for text in (first, second)]
    told = [
        *["1 with an empty sentence (first: f)"] * (not first),
        *["1 longer than --max-length, cut (first: f)"] * (sum(whole) > 8),
    ]
    assert windows.notes.lines() == told


@pytest.mark.parametrize("words, lengths, told", [
    (["a", "abcdefgh"], [[2], [9]], ["1 longer than --max-length, in several windows (first: f)"]),
    (["abcd", "abcd"], [[5, 5]], []),
    (["abcdefghabc"], [[10]], ["1 with a word longer than --max-length, cut (first: f)"]),
    (["abcdefghab"], [[10]], ["1 with a word longer than --max-length, cut (first: f)"]),
    (["abcdefgha"], [[10]], []),
])  # fmt: skip
def test_ten_tokens_of_words_fit(make, words, lengths, told):
    windows = make(word_pooling="mean")
    made = windows(TaggedSentence("1", "f", tuple(words), ("A",) * len(words)))
    assert [[window.words.tolist().count(number) for number in range(len(window.target))] for window in made] == lengths
    assert all(len(window.tokens) == len(window.words) == sum(of) + 2 for window, of in zip(made, lengths))
    assert windows.notes.lines() == told


def test_a_label_that_training_did_not_have_is_told_by_its_name(make):
    windows = make()
    (window,) = windows(TaggedSentence("1", "f", ("a", "b", "c"), ("B", "X", "A")))
    assert window.target.tolist() == [1, IGNORE, 0] and IGNORE == -100  # as torch's losses leave it out
    (window,) = windows(TaggedSentence("1", "g", ("a", "b"), ()))
    assert window.target.tolist() == [IGNORE] * 2
    assert windows.notes.lines() == ["1 of label X, which training did not have: they count as wrong (first: f)"]


@pytest.mark.parametrize("answers, tokens, told", [
    (((0, "ab"),), "ab", []), (((3, "cd"),), "cd", []), (((6, "e"),), "e", []),
    (((5, "ab"),), "ab", ["whose answer is not where its file says"]), (((1, "b cd e"),), "b cd e", []),
    (((0, "x"), (3, "cd")), "cd", ["whose answer is not where its file says", "whose answer is not in its context"]),
    (((2, " "),), "", []), ((), "", []),
])  # fmt: skip
def test_the_tokens_of_an_answer(make, answers, tokens, told):
    windows = make(max_length=40)
    context = "ab cd ef"
    (window,) = windows(Question("1", "f", "gh", context, answers))
    first, last = window.target
    assert (context[window.offsets[first][0] : window.offsets[last][1]] if last else "") == tokens
    assert list(windows.notes.counts) == told


@pytest.mark.parametrize(
    "length, stride, starts", [(8, 4, [0]), (9, 4, [0, 4]), (12, 4, [0, 4]), (13, 4, [0, 4, 8]), (17, 8, [0, 8, 16])]
)
def test_windows_of_a_context_begin_a_stride_apart(make, length, stride, starts):
    """Eight of its tokens fit beside the question's three; the last window is the first that reaches its end."""
    context = "a" * (length - 1)  # and the space before it
    windows = make(max_length=4 + 3 + 8, stride=stride)
    made = windows(Question("1", "f", "gh", context, ()))
    assert [len(window.tokens) for window in made] == [7 + min(8, length - start) for start in starts]
    assert [window.offsets[6].tolist() for window in made[1:]] == [[start - 1, start] for start in starts[1:]]


def test_a_character_that_the_dictionary_alone_knows_is_its_token(pieces):
    """As in pre-training, whose dict.txt fairseq-preprocess may have made from the pieces of a text; it had been <unk>."""
    dictionary = dictionary_of([*ordinary_pieces(pieces), "☃☃"])
    windows = Windows(dictionary, pieces, ["A"], max_length=40, stride=4, word_pooling="mean", notes=Notes())
    a, b, space, known, unknown = map(dictionary.index, ("a", "b", "▁", "☃☃", "<unk>"))
    text, told = "☃☃ a★", [space, known, space, a, unknown]
    assert windows.encode(text).tolist() == windows.encoder([text])[0][:-1].tolist() == told
    (of_words,) = windows(TaggedSentence("1", "f", ("☃☃", "a★"), ("A", "A")))
    assert of_words.tokens.tolist() == [0, *told, 2] and of_words.words.tolist() == [-1, 0, 0, 1, 1, 1, -1]
    (asked,) = windows(Question("1", "f", "b", "a ☃☃ a", ((2, "☃☃"),)))
    assert asked.tokens.tolist() == [0, space, b, 2, 2, space, a, space, known, space, a, 2]
    assert asked.target.tolist() == [8, 8] and asked.offsets[8].tolist() == [2, 4]


def test_unknown_letters_that_spell_a_symbol_are_no_symbol(make):
    """They had been it: </s> in a text had ended the sentence there."""
    windows = make(max_length=40)
    symbols = windows.encoder.symbols
    text = "ab </s> c<s>d <unk>"
    told = [symbols.get(piece, 3) for piece in "▁ a b ▁ ? ▁ c ? d ▁ ?".split()]
    assert windows.encode(text).tolist() == windows.encoder([text])[0][:-1].tolist() == told
    (of_words,) = windows(TaggedSentence("1", "f", ("</s>", "a"), ("A", "A")))
    assert of_words.tokens.tolist() == [0, symbols["▁"], 3, symbols["▁"], symbols["a"], 2]
    (asked,) = windows(Question("1", "f", "b", text, ()))
    assert asked.tokens.tolist() == [0, symbols["▁"], symbols["b"], 2, 2, *told, 2]


@pytest.mark.parametrize("prefix", [True, False])
def test_words_have_the_pieces_that_they_have_in_a_sentence(prefix):
    """A model without add_dummy_prefix has no space before a text; words within one had been without it, too."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model, vocab_size=12, model_type="char",
                                             add_dummy_prefix=prefix, minloglevel=2)  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    windows = Windows(
        dictionary_of(ordinary_pieces(pieces)), pieces, ["A"], max_length=40, stride=4, word_pooling="mean", notes=Notes()
    )
    lines = ["ab cd ab", "cd", "ab ☃ e"]
    whole = [windows.encode(line).tolist() for line in lines]
    assert [len(ids) for ids in whole] == [8 + prefix, 2 + prefix, 6 + prefix]
    for line, ids in zip(lines, whole):
        (window,) = windows(TaggedSentence("1", "f", tuple(line.split()), ("A",) * len(line.split())))
        assert window.tokens[1:-1].tolist() == ids
    found = _sentences(SimpleNamespace(encoder=windows.encoder), lines, "x")
    assert [sentence.ids for sentence in found] == whole
    assert found[0].words == [0] * (2 + prefix) + [1] * 3 + [2] * 3


# Files


@pytest.mark.parametrize("name, content, message", [
    ("a.tsv", "sentence1\tsentence2\nx\ty\tz\n", "line 2: has 3 columns, but line 1 has 2"),
    ("a.tsv", "x\ty\tz\tw\n", "line 1: has 4 columns, not 2 sentences and a label"),
    ("a.json", [], "is not in SQuAD's format"), ("a.json", {"data": 3}, "is not in SQuAD's format"),
    ("a.json", {"data": [{"paragraphs": [{"context": "c", "qas": [{"question": "?"}]}]}]}, "SQuAD's format: 'id' is missing"),
    ("a.json", {"data": [{"paragraphs": [{"context": "c", "qas": [{"id": 1, "question": "?", "answers": [
        {"text": "c", "answer_start": "0"}]}]}]}]}, "question 1: is not in SQuAD's format"),
])  # fmt: skip
def test_files_of_another_form_are_told(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=message):
        read_examples(path, "en", "span" if name == "a.json" else "classification")


def test_files_of_another_task_are_told(tmp_path):
    with pytest.raises(UserError, match=r"a\.tsv\.gz: is not a file of --nlu-task span: \*\.json, plain, \.gz or \.xz"):
        read_examples(tmp_path / "a.tsv.gz", "en", "span")
    with pytest.raises(
        UserError, match=r"a\.json: is not a file of --nlu-task tagging: \*\.conllu, \*\.tsv, plain, \.gz or \.xz"
    ):
        read_examples(tmp_path / "a.json", "en", "tagging")
    for name in (
        "train-en.tsv",
        "train-zh-Hant.tsv.gz",
        "train-de.json",
        "train-.tsv",
        "x-train-fr.tsv",
        "train-es.tsv.bz2",
        "train-sw.tsv.xz",
    ):
        (tmp_path / name).touch()
    assert list(find_files(tmp_path, "train", "classification")) == ["en", "sw", "zh-Hant"]
    assert find_files(tmp_path / "none", "train", "classification") == {}
    (tmp_path / "seen+(1-de.tsv").touch()  # a set's name is no pattern
    assert list(find_files(tmp_path, "seen+(1", "classification")) == ["de"]


def test_a_word_without_a_tag_is_read_and_not_learnt(make):
    windows = make()
    (window,) = windows(TaggedSentence("", "f", ("a", "b", "c"), ("B", "", "A")))
    assert window.target.tolist() == [1, IGNORE, 0] and windows.notes.lines() == []


def test_ids_lines_and_tags_of_sentences(tmp_path):
    """A comment after the id leaves it; ``_`` is no tag; blank lines at both ends count as lines alone."""
    tail = "\t_" * 6
    rows = f"1\ta\t_\tX{tail}\n2\tb\t_\t_{tail}\n"
    path = tmp_path / "a.conllu"
    path.write_text(f"\n\n# sent_id = s\n# text = a = b\n{rows}\n\n# only = this\n\n{rows.replace('X', '_')}\n")
    found = [(one.id, one.where, one.words, one.tags) for one in read_examples(path, "de", "tagging")]
    assert found == [("s", f"{path}, line 3", ("a", "b"), ("X", "")), ("", f"{path}, line 11", ("a", "b"), ())]
    path = tmp_path / "a.b.tsv"
    path.write_text("de:\tO\nde:b c\tB-X\n\n\nx\tO\n\n# sent_id = t\n\n")
    found = [(one.id, one.where, one.words, one.tags) for one in read_examples(path, "de", "tagging")]
    assert found == [("", f"{path}, line 1", ("de:", "b c"), ("O", "B-X")), ("", f"{path}, line 5", ("x",), ("O",))]
    path.write_text("a\nb O\n")
    with pytest.raises(UserError, match="line 2: has 2 columns, not only a word, as in the first line"):
        read_examples(path, "de", "tagging")
    path.write_text("a O x\n")
    with pytest.raises(UserError, match="line 1: has 3 columns, not a word and its tag"):
        read_examples(path, "de", "tagging")
