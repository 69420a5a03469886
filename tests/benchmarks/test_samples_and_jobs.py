# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What bench.py trains on and translates: batches of the sizes that are asked for, and the jobs of each system."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from veco_fairseq.arguments import Parser
from veco_fairseq.benchmarks import finetuning, generation, systems, training, understanding
from veco_fairseq.commands import bench
from veco_fairseq.errors import UserError
from veco_fairseq.modules import rates

PAD = 1


@pytest.mark.parametrize("arch, masked", [("veco_tiny", (6, 10)), ("xlme_tiny", (6, 6))])
def test_batches_of_pretraining(arch, masked):
    """Four pairs of 40 words, <s> and </s>: 15% are masked, and of VECO's bitext 25%."""
    args, symbols = Namespace(arch=arch, tokens=350, length=42, vocabulary=300, updates=2), training.dictionary(300)
    samples = training.random_samples(args, symbols)
    assert len(symbols) == 300 and len(samples) == 3
    for sample in samples:
        for kind, count in zip(("mono", "bitext"), masked):
            given = sample[kind]["net_input"]
            assert given["tokens"].shape == (2, 4, 42) and sample[kind]["ntokens"] == 336
            assert given["targets"].ne(PAD).sum(2).eq(count).all() and ("tlm_tokens" in given) == (kind == "bitext")
    assert not torch.equal(*(sample["mono"]["net_input"]["targets"] for sample in samples[:2]))
    of_peer = [sample["all"] for sample in training.masked_sentences(args, symbols)]
    assert len(of_peer) == 3 and of_peer[0]["net_input"]["src_tokens"].shape == (8, 42)
    assert (of_peer[0]["ntokens"], of_peer[0]["nsentences"]) == (336, 8) and of_peer[0]["target"].ne(PAD).sum() == 6 * 8


def test_random_words_are_all_words_and_no_special_token():
    """<s>, <pad>, </s> and <unk> come before five words, and <mask> after them."""
    assert training.RandomPairs("x", 900, 12, 10).tokens.unique().tolist() == [4, 5, 6, 7, 8]


def test_an_updates_figures_are_a_median_without_the_first_two():
    """The first update is counted, without what it multiplies in vain, and those after the second are timed."""
    seconds = iter(
        [{"operations in vain": 30, "seconds": 90.0}, {"seconds": 80.0}, {"seconds": 3.0}, {"seconds": 1.0}, {"seconds": 2.5}]
    )
    factors = torch.ones(3, 4), torch.ones(4, 5)

    def update(sample):
        torch.mm(*factors)  # 2 * 3 * 4 * 5 operations
        return next(seconds)

    sample = {"mono": {"ntokens": 30}, "bitext": {"ntokens": 12}}
    model = torch.nn.Linear(4, 3)
    trainer = SimpleNamespace(samples=[sample] * 4, update=update, model=model, device="cpu")
    found = training.train(trainer)
    assert (found["seconds"], found["tokens"], found["parameters"], found["operations"]) == (2.5, 42, 15, 120 - 30)


@pytest.fixture
def jobs(monkeypatch):
    """What is run in turn, as {job: its words}, and how often; every job has the same figures."""
    ran = []
    figures = {"seconds": 1.0, "sentences": 2, "memory": 1, "translations": ["a", "b"]}

    def in_turn(jobs, rounds):
        ran.append(({name: " ".join(map(str, command)) for name, command in jobs.items()}, rounds))
        return {name: [figures] * rounds for name in jobs}

    monkeypatch.setattr(generation, "in_turn", in_turn)
    return ran


ARGS = {"command": "generate", "job": None, "checkpoint": None, "data": None, "sentencepiece": None, "source": None, "reference": None,
        "arch": "veco_tiny", "decoder_layers": [3, 6], "quantization": ["float32", "int8"], "rounds": 2, "lang": "de", "to": None,
        "length": 25}  # fmt: skip


def test_random_models_are_made_once_and_translated_in_turn(jobs):
    found = generation.generate(Namespace(**ARGS))
    assert list(found) == [f"veco_tiny, {layers} decoder layers, random weights" for layers in (3, 6)]
    systems = ["veco translate", "CTranslate2 float32", "CTranslate2 int8"]
    assert [(list(made), rounds) for made, rounds in jobs] == [(["write", "float32", "int8"], 1), (systems, 2)] * 2
    assert "--decoder-layers 3 " in jobs[1][0]["veco translate"] and "--decoder-layers 6 " in jobs[3][0]["veco translate"]
    assert [f"--quantization {name} " in f"{jobs[0][0][name]} " for name in ("float32", "int8")] == [True, True]
    for name, words in jobs[1][0].items():
        assert name == "veco translate" or f"--quantization {name.split()[1]} " in f"{words} "


@pytest.mark.parametrize("there", [None, "transformers"])
def test_a_trained_model_is_compared_with_fairseq_generate_first(jobs, monkeypatch, tmp_path, there):
    monkeypatch.setattr(generation, "import_transformers", lambda: there)
    monkeypatch.chdir(tmp_path)
    Path("source").write_text("a\n")
    files = {name: Path(name) for name in ("checkpoint", "data", "sentencepiece", "source")}
    found = generation.generate(Namespace(**{**ARGS, **files}))
    more = ["transformers"] if there else []
    assert list(found) == ["checkpoint"]
    assert [list(made) for made, _ in jobs] == [
        ["float32", "int8", *more], ["fairseq-generate", "veco translate", "CTranslate2 float32", "CTranslate2 int8", *more]
    ]  # fmt: skip


@pytest.mark.parametrize("of, reference, lang, message", [
    ("nothing", "a\nb\n", "de", "--reference: is for a --checkpoint"), ("model", "a\n", "de", "has 2 lines and .*reference has 1"),
    ("model", "a\nb\n", "none", "--lang none: is no code of a language"),
])  # fmt: skip
def test_what_cannot_be_scored_is_not_measured(jobs, tmp_path, of, reference, lang, message):
    files = {name: tmp_path / name for name in ("checkpoint", "data", "sentencepiece", "source")}
    files["source"].write_text("a\nb\n")
    (tmp_path / "reference").write_text(reference)
    args = {**ARGS, **(files if of == "model" else {}), "reference": tmp_path / "reference", "lang": lang}
    with pytest.raises(UserError, match=message):
        generation.generate(Namespace(**args))
    assert not jobs


def test_a_type_that_ctranslate2_does_not_have_is_told_at_once(capsys):
    parser = Parser()
    bench.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args("generate --quantization float32 int4".split())
    assert "int4" in capsys.readouterr().err


@pytest.mark.parametrize("end, directions, most", [(["</s>"], [], 3), (["</s>", "[de]"], [], 2), (["</s>"], ["de-en"], 2)])
def test_a_line_that_is_too_long_is_told_by_the_first_job(monkeypatch, tmp_path, end, directions, most):
    """... of a model with four positions, of which </s> and a token of the language have theirs."""
    lines = ["a", " ".join("a" * most), " ".join("b" * (most + 1)), "", "a b c d e"]
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    found = SimpleNamespace(model=SimpleNamespace(max_source_positions=4), source_end=end, directions=directions)
    monkeypatch.setattr(generation, "export_ct2", lambda *given, **more: None)
    monkeypatch.setattr(generation, "exported_translation", lambda checkpoint, data: found)
    monkeypatch.setattr(generation, "direction_of", lambda translation, to: None)
    monkeypatch.setattr(generation, "load_sentencepiece", lambda path: generation.Words())
    files = {name: tmp_path / name for name in ("checkpoint", "data", "sentencepiece", "source", "folder")}
    with pytest.raises(
        UserError, match=f"source, line 3: has {most + 1} pieces, and the model takes {most}: .*; 2 of 5 lines are"
    ):
        generation.generate(Namespace(**{**ARGS, **files, "job": "export"}))


def test_random_sentences_that_are_too_long_are_refused(jobs):
    with pytest.raises(UserError, match="^--length 512: veco_tiny takes at most 511 tokens: give fewer$"):
        generation.generate(Namespace(**{**ARGS, "length": 512}))
    generation.generate(Namespace(**{**ARGS, "length": 511}))
    assert jobs


@pytest.mark.parametrize("job, system", [("translate", "with_fairseq"), ("ctranslate2", "with_ctranslate2")])
def test_random_sentences_have_the_length_of_their_translations(monkeypatch, tmp_path, job, system):
    asked = []
    monkeypatch.setattr(generation, system, lambda *given, **more: asked.append((*given, more)) or {})
    more = {"sentences": 3, "length": 5, "vocabulary": 60, "beam": 4, "batch_size": 7, "device": "cpu", "inter_threads": 2}
    generation.generate_job(Namespace(**{**ARGS, **more, "job": job, "folder": tmp_path}))
    ((first, *_, lines, options),) = asked
    assert first == tmp_path / ("model.pt" if job == "translate" else "float32")
    assert [len(line.split()) for line in lines] == [5, 5, 5] and len(set(lines)) == 3
    assert all(word[0] == "w" and 0 <= int(word[1:]) < 56 for line in lines for word in line.split())
    assert options.pop("search") == generation.Search(5, 5, 4, 7)
    assert options == {"device": "cpu", **({"inter_threads": 2} if job == "ctranslate2" else {})}


def test_batches_of_finetuning():
    args = Namespace(tokens=70, length=8, vocabulary=300, updates=2)
    symbols = training.dictionary(300)
    pairs = finetuning.random_pairs(args, symbols)
    assert len(pairs) == 3
    for sample in pairs:
        batch, given = sample["all"], sample["all"]["net_input"]
        assert given["src_tokens"].shape == batch["target"].shape == (8, 8)
        assert given["src_lengths"].tolist() == [8] * 8 and (batch["ntokens"], batch["nsentences"]) == (64, 8)
        assert torch.equal(given["prev_output_tokens"][:, 1:], batch["target"][:, :-1])
        assert given["src_tokens"].min() >= symbols.nspecial
    sentences = understanding.random_sentences(args, symbols)
    assert len(sentences) == 3
    for sample in sentences:
        (batch,) = sample.values()
        assert batch["net_input"]["tokens"].shape == (8, 8) and (batch["ntokens"], batch["nsentences"]) == (64, 8)


def test_a_system_is_timed_on_all_lines_and_on_ten_alone(monkeypatch):
    given, clock = [], iter([100.0, 106.0, *(200.0 + part for n in range(1, 11) for part in (10 * n, 11 * n))])
    monkeypatch.setattr(systems, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(systems, "Memory", lambda: SimpleNamespace(taken=lambda: 7))
    lines = [str(number) for number in range(12)]
    found = systems.timed(lambda: lambda texts: given.append(texts) or [text * 2 for text in texts], lines)
    assert given == [["0"], lines, *([line] for line in lines[:10])]
    translations = [line * 2 for line in lines]
    assert found == {"seconds": 6, "sentences": 12, "latency": 5.5, "memory": 7, "translations": translations}


@pytest.mark.parametrize("into, token, positions", [(None, [], 512), ("nl", ["<2nl>"], 20)])
@pytest.mark.parametrize(
    "device, asked, threads", [("cpu", None, (8, 1)), ("cpu", 2, (2, 4)), ("cuda", None, (1, 8)), ("cpu", 16, (16, 1))]
)
def test_ctranslate2_shares_pytorchs_threads_out(monkeypatch, tmp_path, device, asked, threads, into, token, positions):
    """A translation is no longer than the model's positions allow."""
    made, searched = [], []
    (tmp_path / "config.json").write_text(json.dumps({"max_target_positions": positions}))

    class Translator:
        def __init__(self, folder, **options):
            made.append((folder, options))

        def translate_batch(self, pieces, **search):
            searched.append((pieces, search))
            return [SimpleNamespace(hypotheses=[part[len(token) :][::-1], ["no"]]) for part in pieces]

    monkeypatch.setitem(sys.modules, "ctranslate2", SimpleNamespace(Translator=Translator))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    search, pieces = generation.Search(2, 30, 4, 7, into), generation.Words()
    found = systems.with_ctranslate2(tmp_path, pieces, ["a b", "c"], search=search, device=device, inter_threads=asked)
    assert made == [(str(tmp_path), {"device": device, "inter_threads": threads[0], "intra_threads": threads[1]})]
    assert found["translations"] == ["b a", "c"]
    assert searched[1] == (
        [[*token, "a", "b"], [*token, "c"]],
        {"beam_size": 4, "max_batch_size": 7, "max_decoding_length": min(31, positions), "min_decoding_length": 2},
    )


@pytest.mark.parametrize("into, token", [(None, ""), ("nl", "<2nl> ")])
def test_transformers_gets_the_token_of_the_language_in_the_text(monkeypatch, into, token):
    """... and the longest texts first, in batches; the translations are in the order of the texts."""
    given = []

    class Tokenizer:
        def __call__(self, texts, **options):
            given.append(texts)
            return type("Batch", (dict,), {"to": lambda self, device: self})(texts=texts)

        def batch_decode(self, found, skip_special_tokens):
            return [text.removeprefix(token).upper() for text in found]

    model = SimpleNamespace(generate=lambda texts, num_beams: texts)
    model.to = model.eval = lambda *device: model
    loaders = {name: SimpleNamespace(from_pretrained=lambda folder, it=it: it)
               for name, it in (("AutoTokenizer", Tokenizer()), ("AutoModelForSeq2SeqLM", model))}  # fmt: skip
    monkeypatch.setattr(systems, "import_transformers", lambda: SimpleNamespace(**loaders))
    lines, search = ["a", "bbb", "cc"], generation.Search(2, 30, 4, 2, into)
    found = systems.with_transformers(Path("f"), lines, search=search, device="cpu")
    assert found["translations"] == ["A", "BBB", "CC"]
    assert given[1:3] == [[f"{token}bbb", f"{token}cc"], [f"{token}a"]]


@pytest.mark.parametrize("directions, to, found", [
    ([], None, ("en", "de")),
    (["fr-en", "cs-nl", "de-nl"], "nl", ["cs", "nl"]),
    ([], "nl", "--to nl: m.pt translates in one direction alone: take --to away"),
    (["fr-nl", "nl-fr", "de-fr"], None, "m.pt: translates into fr, nl: choose one with --to"),
    (["fr-nl", "de-nl"], None, ["fr", "nl"]),
    (["fr-nl"], "fr", "m.pt: translates into nl: choose one with --to"),
])  # fmt: skip
def test_the_direction_of_a_model_of_many(directions, to, found):
    translation = SimpleNamespace(directions=directions, langs=("en", "de"), path="m.pt")
    if isinstance(found, str):
        with pytest.raises(UserError, match=f"^{found}$"):
            systems.direction_of(translation, to)
    else:
        assert systems.direction_of(translation, to) == found


@pytest.mark.parametrize("checkpoint", [None, Path("m.pt")])
def test_a_direction_is_refused_before_anything_is_measured(monkeypatch, checkpoint):
    """... of random weights, and by the first job of a trained model."""
    monkeypatch.setattr(generation, "export_ct2", lambda *given, **more: None)
    monkeypatch.setattr(systems, "read_translation", lambda path, data: SimpleNamespace(directions=[], path=path))
    args = Namespace(**{**ARGS, "to": "nl", "checkpoint": checkpoint, "job": checkpoint and "export", "folder": Path("f")})
    with pytest.raises(UserError, match="^--to(:| nl: m.pt translates in one) "):
        generation.generate(args)


@pytest.mark.parametrize("times, took", [
    ([0.0, 0.0, 10.0, 11.0, 12.0, 13.0, 13.5, 14.0, 14.0, 14.0, 20.0, 20.5, 21.0, 21.0, 22.0, 22.0, 22.0, 60.0], 0.4),
    ([0.0, 0.0, 10.0, 73.0, 74.0, 75.0], 64.0),
])  # fmt: skip
def test_the_rate_of_products_is_the_best_of_those_timed(monkeypatch, times, took):
    """Rounds of five products that take 4 and 2 seconds; one that takes longer than all of the 50 seconds is timed alone."""
    clock = iter(times)
    monkeypatch.setattr(rates, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    rate = rates.matmul_rate(3, 5, 7, dtype=torch.float32, device="cpu", seconds=50.0)
    assert rate == pytest.approx(2 * 3 * 5 * 7 / took) and next(clock, None) is None
