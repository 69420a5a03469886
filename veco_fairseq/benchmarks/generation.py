# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of translation: fairseq beside CTranslate2, with random weights of any depth, or trained ones."""

import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import build_model

from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.checkpoints.ct2 import export_ct2
from veco_fairseq.checkpoints.seq2seq import translation_config, write_translation_model
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines
from veco_fairseq.inference.scoring import score
from veco_fairseq.inference.translator import Translator
from veco_fairseq.models.base import architecture

SENTENCES_ALONE = 10  # translated one by one, for the latency


class Words:
    """In the place of a SentencePiece model: every word is a piece."""

    def encode(self, lines: Sequence[str], out_type: type = str) -> list[list[str]]:
        return [line.split() for line in lines]

    def decode(self, pieces: Sequence[str]) -> str:
        return " ".join(pieces)


class Search(NamedTuple):
    """How to translate: pieces of a translation at least and at most, beam, and sentences a batch."""

    shortest: int
    longest: int
    beam: int
    batch_size: int


def write_random_model(folder: Path, arch: str, decoder_layers: int, vocabulary: int) -> None:
    """``model.pt`` with random weights, and its dictionaries, as conversion and fine-tuning leave them.

    Args:
        folder: to write to.
        arch: of pre-training, which is the encoder's shape: "veco_large".
        decoder_layers: of the decoder.
        vocabulary: tokens of the dictionary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    symbols = dictionary_of(f"w{number}" for number in range(vocabulary - 4))
    for lang in ("aa", "bb"):
        symbols.save(str(folder / f"dict.{lang}.txt"))
    config = translation_config(architecture(arch), decoder_layers, {}, folder / "dict.bb.txt")
    config["task"].update(source_lang="aa", target_lang="bb")
    torch.manual_seed(1)
    model = build_model(config["model"], SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols))
    write_translation_model(folder / "model.pt", model.state_dict(), config, target=symbols, report={})


def random_sentences(count: int, length: int, vocabulary: int) -> list[str]:
    """Lines of ``length`` words of the dictionary of :func:`write_random_model`."""
    numbers = np.random.default_rng(1).integers(0, vocabulary - 4, (count, length))
    return [" ".join(f"w{number}" for number in line) for line in numbers]


def export(checkpoint: Path, data: Path, output: Path, quantization: str) -> dict[str, Any]:
    """:func:`export_ct2`, timed."""
    started = time.perf_counter()
    export_ct2(checkpoint, output, data=data, quantization=quantization)
    return {"seconds": time.perf_counter() - started}


def with_fairseq(checkpoint: Path, data: Path, pieces, lines: list[str], *, search: Search, device: str) -> dict[str, Any]:
    """Translate with fairseq's beam search; see :func:`timed`."""
    translator = Translator(
        [checkpoint], model=pieces, data=data, batch_size=search.batch_size, max_tokens=10**6, cpu=device == "cpu",
        search=GenerationConfig(beam=search.beam, max_len_a=0, max_len_b=search.longest, min_len=search.shortest),
    )  # fmt: skip
    return timed(translator.translate, lines)


def with_ctranslate2(
    folder: Path, pieces, lines: list[str], *, search: Search, device: str, inter_threads: int | None
) -> dict[str, Any]:
    """Translate with CTranslate2 on as many threads as PyTorch's; see :func:`timed`.

    Args:
        inter_threads: batches that are translated side by side, which share the threads out among them; by default each
            has one thread of a CPU, or there is one on a GPU.
    """
    import ctranslate2

    threads = torch.get_num_threads()
    inter_threads = inter_threads or (threads if device == "cpu" else 1)
    translator = ctranslate2.Translator(
        str(folder), device=device, inter_threads=inter_threads, intra_threads=max(1, threads // inter_threads)
    )

    def translate(texts: list[str]) -> list[str]:
        results = translator.translate_batch(
            pieces.encode(texts, out_type=str), beam_size=search.beam, max_batch_size=search.batch_size,
            max_decoding_length=search.longest, min_decoding_length=search.shortest,
        )  # fmt: skip
        return [pieces.decode(result.hypotheses[0]) for result in results]

    return timed(translate, lines)


def timed(translate: Callable[[list[str]], list[str]], lines: list[str]) -> dict[str, Any]:
    """Translate all lines in batches, and some one by one.

    Returns:
        ``seconds`` for all, ``sentences``, ``latency``: the median of a sentence alone, and ``translations``.
    """
    translate(lines[:1])  # what only a first call does
    started = time.perf_counter()
    translations = translate(lines)
    seconds = time.perf_counter() - started
    alone = []
    for line in lines[:SENTENCES_ALONE]:
        started = time.perf_counter()
        translate([line])
        alone.append(time.perf_counter() - started)
    latency = statistics.median(alone)
    return {"seconds": seconds, "sentences": len(lines), "latency": latency, "translations": translations}


def generate(args: Namespace) -> dict:
    """``bench.py generate``: print a table for each model, and return its figures."""
    if args.job:
        return generate_job(args)
    given = [args.checkpoint, args.data, args.sentencepiece, args.source]
    if any(given) and not all(given):
        raise UserError("--checkpoint, --data, --sentencepiece and --source: give all of them, or none")
    figures = {}
    for layers in [args.decoder_layers[:1]] if args.checkpoint else [[number] for number in args.decoder_layers]:
        with tempfile.TemporaryDirectory() as folder:
            once = {"folder": Path(folder), "decoder_layers": layers}
            jobs = {} if args.checkpoint else {"write": command_of(args, "write", **once)}
            jobs.update({t: command_of(args, "export", **once, quantization=[t]) for t in args.quantization})
            in_turn(jobs, 1, lambda line: None)
            jobs = {"fairseq": command_of(args, "fairseq", **once)}
            for name in args.quantization:
                jobs[f"CTranslate2 {name}"] = command_of(args, "ctranslate2", **once, quantization=[name])
            results = in_turn(jobs, args.rounds, lambda line: print(line, flush=True))
        title = str(args.checkpoint) if args.checkpoint else f"{args.arch}, {layers[0]} decoder layers, random weights"
        figures[title] = generate_table(title, results, args)
    return figures


def generate_job(args: Namespace) -> dict:
    """One job of :func:`generate`."""
    (name, *_), (layers, *_) = args.quantization, args.decoder_layers
    checkpoint, data = args.checkpoint or args.folder / "model.pt", args.data or args.folder
    if args.job == "write":
        write_random_model(args.folder, args.arch, layers, args.vocabulary)
        return {"seconds": 0.0}
    if args.job == "export":
        return export(checkpoint, data, args.folder / name, name)
    if args.checkpoint:
        pieces, lines = load_sentencepiece(args.sentencepiece), list(read_lines(args.source))
        search = Search(1, 200, args.beam, args.batch_size)
    else:
        pieces, lines = Words(), random_sentences(args.sentences, args.length, args.vocabulary)
        search = Search(args.length, args.length, args.beam, args.batch_size)
    if args.job == "fairseq":
        return with_fairseq(checkpoint, data, pieces, lines, search=search, device=args.device)
    return with_ctranslate2(
        args.folder / name, pieces, lines, search=search, device=args.device, inter_threads=args.inter_threads
    )


def generate_table(title: str, results: dict, args: Namespace) -> dict:
    """Print a line for each system, and return their figures."""
    print(title)
    print(f"{'':22} {'sentences/s':>12} {'of fairseq':>11} {'ms alone':>9} {'sacreBLEU':>10} {'other lines':>12}")
    figures, first = {}, results["fairseq"][0]
    for name, rounds in results.items():
        found = {"sentences_a_second": statistics.median(r["sentences"] / r["seconds"] for r in rounds)}
        found["ratio"] = statistics.median(
            a["sentences"] / a["seconds"] / (b["sentences"] / b["seconds"]) for a, b in zip(rounds, results["fairseq"])
        )
        found["latency"] = statistics.median(r["latency"] for r in rounds)
        found["other"] = sum(a != b for a, b in zip(rounds[0]["translations"], first["translations"]))
        bleu = ""
        if args.reference:
            found["bleu"] = score(rounds[0]["translations"], list(read_lines(args.reference)), lang=args.lang)["sacrebleu"]
            bleu = f"{found['bleu']['score']:.2f}"
        print(
            f"{name:22} {found['sentences_a_second']:12.2f} {found['ratio']:11.2f} {1000 * found['latency']:9.0f} "
            f"{bleu:>10} {found['other']:12}",
            flush=True,
        )
        figures[name] = found
    return figures
