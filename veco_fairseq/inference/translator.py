# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Raw text in, raw text out, with a fine-tuned fairseq translation model."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import sentencepiece
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tokenizer import tokenize_line

from veco_fairseq import plugin  # noqa: F401  safe reading of checkpoints
from veco_fairseq.data.sentencepiece import MODEL_NAME, load_sentencepiece
from veco_fairseq.data.symbols import require_own_pieces
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_
from veco_fairseq.inference.encode import by_length

SENTENCE_END = re.compile(r"[.!?…。！？؟।]['\")\]»”’]*$")


class Translator:
    """A model, or an ensemble, with its SentencePiece model and beam search.

    Args:
        checkpoints: of ``fairseq-train --task translation``, or averages of them.
        model: the SentencePiece model, a file or loaded; default: that beside the first checkpoint, or in the data
            folder.
        data: the folder with the dictionaries; default: the one that the checkpoint was trained on.
        beam, lenpen, max_len_a, max_len_b, min_len: as of ``fairseq-generate``.
        batch_size: sentences a batch at most.
        max_tokens: padded source pieces a batch at most.
        bf16: compute in bf16 where that is safe.
        cpu: do not use a GPU that is there.

    Raises:
        UserError: a file is missing, damaged or of another model.
    """

    def __init__(
        self,
        checkpoints: Sequence[Path_],
        *,
        model: Path_ | sentencepiece.SentencePieceProcessor | None = None,
        data: Path_ | None = None,
        beam: int = 5,
        lenpen: float = 1.0,
        max_len_a: float = 1.5,
        max_len_b: int = 20,
        batch_size: int = 64,
        max_tokens: int = 8192,
        bf16: bool = False,
        cpu: bool = False,
        min_len: int = 1,
    ):
        for path in checkpoints:
            if not Path(path).is_file():
                raise UserError(f"{path}: no such checkpoint: check the path")
        overrides = {"data": str(data)} if data is not None else {}
        models, config, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path) for path in checkpoints], arg_overrides=overrides
        )
        if not hasattr(self.task, "build_dataset_for_inference") or not hasattr(models[0], "decoder"):
            kind = type(models[0]).__name__
            raise UserError(f"{checkpoints[0]}: is a {kind}, not a translation model: convert it first")
        dictionaries = self.task.source_dictionary, self.task.target_dictionary
        self.pieces = _pieces(model, [Path(checkpoints[0]).parent, Path(str(config.task.data))], dictionaries)
        self.device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
        self.bf16, self.batch_size, self.max_tokens = bf16, batch_size, max_tokens
        self.models = [one.to(self.device).eval() for one in models]
        for one in self.models:
            one.prepare_for_inference_(config)
        lengths = {"max_len_a": max_len_a, "max_len_b": max_len_b, "min_len": min_len}
        options = GenerationConfig(beam=beam, lenpen=lenpen, **lengths)
        self.generator = self.task.build_generator(self.models, options)
        # </s> ends every source, and after it there may be a language token
        ends = 2 if hasattr(self.task, "source_token") else 1
        self.max_pieces = min(one.encoder.max_positions() for one in self.models) - ends

    def translate(self, lines: Sequence[str], note: Callable[[int, str], None] = lambda number, words: None) -> list[str]:
        """The translation of every line, in their order; an empty line's is empty.

        A line of more pieces than the model has positions is translated in parts, cut after sentences or, where one is
        too long, between words.

        Args:
            lines: raw text.
            note: told the index of such a line, and what was done.
        """
        parts: list[tuple[int, list[str]]] = []
        for number, pieces in enumerate(self.pieces.encode(list(lines), out_type=str)):
            cut = list(split(pieces, self.max_pieces))
            if len(cut) > 1:
                limits = f"{len(pieces):,} pieces, the model takes {self.max_pieces}"
                note(number, f"{limits}: translated in {len(cut)} parts")
            parts += [(number, part) for part in cut]
        translated: list[list[str]] = [[] for _ in lines]
        results = self._translate([part for _, part in parts])
        for (number, _), text in zip(parts, results):
            translated[number].append(text)
        return [" ".join(texts) for texts in translated]

    @torch.inference_mode()
    def _translate(self, sources: Sequence[list[str]]) -> list[str]:
        dictionary = self.task.source_dictionary
        # As fairseq-preprocess divides a line: a piece can hold a character that separates words there (U+0085).
        words = [tokenize_line(" ".join(source)) for source in sources]
        ids = [torch.tensor([*map(dictionary.index, line), dictionary.eos()]) for line in words]
        lengths = torch.tensor([len(source) for source in ids])
        dataset = self.task.build_dataset_for_inference(ids, lengths)
        results: list[str] = [""] * len(ids)
        for batch in by_length(lengths, self.max_tokens, self.batch_size):
            sample = dataset.collater([dataset[i] for i in batch])
            if self.device.type == "cuda":
                sample = utils.move_to_cuda(sample)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                found = self.task.inference_step(self.generator, self.models, sample)
            for i, hypotheses in zip(sample["id"].tolist(), found):
                results[i] = self._text(hypotheses[0]["tokens"])
        return results

    def _text(self, tokens: torch.Tensor) -> str:
        dictionary = self.task.target_dictionary
        special = (dictionary.bos(), dictionary.pad(), dictionary.eos(), self.generator.eos)
        return self.pieces.decode([dictionary[i] for i in tokens.tolist() if i not in special])


def split(pieces: list[str], longest: int) -> Iterator[list[str]]:
    """Cut pieces into parts of at most ``longest``: after the last sentence that fits, else before the last word."""
    while len(pieces) > longest:
        starts = [i for i in range(1, longest + 1) if pieces[i].startswith("▁")]
        after_sentences = [i for i in starts if SENTENCE_END.search(pieces[i - 1])]
        end = (after_sentences or starts or [longest])[-1]
        yield pieces[:end]
        pieces = pieces[end:]
    if pieces:
        yield pieces


def translate_stream(
    translator: Translator, lines: Iterable[str], buffer_size: int, note: Callable[[str], None]
) -> Iterator[str]:
    """Translate ``buffer_size`` lines at a time, within which they are sorted by length; yields in their order."""
    lines, done = iter(lines), 0
    while window := list(islice(lines, buffer_size)):
        yield from translator.translate(window, lambda number, words, before=done: note(f"line {before + number + 1}: {words}"))
        done += len(window)


def _pieces(model, folders: Sequence[Path], dictionaries: Sequence[Dictionary]) -> sentencepiece.SentencePieceProcessor:
    if not isinstance(model, (str, Path, type(None))):
        return model
    path = next((folder / MODEL_NAME for folder in folders if (folder / MODEL_NAME).exists()), None) if model is None else model
    if path is None:
        raise UserError(f"{MODEL_NAME}: is neither in {folders[0]} nor in {folders[1]}: name it with --sentencepiece")
    pieces = load_sentencepiece(path)
    for dictionary in dictionaries:
        require_own_pieces(pieces, path, dictionary.symbols)
    return pieces
