# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Columns of requests and answers, parts of long lines, and links between words, worked out by hand."""

import io
from types import SimpleNamespace

import pytest
import torch
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer, sentencepiece_model_pb2

from veco_fairseq.data.sentencepiece import train_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.inference.requests import (
    Hypothesis,
    Request,
    between_spaces,
    checked,
    in_lines,
    join_parts,
    read_requests,
    split,
    word_links,
    word_numbers,
)
from veco_fairseq.inference.translator import Translator


@pytest.mark.parametrize(
    "text, longest, parts",
    [
        ("▁a b ▁c", 3, ["▁a b ▁c"]),
        ("▁a ▁b . ▁c ▁d ▁e", 4, ["▁a ▁b .", "▁c ▁d ▁e"]),  # after a sentence
        ("▁a . ▁b . ▁c ▁d", 5, ["▁a . ▁b .", "▁c ▁d"]),  # after the last that fits
        ("▁a ▁b c d ▁e", 3, ["▁a", "▁b c d", "▁e"]),  # before a word
        ("▁a b c d e", 2, ["▁a b", "c d", "e"]),  # a word that is too long
        ('▁a ." ▁b ▁c', 3, ['▁a ."', "▁b ▁c"]),
        ("▁a . ” ) ▁b ▁c", 5, ["▁a . ” )", "▁b ▁c"]),  # what closes the sentence are pieces of their own
        ("▁他 来 了 。 我 走 了 。", 6, ["▁他 来 了 。", "我 走 了 。"]),  # no spaces
        ("▁他 来 了 ! ” 我 走", 6, ["▁他 来 了 ! ”", "我 走"]),  # NFKC makes these marks narrow
        ("▁他 来 了 我 , 走 了", 4, ["▁他 来 了", "我 , 走 了"]),  # the comma stays with what is before it
        ("▁2 年 来 了 我 走", 4, ["▁2 年 来 了", "我 走"]),
        ("▁ス ー パ ー で す", 3, ["▁ス ー", "パ ー で", "す"]),
        ("▁a ▁㐂 㐮 䶵 㐂", 3, ["▁a ▁㐂 㐮", "䶵 㐂"]),  # rare characters, as of names
        ("▁a ▁ｱ ｲ ｳ ｴ", 3, ["▁a ▁ｱ ｲ", "ｳ ｴ"]),  # halfwidth, of a model without NFKC
        ("▁a 我 b c ▁d", 3, ["▁a 我", "b c ▁d"]),
        ("", 3, []),
    ],
)
def test_split(text, longest, parts):
    assert [" ".join(part) for part in split(text.split(), longest)] == parts


@pytest.mark.parametrize("end", [*".!?…。！？؟।۔॥။።։།", ".'", '.")', "?]", ".»", "!”", ".’", "。」", "！』", "?）"])
def test_a_sentence_may_end_with_any_of_these(end):
    assert list(split(["▁a", f"▁b{end}", "▁c", "▁d"], 3)) == [["▁a", f"▁b{end}"], ["▁c", "▁d"]]
    assert list(split(["▁a", f"▁{end}b", "▁c", "▁d"], 3)) == [["▁a", f"▁{end}b", "▁c"], ["▁d"]]


def test_requests_of_a_generator_are_a_list():
    requests = [Request("a"), Request("", "b", ("c", "d")), Request("e", constraints=["f"])]
    assert checked(iter(requests)) == requests


@pytest.mark.parametrize(
    "wrong, told",
    [
        (Request("b", constraints="cd"), "constraints: 'cd' is one alone, where a list is needed: put it into [ ]"),
        (Request(None), "'None' is of type NoneType, no text: give a str"),
        (Request("b", 7), "'7' is of type int, no text: give a str"),
        (Request("b", "", ("c", b"d")), "\"b'd'\" is of type bytes, no text: give a str"),
        (Request("b\ud83d"), r"has '\ud83d', half of a character of UTF-16: read the text with its own encoding"),
        ("b", "'b' is of type str: give Request(TEXT)"),
    ],
)
def test_what_is_no_request_is_told_with_its_place(wrong, told):
    """The letters of a constraint were constraints, and the others ended in errors of SentencePiece's that said not where."""
    with pytest.raises(UserError) as caught:
        checked([Request("a"), wrong, Request("c")])
    assert str(caught.value) == f"line 1 (counted from 0): {told}"


def test_columns():
    lines = ["a b\tc", "a\t\td\t\te f", "a"]
    assert list(read_requests(lines)) == [Request("a b\tc"), Request("a\t\td\t\te f"), Request("a")]
    assert list(read_requests(lines, prefixes=True)) == [Request("a b", "c"), Request("a"), Request("a")]
    constrained = [Request("a b", "", ("c",)), Request("a", "", ("d", "e f")), Request("a")]
    assert list(read_requests(lines, constraints=True)) == constrained
    both = [Request("a b", "c"), Request("a", "", ("d", "e f")), Request("a")]
    assert list(read_requests(lines, prefixes=True, constraints=True)) == both


@pytest.mark.parametrize("pieces, numbers", [
    ("▁a b ▁c", [0, 0, 1]),
    ("a ▁b", [0, 1]),  # the rest of a word
    ("▁ a b ▁c ▁ d", [0, 0, 0, 1, 2, 2]),  # a space that is a piece of its own
    ("▁ a <unk> b ▁c", [0, 0, 1, 2, 3]),  # its text has spaces around ⁇
    ("▁a ▁ <unk> <unk> ▁ b", [0, 1, 1, 2, 3, 3]),
    ("<unk> b", [0, 1]),
    ("", []),
])  # fmt: skip
def test_word_numbers(pieces, numbers):
    assert word_numbers(pieces.split()) == numbers


@pytest.mark.parametrize("line, words, numbers", [
    ("«\u00a0a\u00a0» b", "« a » b", [0, 0, 0, 1]),
    ("don´t b", "don \u0301t b", [0, 0, 1]),  # NFKC makes a space and a mark of it
    ("a \u200b b", "a b", [0, 2]),
    ("\u200ba\u3000b\tb  \u00bd", "a b b 1\u20442", [0, 0, 1, 2]),
    ("a b", "a b", [0, 1]),
])  # fmt: skip
def test_words_of_a_line_are_those_between_spaces(line, words, numbers):
    """... and not those that pieces of XLM-R's normalisation begin, of which each has a link here."""
    pieces = SentencePieceProcessor(model_proto=train_sentencepiece(["don a b c"] * 9, 20, character_coverage=1, at_most=True))
    assert pieces.normalize(line) == "▁" + words.replace(" ", "▁")
    found = between_spaces(Hypothesis("", -1.0, [(word, word) for word in range(len(numbers))]), line, pieces)
    assert found.links == [(number, word) for word, number in enumerate(numbers)]
    assert between_spaces(Hypothesis("", -1.0, []), line, pieces).links == []


@pytest.mark.parametrize("line, numbers, of_bytes", [
    ("\tb c", [0, 1], [0, 1]),  # a tab before a word, of which fairseq drops the piece
    ("a \t b \tc", [0, 1, 2], [0, 0, 1, 2]),  # among words, where it is none, but has a byte
    ("a b ", [0, 1, 1], [0, 1, 1]),  # a last piece of a space alone
    ("\u2581", [0], [0]),  # a line of which no word is left
])  # fmt: skip
def test_words_of_a_model_that_does_not_normalise(line, numbers, of_bytes):
    """Each word that begins with a piece has a link to the line's word that it is in; some had been to word -1, or failed."""
    for byte_fallback, expected in ((False, numbers), (True, of_bytes)):
        model = io.BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c"] * 9), model_writer=model, vocab_size=10 + 256 * byte_fallback, byte_fallback=byte_fallback,
            normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        pieces = SentencePieceProcessor(model_proto=model.getvalue())
        words = sorted(set(word_numbers(" ".join(pieces.encode(line, out_type=str)).split())))
        found = between_spaces(Hypothesis("", -1.0, [(word, word) for word in words]), line, pieces)
        assert sorted(found.links, key=lambda link: link[1]) == list(zip(expected, words, strict=True))


@pytest.mark.parametrize("line, links", [
    ("\xa0", [(0, 0)]), ("don ", [(0, 0), (0, 1)]), ("a b  ", [(0, 0), (1, 1), (1, 2)]), (" \t", []),
])  # fmt: skip
def test_spaces_that_a_model_keeps_are_no_words(line, links):
    """A line of a no-break space had ended in an IndexError, and a space at a line's end had been a word behind its last."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(
        train_sentencepiece(["don a b c"] * 9, 20, character_coverage=1, at_most=True)
    )
    proto.normalizer_spec.remove_extra_whitespaces = False
    pieces = SentencePieceProcessor(model_proto=proto.SerializeToString())
    numbers = sorted(set(word_numbers(pieces.encode(line, out_type=str))))
    found = between_spaces(Hypothesis("", -1.0, [(word, word) for word in numbers]), line, pieces)
    assert found.links == links


def test_unknown_letters_that_spell_a_symbol_are_part_of_their_word(tmp_path):
    """``</s>`` had ended the source, and ``<unk>`` had been a word of its own; for fairseq-interactive, too."""
    path = tmp_path / "m"
    path.write_bytes(train_sentencepiece(["a b c"] * 9, 20, character_coverage=1, at_most=True))
    pieces = SentencePieceProcessor(model_file=str(path))
    text, told = "a<unk>b </s> c", "▁ a ＜unk> b ▁ ＜/s> ▁c"
    assert Translator.encode(SimpleNamespace(pieces=pieces), [text, "a"]) == [told.split(), ["▁", "a"]]
    assert word_numbers(told.split()) == [0, 0, 0, 0, 1, 1, 2]
    config = SimpleNamespace(sentencepiece_model=str(path), sentencepiece_enable_sampling=False, sentencepiece_alpha=None)
    assert SentencepieceBPE(config).encode(text) == told


def test_links_are_of_the_source_piece_that_is_looked_at_most():
    """Sources of 3 pieces and </s>, translations of 4 and </s>; the column of the third piece is largest at </s>."""
    attention = torch.tensor([
        [0.6, 0.1, 0.1, 0.2, 0.9],
        [0.3, 0.2, 0.2, 0.5, 0.0],
        [0.1, 0.6, 0.1, 0.3, 0.1],
        [0.0, 0.1, 0.6, 0.0, 0.0],
    ])  # fmt: skip
    # words of x: "▁a b" and "▁c"; of y: "▁d", "▁e f" and "▁g"
    assert word_links(attention, ["▁a", "b", "▁c"], ["▁d", "▁e", "f", "▁g"]) == [(0, 0), (0, 1), (0, 2), (1, 1)]
    # two words of y, "d ⁇", and a space behind them; "d <unk>f" has three
    assert word_links(attention, ["▁a", "b", "▁c"], ["▁d", "<unk>", "▁"]) == [(0, 0), (1, 1)]
    assert word_links(attention, ["▁a", "b", "▁c"], ["▁d", "<unk>", "f"]) == [(0, 0), (0, 2), (1, 1)]
    assert word_links(attention, [], ["▁d"]) == word_links(attention, ["▁a"], []) == []


def test_parts_are_joined_with_their_words_one_after_the_other():
    parts = [Hypothesis("x y", -1.0, [(0, 1), (2, 0)], 3), Hypothesis("z", -2.0, [(0, 0)], 1)]
    assert join_parts(parts, [0, 3]) == Hypothesis("x y z", -1.25, [(0, 1), (2, 0), (3, 2)], 4)
    assert join_parts([], []) == Hypothesis("", 0.0, [])


@pytest.mark.parametrize("texts, joined, second", [
    (("a b.", "c d"), "a b. c d", 2),
    (("他来了。", "我走了"), "他来了。我走了", 0),
    (("I B M", "他来"), "I B M他来", 2),  # the word that is linked goes on
    (("スーパー", "a b"), "スーパーa b", 0),
    (("㐂㐮", "䶵"), "㐂㐮䶵", 0),
    (("ﾊﾟ", "a b"), "ﾊﾟa b", 0),
    (("안녕.", "예"), "안녕. 예", 1),
    (("a", "", "c"), "a c", 1),
])  # fmt: skip
def test_parts_are_joined_as_their_language_is_written(texts, joined, second):
    parts = [Hypothesis(text, -1.0, [(0, 0)] if text else [], 1) for text in texts]
    found = join_parts(parts, range(0, 5 * len(parts), 5))
    assert found.text == joined and [j for _, j in found.links] == [0, second]


@pytest.mark.parametrize("lenpen, score", [(0.0, -8.0), (1.0, -8 / 4), (2.0, -8 / 16)])
def test_the_score_of_a_long_line_is_that_of_all_its_pieces(lenpen, score):
    """Three pieces of log probabilities of -6 together, and one of -2."""
    parts = [Hypothesis("x y", -6.0 / 3**lenpen, [], 3), Hypothesis("z", -2.0, [], 1)]
    assert join_parts(parts, [0, 3], lenpen).score == pytest.approx(score)
    assert join_parts(parts[:1], [0], lenpen) == parts[0]


def test_lines_of_answers():
    found = [Hypothesis("x y", -0.25, [(0, 1), (2, 0)]), Hypothesis("z", -1.23456, [])]
    assert list(in_lines(3, found, nbest=False, alignment=False)) == ["x y"]
    assert list(in_lines(3, found, nbest=False, alignment=True)) == ["x y ||| 0-1 2-0"]
    assert list(in_lines(3, found, nbest=True, alignment=False)) == ["3 ||| x y ||| -0.2500", "3 ||| z ||| -1.2346"]
    assert list(in_lines(3, found, nbest=True, alignment=True)) == [
        "3 ||| x y ||| 0-1 2-0 ||| -0.2500",
        "3 ||| z |||  ||| -1.2346",
    ]
