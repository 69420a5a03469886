# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of translation: fairseq beside CTranslate2 and transformers, of trained models or random weights."""

import statistics
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from fairseq.models import build_model
from sentencepiece import SentencePieceProcessor

from veco_fairseq.benchmarks.systems import (
    Search,
    direction_of,
    exported_translation,
    with_ctranslate2,
    with_fairseq,
    with_generate,
    with_transformers,
)
from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.checkpoints.bart import FAIRSEQS_LONGEST as LONGEST
from veco_fairseq.checkpoints.bart import export_translation
from veco_fairseq.checkpoints.ct2 import export_ct2
from veco_fairseq.checkpoints.huggingface import import_transformers
from veco_fairseq.checkpoints.seq2seq import translation_config, write_translation_model
from veco_fairseq.checkpoints.translation import Translation
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.files import count_translations, read_lines
from veco_fairseq.inference.scoring import score
from veco_fairseq.models.base import architecture

HUGGING_FACE = "hugging-face"  # its folder in that of a run


class Words:
    """In the place of a SentencePiece model: every word is a piece."""

    def encode(self, lines: Sequence[str], out_type: type = str) -> list[list[str]]:
        return [line.split() for line in lines]

    def decode(self, pieces: Sequence[str]) -> str:
        return " ".join(pieces)


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
    write_translation_model(arch, folder / "model.pt", model.state_dict(), config=config, target=symbols, report={})


def random_sentences(count: int, length: int, vocabulary: int) -> list[str]:
    """Lines of ``length`` words of the dictionary of :func:`write_random_model`."""
    numbers = np.random.default_rng(1).integers(0, vocabulary - 4, (count, length))
    return [" ".join(f"w{number}" for number in line) for line in numbers]


def require_short_lines(translation: Translation, pieces: SentencePieceProcessor, source: Path) -> None:
    """Refuse lines with more pieces than the model has places for, with which all systems but ``veco translate`` end.

    Raises:
        UserError: names the first one, and how many there are.
    """
    most = translation.model.max_source_positions - len(translation.source_end) - bool(translation.directions)
    lengths = {number: len(line) for number, line in enumerate(pieces.encode(list(read_lines(source)), out_type=str), 1)}
    long = [number for number, length in lengths.items() if length > most]
    if long:
        raise UserError(
            f"{source}, line {long[0]}: has {lengths[long[0]]:,} pieces, and the model takes {most:,}: shorten it, or leave it out, "
            f"of --reference, too; {len(long)} of {len(lengths):,} lines are too long"
        )


def generate(args: Namespace) -> dict:
    """``bench.py generate``: print a table for each model, and return its figures."""
    if args.job:
        return generate_job(args)
    given = [args.checkpoint, args.data, args.sentencepiece, args.source]
    if any(given) and not all(given):
        raise UserError("--checkpoint, --data, --sentencepiece and --source: give all of them, or none")
    if args.to and not args.checkpoint:
        raise UserError("--to: is for a --checkpoint of many directions")
    positions = None if args.checkpoint else architecture(args.arch).max_positions - 1  # </s> has one
    if positions and args.length > positions:
        raise UserError(f"--length {args.length}: {args.arch} takes at most {positions} tokens: give fewer")
    if args.source and not any(map(str.strip, read_lines(args.source))):
        raise UserError(f"{args.source}: has no text to translate")
    if args.reference:
        if not args.checkpoint:
            raise UserError("--reference: is for a --checkpoint: random weights translate nothing")
        count_translations(args.source, args.reference)  # what cannot be scored is told before it is measured for hours
        references = list(read_lines(args.reference))
        score(references, references, lang=args.lang)
    figures = {}
    for layers in [args.decoder_layers[:1]] if args.checkpoint else [[number] for number in args.decoder_layers]:
        with tempfile.TemporaryDirectory() as folder:
            once = {"folder": Path(folder), "decoder_layers": layers}
            jobs = {} if args.checkpoint else {"write": command_of(args, "write", **once)}
            jobs.update({t: command_of(args, "export", **once, quantization=[t]) for t in args.quantization})
            with_hugging_face = args.checkpoint and import_transformers() is not None
            if with_hugging_face:
                jobs["transformers"] = command_of(args, "export-hf", **once)
            in_turn(jobs, 1)
            jobs = {"fairseq-generate": command_of(args, "fairseq-generate", **once)} if args.checkpoint else {}
            jobs["veco translate"] = command_of(args, "translate", **once)
            for name in args.quantization:
                jobs[f"CTranslate2 {name}"] = command_of(args, "ctranslate2", **once, quantization=[name])
            if with_hugging_face:
                jobs["transformers"] = command_of(args, "transformers", **once)
            results = in_turn(jobs, args.rounds)
        title = str(args.checkpoint) if args.checkpoint else f"{args.arch}, {layers[0]} decoder layers, random weights"
        figures[title] = generate_table(title, results, args)
    return figures


def generate_job(args: Namespace) -> dict:
    """One job of :func:`generate`."""
    (name, *_), (layers, *_) = args.quantization, args.decoder_layers
    checkpoint, data = args.checkpoint or args.folder / "model.pt", args.data or args.folder
    if args.job == "write":
        write_random_model(args.folder, args.arch, layers, args.vocabulary)
        return {}
    if args.job == "export":  # comes first, and refuses what is no translation model
        export_ct2(checkpoint, args.folder / name, data=data, quantization=name)
        if args.checkpoint:
            translation = exported_translation(checkpoint, data)
            direction_of(translation, args.to)
            require_short_lines(translation, load_sentencepiece(args.sentencepiece), args.source)
        return {}
    if args.job == "export-hf":
        export_translation(exported_translation(checkpoint, data), args.folder / HUGGING_FACE, sentencepiece=args.sentencepiece)
        return {}
    pieces: SentencePieceProcessor | Words
    if args.checkpoint:
        pieces, lines = load_sentencepiece(args.sentencepiece), list(read_lines(args.source))
        search = Search(1, LONGEST, args.beam, args.batch_size, args.to)
    else:
        pieces, lines = Words(), random_sentences(args.sentences, args.length, args.vocabulary)
        search = Search(args.length, args.length, args.beam, args.batch_size)
    how: dict[str, Any] = {"search": search, "device": args.device}
    if args.job == "transformers":
        return with_transformers(args.folder / HUGGING_FACE, lines, **how)
    if args.job == "ctranslate2":
        return with_ctranslate2(args.folder / name, pieces, lines, inter_threads=args.inter_threads, **how)
    return {"translate": with_fairseq, "fairseq-generate": with_generate}[args.job](checkpoint, data, pieces, lines, **how)


def generate_table(title: str, results: dict, args: Namespace) -> dict:
    """Print a line for each system, and return their figures; the first one is what the others are compared with."""
    first = next(iter(results))
    print(title)
    columns = ("sentences/s", f"of {first}", "ms alone", "MiB", "sacreBLEU", "other lines")
    print(" ".join([f"{'':22}", *(f"{column:>{max(9, len(column))}}" for column in columns)]))
    figures = {}
    for name, rounds in results.items():
        found = {"sentences_a_second": statistics.median(r["sentences"] / r["seconds"] for r in rounds)}
        found["ratio"] = statistics.median(
            a["sentences"] / a["seconds"] / (b["sentences"] / b["seconds"]) for a, b in zip(rounds, results[first])
        )
        found["memory"] = max(r["memory"] for r in rounds)
        found["other"] = sum(a != b for a, b in zip(rounds[0]["translations"], results[first][0]["translations"]))
        alone = bleu = ""
        if "latency" in rounds[0]:
            found["latency"] = statistics.median(r["latency"] for r in rounds)
            alone = f"{1000 * found['latency']:.0f}"
        if args.reference:
            found["bleu"] = score(rounds[0]["translations"], list(read_lines(args.reference)), lang=args.lang)["sacrebleu"]
            bleu = f"{found['bleu']['score']:.2f}"
        texts = (f"{found['sentences_a_second']:.2f}", f"{found['ratio']:.2f}", alone, f"{found['memory'] / 2**20:.0f}", bleu)
        cells = zip((*texts, str(found["other"])), columns)
        print(" ".join([f"{name:22}", *(f"{text:>{max(9, len(column))}}" for text, column in cells)]), flush=True)
        figures[name] = found
    return figures
