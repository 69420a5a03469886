# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of translation: fairseq beside CTranslate2, with random weights of any depth, or trained ones."""

import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import numpy as np
import torch
from fairseq.models import build_model

from veco_fairseq.checkpoints.ct2 import export_ct2
from veco_fairseq.checkpoints.seq2seq import translation_config, write_translation_model
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.models.veco import architecture
from veco_fairseq.translator import Translator

SENTENCES_ALONE = 10  # translated one by one, for the latency


class Words:
    """In the place of a SentencePiece model: every word is a piece."""

    def encode(self, lines: Sequence[str], out_type: type = str) -> List[List[str]]:
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
    write_translation_model(folder / "model.pt", model.state_dict(), config, symbols, {})


def random_sentences(count: int, length: int, vocabulary: int) -> List[str]:
    """Lines of ``length`` words of the dictionary of :func:`write_random_model`."""
    numbers = np.random.default_rng(1).integers(0, vocabulary - 4, (count, length))
    return [" ".join(f"w{number}" for number in line) for line in numbers]


def export(checkpoint: Path, data: Path, output: Path, quantization: str) -> Dict[str, Any]:
    """:func:`export_ct2`, timed."""
    started = time.perf_counter()
    export_ct2(checkpoint, output, data, quantization)
    return {"seconds": time.perf_counter() - started}


def with_fairseq(checkpoint: Path, data: Path, pieces, lines: List[str], search: Search, device: str) -> Dict[str, Any]:
    """Translate with fairseq's beam search; see :func:`timed`."""
    translator = Translator(
        [checkpoint], pieces, data, search.beam, max_len_a=0, max_len_b=search.longest, batch_size=search.batch_size,
        max_tokens=10**6, cpu=device == "cpu", min_len=search.shortest,
    )  # fmt: skip
    return timed(translator.translate, lines)


def with_ctranslate2(folder: Path, pieces, lines: List[str], search: Search, device: str) -> Dict[str, Any]:
    """Translate with CTranslate2 on as many threads as PyTorch's; see :func:`timed`."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder), device=device, inter_threads=1, intra_threads=torch.get_num_threads()
    )

    def translate(texts: List[str]) -> List[str]:
        results = translator.translate_batch(
            pieces.encode(texts, out_type=str), beam_size=search.beam, max_batch_size=search.batch_size,
            max_decoding_length=search.longest, min_decoding_length=search.shortest,
        )  # fmt: skip
        return [pieces.decode(result.hypotheses[0]) for result in results]

    return timed(translate, lines)


def timed(translate: Callable[[List[str]], List[str]], lines: List[str]) -> Dict[str, Any]:
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
