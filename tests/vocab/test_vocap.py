# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VoCap: ALP, sizes, allocation and union by hand, and the command on generated and real text."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from support.vocab import SPACE, text

from veco_fairseq.data.sentencepiece import train_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.vocab import alp, sizes
from veco_fairseq.vocab.allocation import allocate, sampling_probabilities
from veco_fairseq.vocab.alp import Words, average_log_probability, count_pieces, without_normaliser, words_of
from veco_fairseq.vocab.sizes import META, Vocabularies, all_sizes, shrink
from veco_fairseq.vocab.union import union_model


def proto_of(serialised: bytes) -> sentencepiece_model_pb2.ModelProto:
    return sentencepiece_model_pb2.ModelProto.FromString(serialised)


def processor_of(serialised: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=serialised)


def hand_made(pieces):
    """A model of these pieces and log probabilities."""
    model = proto_of(train_sentencepiece(text(1, 400), 100, character_coverage=1.0))
    del model.pieces[META:]
    for piece, score in pieces.items():
        model.pieces.add(piece=piece, score=score, type=1)
    return model


def test_alp_by_hand():
    """Two sentences, "ab a" and "b": pieces _ab, _a and _ b, four of them, of which each is one."""
    model = hand_made({SPACE: -2.0, SPACE + "a": -1.5, SPACE + "ab": -2.0, "a": -3.0, "b": -3.0})
    words = words_of(["ab a", "", "b"], sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString()))
    assert (words.texts, words.counts.tolist(), words.sentences) == ([SPACE + w for w in ("a", "ab", "b")], [1] * 3, 2)
    counts = count_pieces(words, without_normaliser(model))
    assert counts.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    assert average_log_probability(counts, 2) == pytest.approx(4 * math.log(1 / 4) / 2)
    # Three pieces, of which one makes two: sentence 1 is (x, x), sentence 2 is y.
    assert average_log_probability(np.array([2, 1]), 2) == pytest.approx((2 * math.log(2 / 3) + math.log(1 / 3)) / 2)


def test_each_space_that_a_model_keeps_counts():
    """Of a model that leaves several spaces as they are, also those at a line's beginning: each is a piece of its own."""
    model = hand_made({SPACE: -2.0, SPACE + "a": -1.5, "a": -3.0, "b": -3.0})
    model.normalizer_spec.remove_extra_whitespaces = False
    processor = processor_of(model.SerializeToString())
    lines = ["  a  b ", "a", " ", "b   a"]
    counts = count_pieces(words_of(lines, processor), without_normaliser(model))
    expected = np.bincount([piece for line in lines for piece in processor.encode(line)], minlength=len(counts))
    assert counts.tolist() == expected.tolist() and counts[3] == 10  # a space begins each line, too


def test_counting_words_is_counting_sentences(monkeypatch):
    monkeypatch.setattr(alp, "WORDS_A_BATCH", 7)
    lines = [*text(1), "  ａｂ\u3000cd  ef ", "half…way ① \u00a0ab", " ", "zzz?", "zzz?"]  # NFKC makes spaces and letters of some
    processor = sentencepiece.SentencePieceProcessor(model_proto=train_sentencepiece(text(1), 120, character_coverage=1.0))
    words = words_of(lines, processor)
    counts = count_pieces(words, without_normaliser(proto_of(processor.serialized_model_proto())))
    by_sentence = np.bincount(np.concatenate(processor.encode(lines)).astype(int), minlength=len(processor))
    assert counts[1 : len(processor)].tolist() == by_sentence[1:].tolist()
    # l, w, y, 1, two ?, three dots and six z, which the model has no letter for.
    assert sorted(counts[len(processor) :].tolist()) == [1, 1, 1, 1, 2, 3, 6]
    assert words.sentences == len(lines) - 1


def test_worth_of_a_piece_by_hand():
    """_ab stands for (_, a, b) 5 times; without it they would be 15, 11 and 13 of 34 + 2 * 5 pieces instead."""
    pieces = {"a": -2.2, "b": -2.1, SPACE + "ba": -9.0, SPACE: -2.0, SPACE + "ab": -2.5}
    model, counts = hand_made(pieces), np.array([0, 0, 0, 6, 8, 5, 10, 5])
    total, instead = 34, 34 + 2 * 5
    expected = 5 * (math.log(5 / total) - sum(math.log(n / instead) for n in (15, 11, 13)))
    # _ba is not even its own best segmentation: nothing is lost with it. Characters are beyond price.
    assert sizes._worth(model, counts).tolist() == pytest.approx([math.inf, math.inf, 0, math.inf, expected])


def test_sizes_are_nested_and_lose_the_least_at_each_step():
    lines = text(1)
    model, found = all_sizes(lines, 1000, largest=300, step=50, coverage=1.0)
    most = len(proto_of(model).pieces) - META
    assert found.sizes == [50, 100, 150, 200, 250, most] and found.instances == 1000
    vocabularies = [found.of_size(size) for size in found.sizes]
    assert [len(vocabulary) for vocabulary in vocabularies] == found.sizes
    assert all(small.keys() < large.keys() for small, large in itertools.pairwise(vocabularies))
    assert set("abcdefgh") <= vocabularies[0].keys()
    assert (np.diff(found.alp) > 0).all()
    # Against a model trained for each size, as the paper does it.
    _, every = all_sizes(lines, 1000, largest=300, step=50, coverage=1.0, every_size=True)
    assert every.sizes == found.sizes
    assert found.alp == pytest.approx(every.alp, rel=0.02)
    assert {**found.words.__dict__, "counts": None} == {**words_of(lines, processor_of(model)).__dict__, "counts": None}


@pytest.mark.parametrize("every_size", [False, True])
def test_the_largest_vocabulary_is_sentencepieces_own(every_size):
    """Its scores, too; only the smaller ones are estimated anew."""
    model, found = all_sizes(text(1), 1000, largest=300, step=50, coverage=1.0, every_size=every_size)
    expected = {piece.piece: piece.score for piece in proto_of(model).pieces[META:]}
    assert found.of_size(found.sizes[-1]) == pytest.approx(expected, abs=1e-6)


def test_what_is_dropped_is_worth_less_than_other_pieces(monkeypatch):
    lines = text(1)
    model = proto_of(train_sentencepiece(lines, 300 + META, character_coverage=1.0, at_most=True))
    words = words_of(lines, processor_of(model.SerializeToString()))
    counts = count_pieces(words, without_normaliser(model))
    small, of_small = shrink(model, counts, words, 150)
    assert of_small.sum() > counts.sum() and len(small.pieces) == 150 + META
    assert sum(math.exp(piece.score) for piece in small.pieces[META:]) == pytest.approx(1, abs=0.01), "estimated anew"
    rng = np.random.default_rng(1)
    monkeypatch.setattr(sizes, "_worth", lambda model, counts: np.array(
        [np.inf if len(piece.piece) == 1 else rng.random() for piece in model.pieces[META:]]))  # fmt: skip
    _, at_random = shrink(model, counts, words, 150)
    assert average_log_probability(of_small, words.sentences) > 0.9 * average_log_probability(at_random, words.sentences)


def test_characters_of_lines_that_the_trainer_leaves_out_are_there():
    """It takes no line with its own marks, such as a literal <unk>; and a very long line is a line like others."""
    model, found = all_sizes([*text(1), "<unk> §", "жук " * 3000], 1, largest=100, step=50, coverage=1.0)
    assert set("§жук<>") <= found.of_size(50).keys()
    processor = processor_of(model)
    assert processor.unk_id() not in processor.encode("§ жук")


def test_what_a_vocabulary_cannot_spell_does_not_make_it_better():
    greek = text(4, letters="αβγδεζη")
    own, other = (train_sentencepiece(lines, 60, character_coverage=1.0) for lines in (greek, text(1)))
    found = {}
    for name, model in (("own", own), ("other", other)):
        words = words_of(greek, processor_of(model))
        found[name] = average_log_probability(count_pieces(words, without_normaliser(proto_of(model))), words.sentences)
    assert found["own"] > found["other"]
    # A space and two characters that it lacks, one of them twice: four pieces.
    words = words_of(["ηξ", "ξ"], processor_of(other))
    counts = count_pieces(words, without_normaliser(proto_of(other)))
    assert sorted(counts[counts > 0].tolist()) == [1, 2, 2]


def test_saved_vocabularies_are_the_same_and_damaged_ones_are_told(tmp_path):
    _, found = all_sizes(text(1), 7, largest=120, step=50, coverage=1.0)
    found.save(tmp_path / "x.npz")
    again = Vocabularies.load(tmp_path / "x.npz")
    assert (again.pieces, again.sizes, again.instances) == (found.pieces, found.sizes, 7)
    assert np.array_equal(again.scores, found.scores, equal_nan=True) and np.array_equal(again.alp, found.alp)
    assert (again.words.texts, again.words.sentences) == (found.words.texts, 400)
    assert np.array_equal(again.words.counts, found.words.counts)
    whole = (tmp_path / "x.npz").read_bytes()
    for spoilt in (whole[:200], whole[:100] + bytes(byte ^ 0x55 for byte in whole[100:300]) + whole[300:]):
        (tmp_path / "x.npz").write_bytes(spoilt)
        with pytest.raises(UserError, match="x.npz: is damaged: remove it, and run the command again"):
            Vocabularies.load(tmp_path / "x.npz")
    for cut in ({"alp": found.alp[1:]}, {"scores": found.scores[1:]}, {"pieces": found.pieces[1:]}):
        replace(found, **cut).save(tmp_path / "x.npz")
        with pytest.raises(UserError, match="x.npz: is damaged"):
            Vocabularies.load(tmp_path / "x.npz")


def test_too_many_characters_for_the_largest_size():
    with pytest.raises(UserError, match="--largest 5: is below the number of the text.s characters"):
        all_sizes(text(1), 1, largest=5, step=1, coverage=1.0)


def test_another_refusal_of_the_trainer_is_told_as_it_is(monkeypatch):
    monkeypatch.setattr(sizes, "train_sentencepiece", mock.Mock(side_effect=UserError("--vocab-size 8: another")))
    with pytest.raises(UserError, match="^--vocab-size 8: another$"):
        all_sizes(text(1), 1, largest=5, step=1, coverage=1.0)


def made_up(name: str, alp, step: int = 2, instances: int = 100, shared=()) -> Vocabularies:
    """Vocabularies of ``step``, 2 ``step``, ... pieces: those shared, then the language's own."""
    steps = [step * (place + 1) for place in range(len(alp))]
    pieces = [*shared, *(f"{name}{number:02}" for number in range(steps[-1] - len(shared)))]
    scores = np.full((len(steps), len(pieces)), np.nan, dtype=np.float32)
    for place, size in enumerate(steps):
        scores[place, :size] = -np.arange(1, size + 1)
    return Vocabularies(pieces, steps, scores, np.array(alp, dtype=float), instances, Words([], np.array([]), 0))


def test_sampling_probabilities_by_hand():
    found = sampling_probabilities({"a": made_up("a", [-1], instances=100), "b": made_up("b", [-1], instances=25)}, 0.5)
    assert found == {"a": pytest.approx(10 / 15), "b": pytest.approx(5 / 15)}


@pytest.mark.parametrize("total", range(6, 24, 2))
@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_allocation_is_the_best_of_all(total, beta):
    """Against every choice of sizes whose union has as many pieces (equation 2): the gains become smaller with size."""
    languages = {
        "aa": made_up("a", [-50, -30, -22, -19, -18], instances=400),
        "bb": made_up("b", [-60, -35, -25, -21, -19.5], instances=100),
        "cc": made_up("c", [-40, -28.1, -24.3, -22.9, -22.2], instances=25),
    }
    q = sampling_probabilities(languages, 0.7)
    best, best_score = None, -math.inf
    for places in itertools.product(range(5), repeat=3):
        chosen = {name: of.sizes[place] for (name, of), place in zip(languages.items(), places)}
        score = sum(q[name] ** beta * of.alp[place] for (name, of), place in zip(languages.items(), places))
        if sum(chosen.values()) == total and score > best_score:
            best, best_score = chosen, score
    found = allocate(languages, total, 0.7, beta)
    assert found.sizes == best
    assert len(found.pieces) == total and found.clipped == 0


def test_the_union_is_what_reaches_the_size_and_its_last_pieces_are_clipped():
    languages = {
        "aa": made_up("a", [-9, -5, -4], step=4, shared=("x", "yy", "zz")),
        "bb": made_up("b", [-9, -6, -5.5], step=4, shared=("x", "yy", "zz")),
    }
    # First 4 each, of which 3 are the same: 5. Then aa's next 4, of which the least probable does not fit.
    found = allocate(languages, 8, 0.7, 0.7)
    assert found.sizes == {"aa": 8, "bb": 4} and found.clipped == 1
    assert found.pieces == {"x", "yy", "zz", "a00", "b00", "a01", "a02", "a03"}
    # All of both are 3 + 9 + 9.
    for more in (22, 100):
        found = allocate(languages, more, 0.7, 0.7)
        assert len(found.pieces) == 21 and found.clipped == 0
    with pytest.raises(UserError, match="--size 6: is too small: the smallest vocabularies of 1 of 2 languages already have 7"):
        allocate(languages, 3, 0.7, 0.7)


def test_characters_are_not_clipped():
    of = made_up("a", [-9, -5], step=2)
    of.pieces[3] = "q"  # the least probable
    assert allocate({"aa": of}, 3, 0.7, 0.7).pieces == {"a00", "a01", "q"}
    of.pieces[:2] = "op"
    with pytest.raises(UserError, match="--size 4: is too small: the smallest vocabularies of 1 of 1 languages already have 5"):
        allocate({"aa": of}, 1, 0.7, 0.7)


def test_union_mixes_probabilities_and_is_a_model():
    like = train_sentencepiece(text(1, 400), 100, character_coverage=1.0)
    scores = {"aa": {SPACE + "a": math.log(0.5), "b": math.log(0.5)}, "bb": {"b": math.log(0.1), "c": math.log(0.9)}}
    model = union_model([SPACE + "a", "b", "c"], scores, {"aa": 0.8, "bb": 0.2}, like)
    pieces = [(piece.piece, pytest.approx(piece.score, rel=1e-6)) for piece in proto_of(model).pieces[META:]]
    assert pieces == [("b", math.log(0.42)), (SPACE + "a", math.log(0.4)), ("c", math.log(0.18))]
    assert proto_of(model).trainer_spec.vocab_size == META + 3
    alike = union_model("zba", {"aa": dict.fromkeys("zab", -1.0)}, {"aa": 1.0}, like)
    assert [piece.piece for piece in proto_of(alike).pieces[META:]] == ["a", "b", "z"]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert processor.encode("abc", out_type=str) == [SPACE + "a", "b", "c"]
    assert [processor.id_to_piece(i) for i in range(META)] == ["<unk>", "<s>", "</s>"]


def test_pieces_that_a_larger_vocabulary_drops_are_not_in_the_union():
    of_size = {2: {"a": -1.0, "bb": -2.0}, 4: {"a": -1.0, "cc": -2.0, "dd": -3.0, "ee": -4.0}}
    one = SimpleNamespace(sizes=[2, 4], alp=[-9.0, -5.0], instances=100, of_size=of_size.get)
    two = SimpleNamespace(sizes=[2], alp=[-9.0], instances=100, of_size={2: {"a": -1.0, "zz": -2.0}}.get)
    assert allocate({"one": one, "two": two}, 5, 0.7, 0.7).pieces == {"a", "cc", "dd", "ee", "zz"}


def test_what_is_clipped_is_of_the_last_step_and_of_one_language():
    """Not what its language had before, nor what another one has, though both are less probable there."""
    of_size = {2: {"cc": -1.0, "ee": -2.0}, 5: {"cc": -1.0, "ee": -30.0, "bb": -20.0, "dd": -3.0, "ff": -4.0}}
    one = SimpleNamespace(sizes=[2], alp=[-9.0], instances=100, of_size={2: {"aa": -1.0, "bb": -2.0}}.get)
    two = SimpleNamespace(sizes=[2, 5], alp=[-9.0, -5.0], instances=100, of_size=of_size.get)
    found = allocate({"one": one, "two": two}, 5, 0.7, 0.7)
    assert (found.pieces, found.clipped) == ({"aa", "bb", "cc", "dd", "ee"}, 1)


def test_probabilities_of_what_is_unseen_by_hand():
    """A piece that does not occur counts as half of one; characters without a piece are a part of the text."""
    model = hand_made({"a": -1.0, "b": -1.0, "cc": -1.0})
    sizes.estimate(model, np.array([0, 0, 0, 3, 1, 0, 4]))
    assert [piece.score for piece in model.pieces[META:]] == pytest.approx([math.log(p) for p in (3 / 8, 1 / 8, 1 / 16)])
    words = Words(["ax", "b"], np.array([3, 1]), 2)
    sizes._add_characters(model, words, 0.999)
    assert len(model.pieces) == META + 3
    sizes._add_characters(model, words, 1.0)
    (added,) = model.pieces[META + 3 :]
    assert (added.piece, added.score, added.type) == ("x", pytest.approx(math.log(1 / 8)), sizes.NORMAL)


def test_a_size_that_has_room_for_characters_alone_is_left_out():
    """text has eight letters and the space."""
    for step, smallest in ((8, 16), (9, 18), (10, 10)):
        assert all_sizes(text(1, 99), 1, largest=24, step=step, coverage=1.0)[1].sizes[0] == smallest


@pytest.mark.parametrize("every_size", [False, True])
@pytest.mark.parametrize("coverage", [0.99, 1.0])
def test_a_rare_character_is_left_to_the_coverage(coverage, every_size):
    """In all sizes; some of the last line's are those that the trainer leaves out."""
    lines = [*text(1, 99), "§", "<unk> ж"]
    _, found = all_sizes(lines, 1, largest=60, step=25, coverage=coverage, every_size=every_size)
    rare = set("§ж<unk>")
    for size in found.sizes:
        assert found.of_size(size).keys() & rare == (rare if coverage == 1 else set())
