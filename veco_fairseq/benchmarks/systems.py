# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The systems that ``veco bench generate`` lets translate, each from lines to lines."""

import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import options
from fairseq.dataclass.configs import GenerationConfig
from fairseq_cli import generate, preprocess

from veco_fairseq.benchmarks.kernels import peak_bytes, status_bytes
from veco_fairseq.checkpoints.huggingface import import_transformers
from veco_fairseq.checkpoints.translation import Translation, read_translation
from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.symbols import target_token
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines
from veco_fairseq.inference.translator import Translator

SENTENCES_ALONE = 10  # translated one by one, for the latency
HYPOTHESIS = re.compile(r"H-(\d+)\t[^\t]*\t(.*)")
Translate = Callable[[list[str]], list[str]]


class Search(NamedTuple):
    """How to translate.

    Attributes:
        shortest, longest: pieces of a translation.
        beam: hypotheses.
        batch_size: sentences.
        to: the language, for a model of many directions.
    """

    shortest: int
    longest: int
    beam: int
    batch_size: int
    to: str | None = None

    @property
    def tokens(self) -> list[str]:
        """What stands before a source: the token of the language."""
        return [target_token(self.to)] if self.to else []


def exported_translation(checkpoint: Path, data: Path) -> Translation:
    """What a checkpoint holds that has been exported: a translation model."""
    translation = read_translation(checkpoint, data=data)
    assert translation is not None
    return translation


def direction_of(translation: Translation, to: str | None) -> Sequence[str | None]:
    """The language to translate from and the one into which; None where the model does not say.

    Raises:
        UserError: the model has many directions and none into ``to``, or no token for it and ``to`` is given.
    """
    directions = list(map(sides_of, translation.directions))
    into = sorted({target for _, target in directions})
    if to is None and len(into) == 1:
        (to,) = into
    if not directions and to is None:
        return translation.langs
    if not directions:
        raise UserError(f"--to {to}: {translation.path} translates in one direction alone: take --to away")
    if to not in into:
        raise UserError(f"{translation.path}: translates into {', '.join(into)}: choose one with --to")
    return next(langs for langs in directions if langs[1] == to)


def with_fairseq(checkpoint: Path, data: Path, pieces, lines: list[str], *, search: Search, device: str) -> dict[str, Any]:
    """Translate as ``veco translate`` does; see :func:`timed`."""

    def load() -> Translate:
        translator = Translator(
            [checkpoint], model=pieces, data=data, batch_size=search.batch_size, max_tokens=10**6, cpu=device == "cpu", to=search.to,
            search=GenerationConfig(beam=search.beam, max_len_a=0, max_len_b=search.longest, min_len=search.shortest),
        )  # fmt: skip
        return translator.translate

    return timed(load, lines)


def with_generate(checkpoint: Path, data: Path, pieces, lines: list[str], *, search: Search, device: str) -> dict[str, Any]:
    """Translate with ``fairseq-generate``, once: its seconds are those from reading the model to the last line."""
    source, target = direction_of(exported_translation(checkpoint, data), search.to)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = "".join(" ".join(line) + "\n" for line in pieces.encode(lines, out_type=str))
        (folder / f"test.{source}").write_text(text, encoding="utf-8")
        words: list[object] = ["--only-source", "-s", source, "-t", target, "--testpref", folder / "test", "--destdir", folder]
        words += ["--srcdict", data / f"dict.{source}.txt"]
        preprocess.main(options.get_preprocessing_parser().parse_args(list(map(str, words))))
        shutil.copyfile(data / f"dict.{target}.txt", folder / f"dict.{target}.txt")
        words = [folder, "-s", source, "-t", target, "--path", checkpoint, "--results-path", folder, "--num-workers", 0]
        words += ["--beam", search.beam, "--batch-size", search.batch_size]
        words += ["--max-len-b", search.longest, "--min-len", search.shortest]
        words += ["--required-batch-size-multiple", 1] + ["--cpu"] * (device == "cpu")
        words += ["--task", "veco_multilingual_translation"] if search.to else []
        asked = options.parse_args_and_arch(options.get_generation_parser(), list(map(str, words)))
        memory, started = Memory(), time.perf_counter()
        generate.main(asked)
        seconds, taken = time.perf_counter() - started, memory.taken()
        found = filter(None, map(HYPOTHESIS.match, read_lines(folder / "generate-test.txt")))
        texts = {int(hypothesis[1]): pieces.decode(hypothesis[2].split()) for hypothesis in found}
    translations = [texts.get(number, "") for number in range(len(lines))]
    return {"seconds": seconds, "sentences": len(lines), "memory": taken, "translations": translations}


def with_ctranslate2(
    folder: Path, pieces, lines: list[str], *, search: Search, device: str, inter_threads: int | None
) -> dict[str, Any]:
    """Translate with CTranslate2 on as many threads as PyTorch's; see :func:`timed`.

    fairseq takes one step more than the longest translation has pieces, for its end. So CTranslate2, which would end without it,
    may take that step, too; what it gives beyond the longest is cut off.

    Args:
        inter_threads: batches that are translated side by side, which share the threads out among them; by default each
            has one thread of a CPU, or there is one on a GPU.
    """
    import ctranslate2

    threads = torch.get_num_threads()
    inter_threads = inter_threads or (threads if device == "cpu" else 1)
    positions = json.loads((folder / "config.json").read_text(encoding="utf-8"))["max_target_positions"]
    longest = min(search.longest, positions - 1)  # as fairseq does

    def load() -> Translate:
        translator = ctranslate2.Translator(
            str(folder), device=device, inter_threads=inter_threads, intra_threads=max(1, threads // inter_threads)
        )

        def translate(texts: list[str]) -> list[str]:
            results = translator.translate_batch(
                [[*search.tokens, *line] for line in pieces.encode(texts, out_type=str)], beam_size=search.beam, max_batch_size=search.batch_size,
                max_decoding_length=longest + 1, min_decoding_length=search.shortest,
            )  # fmt: skip
            return [pieces.decode(result.hypotheses[0][:longest]) for result in results]

        return translate

    return timed(load, lines)


def with_transformers(folder: Path, lines: list[str], *, search: Search, device: str) -> dict[str, Any]:
    """Translate with transformers, from raw text to raw text; see :func:`timed`."""
    transformers = import_transformers()
    tokenizers, models = transformers.AutoTokenizer, transformers.AutoModelForSeq2SeqLM

    def load() -> Translate:
        tokenizer, model = tokenizers.from_pretrained(folder), models.from_pretrained(folder).to(device).eval()

        @torch.inference_mode()
        def translate(texts: list[str]) -> list[str]:
            order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
            translated = [""] * len(texts)
            for start in range(0, len(texts), search.batch_size):
                batch = order[start : start + search.batch_size]
                sources = tokenizer(
                    [" ".join([*search.tokens, texts[number]]) for number in batch], padding=True, return_tensors="pt"
                ).to(device)
                found = model.generate(**sources, num_beams=search.beam)
                for number, text in zip(batch, tokenizer.batch_decode(found, skip_special_tokens=True)):
                    translated[number] = text
            return translated

        return translate

    return timed(load, lines)


def timed(load: Callable[[], Translate], lines: list[str]) -> dict[str, Any]:
    """Load a model, let it translate all lines in batches, and some one by one.

    Returns:
        ``seconds`` for all, ``sentences``, ``latency``: the median of a sentence alone, ``memory``: bytes that the process
        took for all of it beyond what it had before, at its peak, and ``translations``.
    """
    memory = Memory()
    translate = load()
    translate(lines[:1])  # what only a first call does
    started = time.perf_counter()
    translations = translate(lines)
    seconds, taken = time.perf_counter() - started, memory.taken()
    alone = []
    for line in lines[:SENTENCES_ALONE]:
        started = time.perf_counter()
        translate([line])
        alone.append(time.perf_counter() - started)
    latency = statistics.median(alone)
    return {"seconds": seconds, "sentences": len(lines), "latency": latency, "memory": taken, "translations": translations}


class Memory:
    """The bytes that the process takes from now on, at its peak, beyond what it has now.

    Linux is asked to forget the peak so far, which importing PyTorch makes; elsewhere a lower one is not seen.
    """

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self.before = status_bytes("VmRSS")
        except OSError:
            self.before = peak_bytes("cpu")

    def taken(self) -> int:
        return max(0, peak_bytes("cpu") - self.before)
