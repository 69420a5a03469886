# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translates raw text to raw text with a fine-tuned fairseq translation model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import sentencepiece
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.token_generation_constraints import pack_constraints
from fairseq.tokenizer import tokenize_line
from torch import Tensor

from veco_fairseq import plugin  # noqa: F401  safe reading of checkpoints
from veco_fairseq.checkpoints.reading import require_checkpoint
from veco_fairseq.checkpoints.translation import require_translation
from veco_fairseq.data.reserved import without_symbols
from veco_fairseq.data.sentencepiece import MODEL_NAME, load_sentencepiece
from veco_fairseq.data.symbols import own_model, require_own_pieces, vocabulary_folder
from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import Path_
from veco_fairseq.inference.batches import by_length
from veco_fairseq.inference.constraints import inside_a_text, let_prefixes_be
from veco_fairseq.inference.lengths import OwnLengths
from veco_fairseq.inference.requests import (
    Hypothesis,
    Request,
    between_spaces,
    checked,
    join_parts,
    split,
    word_links,
    word_numbers,
)
from veco_fairseq.inference.search import Draws, prepared, require_beam_search, require_constraints_taken, set_target, settled
from veco_fairseq.modules.device import usual_device

SEARCH = GenerationConfig(beam=5, max_len_a=1.5, max_len_b=20)


class Part(NamedTuple):
    """One input of the search: the pieces of a line or a part of it, of its prefix, and of each of its constraints."""

    source: list[str]
    prefix: list[str]
    constraints: list[list[str]]


@contextmanager
def _told(checkpoints: Sequence[Path_]) -> Iterator[None]:
    """Tell in one line what fairseq finds missing when it loads models, and which of them does not translate."""
    try:
        for path in checkpoints if len(checkpoints) > 1 else ():  # of which fairseq looks at the first one's task alone
            require_translation(path)
        yield
    except Exception as error:
        for path in checkpoints:
            require_translation(path)
        missing = error.__cause__ if isinstance(error, UserError) else error  # the cause of an error of this project's readers
        if not isinstance(missing, FileNotFoundError):
            raise
        where = f"{missing.filename}: is not there, where {checkpoints[0]} has its data"
        raise UserError(f"{where}: give --data DIR, the folder of dict.LANG.txt") from error


class Translator:
    """A model, or an ensemble, with its SentencePiece model and search; several threads may use it, and translate in turn.

    Args:
        checkpoints: of ``fairseq-train --task translation``, or averages of them.
        model: the SentencePiece model, as a file or loaded; by default the one beside the first checkpoint or in the data
            folder.
        data: the folder of the dictionaries; by default the training data's.
        search: options of the search, as in ``fairseq-generate``; sampling draws as many translations as are asked for,
            whatever its beam is, since the best ones of more would be no draws.
        batch_size: most sentences in a batch.
        max_tokens: most padded source pieces in a batch.
        bf16: compute in bf16 where that is safe.
        cpu: use the CPU even if there is a GPU.
        seed: of sampling, whose draws depend on it alone, and not on what else draws in the program.
        to: the language to translate into, of a model for many directions.

    Raises:
        UserError: a file is missing, damaged or of another model, the model needs ``to``, or does not know it, or the search
            is to give more translations than its beam finds.
    """

    def __init__(
        self,
        checkpoints: Sequence[Path_],
        *,
        model: Path_ | sentencepiece.SentencePieceProcessor | None = None,
        data: Path_ | None = None,
        search: GenerationConfig = SEARCH,
        batch_size: int = 64,
        max_tokens: int = 8192,
        bf16: bool = False,
        cpu: bool = False,
        seed: int = 1,
        to: str | None = None,
    ):
        require_list(checkpoints, "checkpoints", some=True)
        for path in checkpoints:
            require_checkpoint(path)
        # no BLEU of a validation, which may need a package that only the training's machine has
        overrides = {"eval_bleu": False, **({"data": str(data)} if data is not None else {})}
        with _told(checkpoints):
            models, config, self.task = checkpoint_utils.load_model_ensemble_and_task(
                [str(path) for path in checkpoints], arg_overrides=overrides
            )
        if not hasattr(self.task, "build_dataset_for_inference") or not hasattr(models[0], "decoder"):
            kind = type(models[0]).__name__
            raise UserError(
                f"{checkpoints[0]}: is a {kind}, not a translation model: make one with veco convert, and fine-tune it"
            )
        set_target(self.task, checkpoints[0], to)
        dictionaries = self.task.source_dictionary, self.task.target_dictionary
        self.pieces = _pieces(model, [vocabulary_folder(checkpoints[0]), Path(str(config.task.data))], dictionaries)
        self.device = torch.device(usual_device(cpu))
        self.bf16, self.batch_size, self.max_tokens = bf16, batch_size, max_tokens
        self.models = [prepared(one.to(self.device).eval(), config) for one in models]
        self.search = search = settled(search)
        self.draws = Draws(seed, self.device, search.sampling)
        self.generator = self.task.build_generator(self.models, search)
        require_beam_search(self.generator, checkpoints[0])
        let_prefixes_be(self.generator.search)
        self.lengths = OwnLengths(self.generator)
        self.turn = Lock()  # the search keeps what it is doing in itself
        # every source ends with </s>, and may have a language token
        self.beside = getattr(self.task, "tokens_beside", 1)
        self.max_pieces = min(one.encoder.max_positions() for one in self.models) - self.beside

    def translate(self, lines: Iterable[str], note: Callable[[int, str], None] = lambda number, words: None) -> list[str]:
        """Return the best translation of every line; see :meth:`hypotheses`."""
        require_list(lines, "lines")
        return [best[0].text for best in self.hypotheses([Request(line) for line in lines], note)]

    def hypotheses(
        self,
        requests: Iterable[Request],
        note: Callable[[int, str], None] = lambda number, words: None,
        translated: Callable[[int], None] = lambda lines: None,
    ) -> list[list[Hypothesis]]:
        """Return the translations of every line, in their order, the best first; an empty line has an empty one.

        A line with more pieces than the model has positions is translated in parts. It is cut after sentences or, if a
        sentence is too long, between words.

        Args:
            requests: lines, of raw text.
            note: called with the index of such a line, and what was done.
            translated: called after each batch, with the number of lines whose first part was in it.

        Raises:
            UserError: a line is no text, has constraints and the search takes none, or is too long with them, or its prefix or
                constraints are too long, or have pieces that no translation can hold.
        """
        requests = checked(requests)
        parts: list[Part] = []
        places: list[list[int]] = [[] for _ in requests]
        sources = self.encode([request.source for request in requests])
        for number, (request, pieces) in enumerate(zip(requests, sources)):
            require_constraints_taken(self.search, request)
            cut = list(split(pieces, self.max_pieces))
            if len(cut) > 1:
                limits = f"{len(pieces):,} pieces, the model takes {self.max_pieces}"
                if request.constraints:
                    raise UserError(f"{request.source[:30]!r}...: has constraints and {limits}: shorten it")
                note(number, f"{limits}: translated in {len(cut)} parts")
            prefix, *constraints = self.encode([request.prefix, *request.constraints])
            constraints = [inside_a_text(one, self.pieces) for one in constraints if one]  # one of spaces has no pieces
            for what, asked_for in [("prefix", prefix), *(("constraint", one) for one in constraints)]:
                self._require_known(request.source, what, asked_for)
            for source in cut:
                places[number].append(len(parts))
                parts.append(Part(source, prefix if source is cut[0] else [], constraints))
        firsts = {own[0] for own in places if own}
        translated(len(requests) - len(firsts))
        with self.turn:
            found = self._translate(parts, lambda batch: translated(len(firsts.intersection(batch))))
        joined, lenpen = [], 0.0 if self.search.unnormalized else self.search.lenpen
        for request, own, pieces in zip(requests, places, sources):
            numbers, begins = word_numbers(pieces), accumulate((len(parts[place].source) for place in own), initial=0)
            words = [numbers[begin] for _, begin in zip(own, begins)]
            whole = [join_parts(rank, words, lenpen) for rank in zip(*(found[place] for place in own))]  # of each rank
            joined.append([between_spaces(one, request.source, self.pieces) for one in whole] or [Hypothesis("", 0.0, [])])
        return joined

    def encode(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the pieces of texts, divided as fairseq-preprocess does: a piece can hold U+0085, which separates words."""
        found = self.pieces.encode(list(texts), out_type=str)
        return [tokenize_line(without_symbols(self.pieces, " ".join(pieces))) for pieces in found]

    def _require_known(self, source: str, what: str, pieces: Sequence[str]) -> None:
        for piece in pieces:
            if self.task.target_dictionary.index(piece) == self.task.target_dictionary.unk():
                raise UserError(
                    f"{source[:30]!r}...: its {what} has {piece!r}, which is not in the model's vocabulary, so that no translation "
                    "can hold it: leave it out"
                )

    @torch.inference_mode()
    def _translate(self, parts: Sequence[Part], done: Callable[[list[int]], None]) -> list[list[Hypothesis]]:
        source, target = self.task.source_dictionary, self.task.target_dictionary
        ids = [torch.tensor([*map(source.index, part.source), source.eos()]) for part in parts]
        prefixes = [torch.tensor([*map(target.index, part.prefix)], dtype=torch.long) for part in parts]
        constraints = None
        if self.search.constraints:
            constraints = pack_constraints(
                [[torch.tensor([*map(target.index, pieces)]) for pieces in part.constraints] for part in parts]
            )
        most = self.lengths.begin([len(part.source) + self.beside for part in parts])
        for part, longest in zip(parts, most):
            if len(part.prefix) > longest:
                limits = f"{len(part.prefix)} pieces, and its translation at most {longest}"
                raise UserError(f"{self._beginning(part)}: has a prefix of {limits}: shorten it, or raise --max-len-b")
        lengths = torch.tensor([len(tokens) for tokens in ids])
        dataset = self.task.build_dataset_for_inference(ids, lengths, constraints=constraints)
        results: list[list[Hypothesis]] = [[] for _ in parts]
        for batch in by_length(lengths.tolist(), self.max_tokens, self.batch_size):
            sample = dataset.collater([dataset[i] for i in batch])
            order = sample["id"].tolist()
            prefix = data_utils.collate_tokens([prefixes[i] for i in order], target.pad())
            sample["prefix"] = prefix if prefix.numel() else None
            if self.device.type == "cuda":
                sample = utils.move_to_cuda(sample)
            with self.draws.own(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                found = self.task.inference_step(
                    self.generator, self.models, sample, prefix_tokens=sample["prefix"], constraints=sample.get("constraints")
                )
            for i, tokens, hypotheses in zip(order, sample["net_input"]["src_tokens"], found):
                if not hypotheses:
                    raise UserError(f"{self._beginning(parts[i])}: {_why_none(parts[i], most[i])}")
                first = int(tokens.ne(source.pad()).nonzero()[0])  # sources are padded on the left
                first += int(tokens[first] != ids[i][0])  # and may begin with a token of the task's
                results[i] = [self._hypothesis(parts[i], one, first) for one in hypotheses[: self.search.nbest]]
            done(batch)
        return results

    def _beginning(self, part: Part) -> str:
        return f"{self.pieces.decode(part.source)[:30]!r}..."

    def _hypothesis(self, part: Part, found: dict, first: int) -> Hypothesis:
        dictionary = self.task.target_dictionary
        special = (dictionary.bos(), dictionary.pad(), dictionary.eos(), self.generator.eos)
        pieces = [dictionary[i] for i in found["tokens"].tolist() if i not in special]
        attention: Tensor | None = found.get("attention")
        links = [] if attention is None or not attention.numel() else word_links(attention[first:], part.source, pieces)
        text = self.pieces.decode(pieces).replace("\n", " ")  # which a model with byte fallback can spell
        return Hypothesis(text, float(found["score"]), links, len(found["tokens"]))


def _why_none(part: Part, most: int) -> str:
    if part.constraints:
        return f"no translation of at most {most} pieces with its constraints was found: shorten them, or raise --max-len-b or --beam"
    return "the model gives no translation a probability: its weights have values that are no numbers"


def translate_stream(
    translator: Translator,
    requests: Iterable[Request],
    buffer_size: int,
    *,
    note: Callable[[str], None],
    translated: Callable[[int], None] = lambda lines: None,
) -> Iterator[list[Hypothesis]]:
    """Translate ``buffer_size`` lines at a time, sorted by length, and yield the translations in the lines' order.

    Args:
        translator, requests, buffer_size: what translates, and what.
        note: called with what was done to a line that is too long.
        translated: called after each batch, with a number of lines.
    """
    requests, done = iter(requests), 0
    while window := list(islice(requests, buffer_size)):

        def note_line(number: int, words: str, before: int = done) -> None:
            note(f"line {before + number + 1}: {words}")

        yield from translator.hypotheses(window, note_line, translated)
        done += len(window)


def _pieces(model, folders: Sequence[Path], dictionaries: Sequence[Dictionary]) -> sentencepiece.SentencePieceProcessor:
    if not isinstance(model, (str, Path, type(None))):
        return model
    path = own_model(folders, [dictionary.symbols for dictionary in dictionaries]) if model is None else model
    if path is None:
        raise UserError(f"{MODEL_NAME}: is neither in {folders[0]} nor in {folders[1]}: give --sentencepiece MODEL")
    pieces = load_sentencepiece(path)
    for dictionary in dictionaries:
        require_own_pieces(pieces, path, dictionary.symbols)
    return pieces
