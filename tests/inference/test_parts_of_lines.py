# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What each part of a long line is translated with, and for how long: a word is a piece, and nothing is computed."""

from types import SimpleNamespace
from unittest import mock

import pytest
from fairseq.dataclass.configs import GenerationConfig

from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.inference import translator as module
from veco_fairseq.inference.requests import Hypothesis, Request, join_parts
from veco_fairseq.inference.search import settled
from veco_fairseq.inference.translator import Part, Translator


@pytest.fixture
def translator():
    translator, words = Translator.__new__(Translator), dictionary_of(["▁x", "▁y"])
    translator.pieces = SimpleNamespace(encode=lambda lines, out_type: [[f"▁{word}" for word in line.split()] for line in lines])
    translator.task = mock.Mock(source_dictionary=words, target_dictionary=words)
    translator.search, translator.max_pieces, translator.batch_size, translator.max_tokens = GenerationConfig(), 2, 3, 20
    translator.turn = mock.MagicMock()
    return translator


def test_the_first_part_alone_begins_with_the_prefix(translator):
    """Also where the third part has the words of the first."""
    seen = []
    translator._translate = lambda parts, done: seen.extend(parts) or [[Hypothesis("t", -1.0, [], 1)] for _ in parts]
    translator.hypotheses([Request("a b c d a b", "x y"), Request("e", "y")])
    prefixes = [("".join(part.source), "".join(part.prefix)) for part in seen]
    assert prefixes == [("▁a▁b", "▁x▁y"), ("▁c▁d", ""), ("▁a▁b", ""), ("▁e", "▁y")]


def test_constraints_are_as_they_are_inside_a_text(translator, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "inside_a_text", lambda pieces, model: [*pieces, "▁y"])
    translator._translate = lambda parts, done: seen.extend(parts) or [[Hypothesis("t", -1.0, [], 1)] for _ in parts]
    translator.search = GenerationConfig(constraints="ordered")
    translator.hypotheses([Request("a", "x", (" ", "x"))])
    assert seen == [Part(["▁a"], ["▁x"], [["▁x", "▁y"]])]


def test_links_of_later_parts_count_words_between_ascii_spaces():
    """A word with a no-break space counted twice, so that all links behind it were one too high."""
    parts = [Hypothesis("10\u00a0000 x", -1.0, [(0, 0)], 2), Hypothesis("y", -1.0, [(0, 0)], 1)]
    assert join_parts(parts, [0, 3]).links == [(0, 0), (3, 2)]


def test_links_count_the_sources_words_between_ascii_spaces(translator):
    """In all of its parts: to SentencePiece the first word is two, so that all links behind it were one too high."""
    found = [Hypothesis("t u", -1.0, [(0, 0), (1, 1)], 2)], [Hypothesis("v", -1.0, [(0, 0)], 1)]
    translator._translate = lambda parts, done: list(found)
    translator.pieces.normalize = lambda line, with_offsets: ("▁a▁b▁c", [0, 0, 1, 2, 3, 4, 5])
    translator.pieces.piece_to_id, translator.pieces.is_byte = lambda piece: 0, lambda number: False  # has no bytes
    ((joined,),) = translator.hypotheses([Request("a\u00a0b c")])
    assert joined.links == [(0, 0), (0, 1), (1, 2)]


@pytest.mark.parametrize("beside, sizes", [(1, [3, 2]), (2, [4, 3])])
def test_a_translations_length_follows_from_all_tokens_of_its_source(translator, monkeypatch, beside, sizes):
    """``</s>`` and a language's token count, as in fairseq-generate."""
    translator.beside, translator.lengths = beside, mock.Mock(**{"begin.return_value": [9, 9]})
    monkeypatch.setattr(module, "by_length", lambda *_: [])
    Translator._translate(translator, [Part(["▁x", "▁y"], [], []), Part(["▁x"], [], [])], list)
    translator.lengths.begin.assert_called_once_with(sizes)


@pytest.mark.parametrize("unnormalized, score", [(False, -3.0), (True, -8.0)])
def test_the_score_of_a_long_line_is_normalised_as_its_parts_are(translator, unnormalized, score):
    """By the square of the length: 3 for one piece, and 45 for three, of 16."""
    translator.search = GenerationConfig(lenpen=2.0, unnormalized=unnormalized)
    translator._translate = lambda parts, done: [[Hypothesis("t", -3.0, [], 1)], [Hypothesis("u v w", -5.0, [], 3)]]
    ((found,),) = translator.hypotheses([Request("a b c")])
    assert (found.text, found.score, found.length) == ("t u v w", score, 4)


def test_constraints_that_the_search_would_pass_over_are_told(translator):
    """``Translator(...).hypotheses`` had given translations without them."""
    translator._translate = lambda parts, done: [[Hypothesis("t", -1.0, [], 1)] for _ in parts]
    requests = [Request("a"), Request("b", constraints=("x",))]
    with pytest.raises(UserError, match="^'b'...: has constraints, which the search does not take: give it GenerationConfig"):
        translator.hypotheses(requests)
    with pytest.raises(UserError, match="^line 0 .*: constraints: 'xy' is one alone"):
        translator.hypotheses([Request("b", constraints="xy")])
    assert len(translator.hypotheses(iter(requests[:1]))) == 1
    translator.search = GenerationConfig(constraints="ordered")
    assert len(translator.hypotheses(requests)) == 2


def test_no_more_translations_than_the_beam_finds_can_be_asked_for():
    """With a beam of 3, ``nbest=4`` had given 3 of each line."""
    assert settled(search := GenerationConfig(beam=3, nbest=3)) is search
    with pytest.raises(UserError, match="^--nbest 4: a search with --beam 3 finds at most 3: give a larger --beam$"):
        settled(GenerationConfig(beam=3, nbest=4))
    drawing = GenerationConfig(beam=3, nbest=4, sampling=True)
    assert settled(drawing).beam == 4 and drawing.beam == 3


def test_a_search_that_would_pass_over_one_of_its_options_is_refused():
    with pytest.raises(UserError, match="^--sampling-topk and --sampling-topp: give only one of them$"):
        settled(GenerationConfig(sampling=True, sampling_topk=5, sampling_topp=0.9))
    with pytest.raises(UserError, match="^--constraints and --sampling: are different searches: leave out one of the two$"):
        settled(GenerationConfig(sampling=True, constraints="ordered"))
