# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which search the systems are asked for: lengths, beam and batch; and how many steps they take with a small model."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq.sequence_generator import EnsembleModel

from veco_fairseq.benchmarks import generation, systems
from veco_fairseq.benchmarks.generation import Words
from veco_fairseq.checkpoints.ct2 import export_ct2

SEARCH = systems.Search(2, 30, beam=4, batch_size=7)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_of_the_translator(monkeypatch, device):
    asked = []
    monkeypatch.setattr(
        systems, "Translator", lambda *given, **named: asked.append((given, named)) or SimpleNamespace(translate=5)
    )
    monkeypatch.setattr(systems, "timed", lambda load, lines: {"loaded": load(), "lines": lines})
    search = SEARCH._replace(to="nl")
    found = systems.with_fairseq(Path("m.pt"), Path("bin"), "pieces", ["a"], search=search, device=device)
    ((given, named),) = asked
    lengths = named.pop("search")
    assert (lengths.min_len, lengths.max_len_a, lengths.max_len_b, lengths.beam) == (2, 0, 30, 4)
    assert named.pop("max_tokens") >= 7 * 1024  # batches are of so many sentences, whatever their lengths
    assert named == {"model": "pieces", "data": Path("bin"), "batch_size": 7, "cpu": device == "cpu", "to": "nl"}
    assert given == ([Path("m.pt")],) and found == {"loaded": 5, "lines": ["a"]}


def test_of_fairseq_generate(monkeypatch, tmp_path):
    """Its lines come longest first; one that it has nothing of is empty."""
    told, texts = [], []
    for lang in ("aa", "bb"):
        (tmp_path / f"dict.{lang}.txt").write_text(f"{lang} 1\n")
    translation = SimpleNamespace(directions=[], langs=("aa", "bb"))
    monkeypatch.setattr(systems, "exported_translation", lambda checkpoint, data: translation)
    monkeypatch.setattr(
        systems.preprocess,
        "main",
        lambda args: texts.append((Path(f"{args.testpref}.aa").read_text(), args.srcdict, args.only_source)),
    )

    def generate(args):
        told.append(args)
        assert (Path(args.data) / "dict.bb.txt").read_text() == "bb 1\n"
        lines = "S-1\tx\nH-1\t-0.5\tb c\nD-1\t-0.5\tno\nH-0\t-0.25\td\n"
        (Path(args.results_path) / "generate-test.txt").write_text(lines)

    monkeypatch.setattr(systems.generate, "main", generate)
    found = systems.with_generate(tmp_path / "m.pt", tmp_path, Words(), ["a", "b c", "e"], search=SEARCH, device="cpu")
    (args,) = told
    assert texts == [("a\nb c\ne\n", str(tmp_path / "dict.aa.txt"), True)]
    assert (args.min_len, args.max_len_a, args.max_len_b, args.beam, args.batch_size) == (2, 0, 30, 4, 7)
    assert (args.required_batch_size_multiple, args.cpu, args.path) == (1, True, str(tmp_path / "m.pt"))
    assert (args.source_lang, args.target_lang) == ("aa", "bb")
    assert (found["translations"], found["sentences"]) == (["d", "b c", ""], 3)


def test_all_systems_take_as_many_steps(monkeypatch, tmp_path):
    """... with random weights, which end no translation early; the sentence is translated three times."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    generation.write_random_model(tmp_path, "veco_tiny", 2, 300)
    export_ct2(tmp_path / "model.pt", tmp_path / "float32", data=tmp_path, quantization="float32")
    calls, steps, step = [], [], EnsembleModel.forward_decoder

    class Translator(ctranslate2.Translator):
        def translate_batch(self, source, **how):
            return super().translate_batch(source, callback=lambda done: steps.append(done.step) or False, **how)

    monkeypatch.setattr(EnsembleModel, "forward_decoder", lambda *given, **named: calls.append(0) or step(*given, **named))
    monkeypatch.setattr(ctranslate2, "Translator", Translator)
    monkeypatch.setattr(systems, "SENTENCES_ALONE", 1)
    lines, search = generation.random_sentences(1, 5, 300), systems.Search(7, 7, 1, 6)
    fairseq = systems.with_fairseq(tmp_path / "model.pt", tmp_path, Words(), lines, search=search, device="cpu")
    other = systems.with_ctranslate2(tmp_path / "float32", Words(), lines, search=search, device="cpu", inter_threads=1)
    assert len(calls) == len(steps) == 3 * 8
    assert fairseq["translations"] == other["translations"] and len(other["translations"][0].split()) == 7
