# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Searches of translate.py against fairseq-interactive's, with the same model of random weights."""

import re
import shutil
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.lstm import LSTMModel
from omegaconf import OmegaConf
from support.converted import translating
from support.searching import LIMITS, interactive, ours, searching

from veco_fairseq.errors import UserError
from veco_fairseq.inference.requests import Request, read_requests, word_numbers
from veco_fairseq.inference.translator import Translator

LINES = ["bal dem gim", "gul", "dol bem bal dil gan", "bin don"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Where the model of these tests is, once it is made."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def model(models, tmp_path, make_model):
    """A folder with a converted model, its vocabulary, and dictionaries by language."""
    if not (models / "made").exists():
        translating(models / "new", make_model).rename(models / "made")
    return shutil.copytree(models / "made", tmp_path / "model")


def close(found, expected):
    assert [[text for text, _ in line] for line in found] == [[text for text, _ in line] for line in expected]
    scores = [torch.tensor([score for line in lines for _, score in line]) for lines in (found, expected)]
    torch.testing.assert_close(*scores, atol=1e-3, rtol=1e-3)
    assert len({text for line in found for text, _ in line}) > len(found)


@pytest.mark.parametrize("nbest, lenpen", [(2, 0.4), (3, 1.7)])
def test_hypotheses_and_their_scores(model, nbest, lenpen):
    found = ours(model, [Request(line) for line in LINES], nbest=nbest, lenpen=lenpen)
    assert [len(line) for line in found] == [nbest] * len(LINES)
    close(found, interactive(model, LINES, "--nbest", nbest, "--lenpen", lenpen))


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_constraints(model, order):
    lines = ["bal dem gim\tgul\tbal", "gul", "dol bem bal dil gan\tdem"]
    requests = list(read_requests(lines, constraints=True))
    found = ours(model, requests, constraints=order, nbest=2)
    for request, line in zip(requests, found):
        words = line[0][0].replace(" ", "")
        assert all(constraint in words for constraint in request.constraints)
    close(found, interactive(model, lines, "--constraints", order, "--nbest", 2))


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_constraints_without_a_piece_are_none(model, order):
    """Spaces alone, or nothing. They ended in a traceback."""
    lines = ["bal dem gim\t \tgul", "gul\t \t  "]
    found = ours(model, list(read_requests(lines, constraints=True)), constraints=order, nbest=2)
    close(found, ours(model, [Request("bal dem gim", constraints=("gul",)), Request("gul")], constraints=order, nbest=2))
    close(found, interactive(model, lines, "--constraints", order, "--nbest", 2))


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_constraints_of_a_model_with_language_tokens(tmp_path, make_model, order):
    """Its translations end in </s> and a token: neither may come before the constraints are met."""
    folder = translating(tmp_path / "model", make_model, "[de] 1\n[en] 1\n")
    asked = [("gul",), ("bal dem bal",), ("gan", "dil"), ()]
    requests = [Request(line, constraints=one) for line, one in zip(LINES, asked, strict=True)]
    found = ours(folder, requests, constraints=order, nbest=3, max_len_b=14)
    for request, line in zip(requests, found, strict=True):
        assert line and all(constraint in text for text, _ in line for constraint in request.constraints)
    with pytest.raises(UserError, match="no translation of at most 3 pieces with its constraints was found"):
        ours(folder, requests[:1], constraints=order, max_len_b=3)


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_constraints_beside_a_prefix(model, order, beam):
    """They fit easily; where a prefix makes the constraints' tokens impossible, fairseq goes on with these and finds nothing."""
    asked = [("gim", ("bem", "gan")), ("bal bem", ("dil",)), ("dil gim", ("dol",)), ("", ("gul", "dem")), ("dem bal", ("bal",))]
    requests = [Request(line, *one) for line, one in zip([*LINES, LINES[0]], asked, strict=True)]
    search = searching(model, constraints=order, beam=beam, max_len_b=30)
    found = search(requests)
    for request, ((text, score), *_) in zip(requests, found, strict=True):
        after = text.removeprefix(request.prefix).replace(" ", "")
        assert text.startswith(request.prefix) and score > -100
        assert all(constraint in after or constraint in request.prefix for constraint in request.constraints)
    alone = [line for request in requests for line in search([request])]
    assert [[text for text, _ in line] for line in found] == [[text for text, _ in line] for line in alone]
    (free,) = interactive(model, ["bin don\tgul\tdem"], "--constraints", order, "--beam", beam, "--max-len-b", 30)
    assert found[3][0] == (free[0][0], pytest.approx(free[0][1], abs=1e-3))  # without a prefix it is fairseq's own search


def test_prefixes(model):
    """Of different lengths, or none, which changes nothing."""
    requests = [Request(LINES[0], "gul bal"), Request(LINES[1]), Request(LINES[2], "dem")]
    free = ours(model, [request._replace(prefix="") for request in requests])
    found = ours(model, requests)
    assert found[0][0][0].startswith("gul bal") and found[2][0][0].startswith("dem")
    assert not free[0][0][0].startswith("gul bal") and not free[2][0][0].startswith("dem")
    assert found[1][0][0] == free[1][0][0] and found[1][0][1] == pytest.approx(free[1][0][1], abs=1e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_prefix_of_an_empty_translation_is_its_end(model, beam):
    """Of fairseq-generate's --prefix-size. With a beam, its search went on after the end, until it failed."""
    translator = Translator([model / "model.pt"], data=model, cpu=True)
    search = OmegaConf.structured(GenerationConfig(beam=beam, max_len_b=9, prefix_size=1))
    generator = translator.task.build_generator(translator.models, search)
    source = torch.tensor([[7, 9, 12, 2], [5, 11, 6, 2]])
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([4, 4])}}
    (ended, *others), found = generator.generate(translator.models, sample, prefix_tokens=torch.tensor([[2], [8]]))
    assert not others and ended["tokens"].tolist() == [2] and ended["score"] > -100
    assert len(found) == beam and all(one["tokens"][0] == 8 for one in found)
    search.match_source_len = True  # no translation can be empty: fairseq's error, which is told in one line
    generator = translator.task.build_generator(translator.models, search)
    with pytest.raises(AssertionError, match=r"^4 < 4$"):
        generator.generate(translator.models, sample, prefix_tokens=torch.tensor([[2], [8]]))


def test_a_prefix_is_the_first_parts_and_constraints_are_no_long_lines(model):
    line = " ".join(LINES * 12)
    notes = []
    translator = Translator([model / "model.pt"], data=model, search=GenerationConfig(beam=2, max_len_a=1, max_len_b=2), cpu=True)
    (best,) = (found[0] for found in translator.hypotheses([Request(line, "gul")], lambda *note: notes.append(note)))
    assert best.text.startswith("gul") and notes[0][0] == 0 and "translated in" in notes[0][1]
    assert max(i for i, _ in best.links) > 40 and max(j for _, j in best.links) < len(best.text.split())
    translator.search = GenerationConfig(constraints="ordered")
    with pytest.raises(UserError, match="'bal dem gim gul dol bem bal di'...: has constraints and"):
        translator.hypotheses([Request(line, constraints=("gul",))])


def test_a_line_has_the_translations_that_it_has_alone(model):
    """Of the length that its own source allows, not the longest of the batch, and not empty beside a prefix."""
    search = searching(model, max_len_a=1, max_len_b=1, nbest=3)
    requests = [Request(LINES[0], "gul bal"), *map(Request, LINES[1:])]
    together = search(requests)
    alone = [found for request in requests for found in search([request])]
    assert [[text for text, _ in line] for line in together] == [[text for text, _ in line] for line in alone]
    assert len({len(line[0][0]) for line in together}) > 1
    translator = Translator([model / "model.pt"], data=model, cpu=True)
    translator.lengths.begin([1, 1])
    lprobs = torch.full((2, 1, len(translator.task.target_dictionary)), -20.0)
    lprobs[..., 2] = -0.1
    _, tokens, _ = translator.generator.search.step(0, lprobs, torch.zeros(2, 1, 0), torch.full((2, 1), 2), torch.arange(2))
    assert 2 not in tokens


def test_prefixes_and_constraints_that_do_not_fit(model):
    search = GenerationConfig(beam=2, max_len_a=0, max_len_b=3, constraints="ordered")
    translator = Translator([model / "model.pt"], data=model, search=search, cpu=True)
    with pytest.raises(UserError, match="'gul'...: has a prefix of [4-9] pieces, and its translation at most 3: shorten it"):
        translator.hypotheses([Request(LINES[0]), Request(LINES[1], "bal dem bal")])
    with pytest.raises(UserError, match="'gul'...: no translation of at most 3 pieces with its constraints was found"):
        translator.hypotheses([Request(LINES[0]), Request(LINES[1], constraints=("bal dem bal",))])


@pytest.mark.parametrize("words, piece", [("gul 7", "7"), ("日本 gul", "日本")])
def test_what_no_translation_can_hold_is_no_prefix_and_no_constraint(model, words, piece):
    """The model's <unk> would stand in its place, which is written as ⁇. In a source, every model takes it."""
    advice = f"has '{piece}', which is not in the model's vocabulary, so that no translation can hold it: leave it out"
    asked = [Request(LINES[0], "gul"), Request(words)]
    assert len(ours(model, asked)) == 2
    for what, request, search in (
        ("prefix", Request(LINES[1], words), {}),
        ("constraint", Request(LINES[1], constraints=("bal", words)), {"constraints": "ordered"}),
    ):
        with pytest.raises(UserError, match=rf"^'gul'...: its {what} {re.escape(advice)}$"):
            ours(model, [request], **search)


def test_a_model_of_no_numbers(model):
    translator = Translator([model / "model.pt"], data=model, cpu=True)
    for parameter in translator.models[0].parameters():
        parameter.data.fill_(float("nan"))
    with pytest.raises(UserError, match="'gul'...: the model gives no translation a probability"):
        translator.translate([LINES[1]])


def test_sampling_is_of_the_seed_and_its_options(model):
    def sampled(seed, **search):
        options = GenerationConfig(beam=2, nbest=2, sampling=True, **LIMITS, **search)
        translator = Translator([model / "model.pt"], data=model, search=options, cpu=True, seed=seed)
        return translator.hypotheses([Request(line) for line in LINES])

    assert sampled(3) == sampled(3) != sampled(4)
    greedy = ours(model, [Request(line) for line in LINES], beam=1)
    assert sampled(3, temperature=2.0) != sampled(3)
    for search in ({"sampling_topk": 1}, {"sampling_topp": 1e-6}):
        assert [line[0].text for line in sampled(5, **search)] == [line[0][0] for line in greedy]


def test_a_translator_draws_by_its_own_seed_alone(model):
    """Another one, and other random numbers, between its lines had changed what it drew; and it had set the program's seed."""

    def translator(seed):
        options = GenerationConfig(nbest=2, sampling=True, **LIMITS)
        return Translator([model / "model.pt"], data=model, search=options, cpu=True, seed=seed)

    alone, mixed, other = map(translator, (3, 3, 4))
    expected = [alone.hypotheses([Request(line)]) for line in [*LINES, *LINES]]
    for line, wanted in zip([*LINES, *LINES], expected):
        torch.rand(1)
        of_program = torch.random.get_rng_state()
        assert mixed.hypotheses([Request(line)]) == wanted and torch.equal(torch.random.get_rng_state(), of_program)
        other.hypotheses([Request(line)])
    assert expected[: len(LINES)] != expected[len(LINES) :]  # the second time, it goes on


def test_of_a_draw_there_is_no_better_one(model):
    """The best of five draws would be likelier than a draw: as many are made as are asked for."""

    def drawn(**search):
        options = GenerationConfig(sampling=True, temperature=1.5, **LIMITS, **search)
        return Translator([model / "model.pt"], data=model, search=options, cpu=True).hypotheses(
            [Request(line) for line in LINES]
        )

    assert drawn() == drawn(beam=1) and drawn(nbest=2) == drawn(beam=2, nbest=2)
    assert [len(line) for line in drawn(nbest=3)] == [3] * len(LINES)


def test_links_are_of_the_last_layers_cross_attention(model):
    """Of a batch with padding, against the attention of the whole translation at once."""
    translator = Translator([model / "model.pt"], data=model, search=GenerationConfig(beam=2, **LIMITS), cpu=True)
    (network,), dictionary = translator.models, translator.task.target_dictionary
    for request, best in zip(LINES, translator.hypotheses([Request(line) for line in LINES])):
        source = torch.tensor([[*map(dictionary.index, translator.encode([request])[0]), 2]])
        # the pieces that were found, once more: by a search with them as its prefix
        pieces = found_pieces(translator, request)
        target = torch.tensor([[2, *map(dictionary.index, pieces)]])
        with torch.no_grad():
            _, extra = network(source, torch.tensor([source.size(1)]), target)
        looked_at = extra["attn"][0][0, : len(pieces), :-1].argmax(1).tolist()
        x, y = word_numbers(translator.encode([request])[0]), word_numbers(pieces)
        assert best[0].links == sorted({(x[place], y[j]) for j, place in enumerate(looked_at)})


def test_links_of_an_lstm(model):
    """... which tells its attention only if it is asked."""
    words = Translator([model / "model.pt"], data=model, cpu=True).task.target_dictionary
    args = Namespace(arch="lstm", criterion="", encoder_embed_dim=16, decoder_embed_dim=16, decoder_out_embed_dim=16)
    ARCH_CONFIG_REGISTRY["lstm"](args)
    torch.manual_seed(3)
    network = LSTMModel.build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words)).eval()
    state = torch.load(model / "model.pt", weights_only=False)
    state["cfg"]["model"], state["model"] = args, network.state_dict()
    torch.save(state, model / "lstm.pt")
    translator = Translator([model / "lstm.pt"], data=model, search=GenerationConfig(beam=2, **LIMITS), cpu=True)
    best = translator.hypotheses([Request(LINES[2])])[0][0]
    source = torch.tensor([[*map(words.index, translator.encode([LINES[2]])[0]), 2]])
    pieces = found_pieces(translator, LINES[2])
    with torch.no_grad():
        _, attention = network(source, torch.tensor([source.size(1)]), torch.tensor([[2, *map(words.index, pieces)]]))
    looked_at = attention[0, : len(pieces), :-1].argmax(1).tolist()
    x, y = word_numbers(translator.encode([LINES[2]])[0]), word_numbers(pieces)
    assert best.links == sorted({(x[place], y[j]) for j, place in enumerate(looked_at)}) != []


def test_a_model_of_another_search_is_told(model, monkeypatch):
    monkeypatch.setattr("fairseq.tasks.translation.TranslationTask.build_generator", lambda *_, **__: Namespace())
    with pytest.raises(UserError, match=r"model\.pt: is translated by another search, Namespace: use fairseq-generate"):
        Translator([model / "model.pt"], data=model, cpu=True)


def found_pieces(translator, line):
    """The pieces of the best hypothesis, from fairseq's own search on one sentence."""
    dictionary = translator.task.source_dictionary
    source = torch.tensor([[*map(dictionary.index, translator.encode([line])[0]), 2]])
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)])}}
    return [dictionary[i] for i in translator.generator.generate(translator.models, sample)[0][0]["tokens"].tolist() if i != 2]
