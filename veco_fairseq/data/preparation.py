# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""From raw text to a data root: SentencePiece vocabulary, held-out lines, token files.

The root is laid out as :mod:`veco_fairseq.data.roots` reads it. Every part of it (the vocabulary, each
language, each pair) is one step: ``ROOT/preparation.json`` notes what a step was made from, and a step
whose inputs and options are the same as then is not done again.
"""

import gzip
import hashlib
import io
import json
import os
import re
import time
import zlib
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import sentencepiece
import torch
from fairseq.data import Dictionary, indexed_dataset

from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output

MODEL_NAME = "sentencepiece.bpe.model"
DICT_NAME = "dict.txt"
MANIFEST_NAME = "preparation.json"
# A piece of these names would be taken for fairseq's (or this project's) own symbol of that name.
RESERVED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
LANGUAGE = re.compile(r"[A-Za-z0-9_]+")
# SentencePiece sums over threads in float: with another number of them the vocabulary could differ.
TRAINING_THREADS = 16
LINES_A_BATCH = 8192
SECONDS_BETWEEN_PROGRESS = 10.0


def default_workers() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Options ---------------------------------------------------------------------------------------------


@dataclass
class Part:
    """One folder of the root: a language (one side) or a pair of them (two sides)."""

    languages: Tuple[str, ...]
    train: Tuple[Path, ...]
    valid: Tuple[Path, ...] = ()

    @property
    def is_pair(self) -> bool:
        return len(self.languages) == 2

    @property
    def name(self) -> str:
        """The folder below the root."""
        return f"{'bitext' if self.is_pair else 'mono'}/{'-'.join(self.languages)}"

    def prefix(self, split: str, side: int) -> str:
        """The token file of one side, below the root, without .bin and .idx."""
        if not self.is_pair:
            return f"{self.name}/{split}"
        return f"{self.name}/{split}.{'-'.join(self.languages)}.{self.languages[side]}"


@dataclass
class Plan:
    """What prepare_root.py was asked for."""

    output: Path
    parts: List[Part]
    valid_lines: int
    vocab_size: Optional[int] = None
    sentencepiece: Optional[Path] = None
    dictionary: Optional[Path] = None
    character_coverage: float = 0.9998
    vocab_lines: int = 2_000_000
    workers: int = field(default_factory=default_workers)

    def __post_init__(self) -> None:
        given = (self.sentencepiece is not None, self.dictionary is not None)
        if self.vocab_size is None and not all(given):
            raise UserError("the vocabulary: give --vocab-size N, or --sentencepiece MODEL and --dict DICT together")
        if self.vocab_size is not None and any(given):
            raise UserError("the vocabulary: give --vocab-size, or --sentencepiece and --dict, not both")
        if not self.parts:
            raise UserError("nothing to prepare: give --mono LANG=FILE or --bitext SRC-TGT=FILE,FILE")
        if self.valid_lines < 0:
            raise UserError(f"--valid-lines {self.valid_lines}: must be 0 or more")
        if self.workers < 1:
            raise UserError(f"--workers {self.workers}: must be 1 or more")
        if not 0.9 <= self.character_coverage <= 1:
            raise UserError(f"--character-coverage {self.character_coverage}: must be from 0.9 to 1")


def parse_parts(
    mono: Sequence[str], bitext: Sequence[str], mono_valid: Sequence[str] = (), bitext_valid: Sequence[str] = ()
) -> List[Part]:
    """The parts named by ``LANG=FILE`` and ``SRC-TGT=FILE,FILE`` arguments, mono first.

    Raises:
        UserError: an argument has another form, a language has strange characters, something is named
            twice, a validation file has no training file beside it, or a file is not there.
    """
    parts = {}
    for option, arguments, sides in (("--mono", mono, 1), ("--bitext", bitext, 2)):
        for languages, files in _parse_files(option, arguments, sides).items():
            parts[frozenset(languages)] = Part(languages, files)
    for option, arguments, sides in (("--mono-valid", mono_valid, 1), ("--bitext-valid", bitext_valid, 2)):
        for languages, files in _parse_files(option, arguments, sides).items():
            part = parts.get(frozenset(languages))
            if part is None:
                raise UserError(f"{option} {'-'.join(languages)}: {option[:-6]} names no training file for it")
            part.valid = files if languages == part.languages else files[::-1]
    return list(parts.values())


def _parse_files(option: str, arguments: Sequence[str], sides: int) -> Dict[Tuple[str, ...], Tuple[Path, ...]]:
    wanted = "LANG=FILE" if sides == 1 else "SRC-TGT=FILE,FILE"
    parsed = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        languages = tuple(key.split("-"))
        # A lone file may have a comma in its name; of two files the comma between them must be the only one.
        names = value.split(",") if sides == 2 else [value]
        if not equals or len(languages) != sides or len(names) != sides or not all(names):
            raise UserError(f"{option} {argument}: must have the form {wanted}")
        for language in languages:
            if not LANGUAGE.fullmatch(language):
                raise UserError(f"{option} {argument}: '{language}' is no language code: use letters, digits and _")
        if len(set(languages)) < sides:
            raise UserError(f"{option} {argument}: both sides are {languages[0]}")
        if any(set(languages) == set(other) for other in parsed):
            raise UserError(f"{option} {argument}: {key} is given twice: join its files into one")
        parsed[languages] = tuple(map(Path, names))
        for path in parsed[languages]:
            if not path.is_file():
                raise UserError(f"{path}: no such file ({option} {key})")
    return parsed


# Reading ---------------------------------------------------------------------------------------------


def read_text(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or .gz, without their line ends.

    Only a newline ends a line (not U+2028 or a form feed, as with str.splitlines).

    Raises:
        UserError: the file cannot be read, is no gzip file, or has a line that is not UTF-8.
    """
    number = 0
    try:
        with (gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")) as stream:
            for number, line in enumerate(stream, start=1):
                yield line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {number}: not UTF-8 ({error.reason}): convert the file to UTF-8") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: damaged after line {number} ({error}): fetch or compress it again") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def is_spread(index: int, chosen: int, total: int) -> bool:
    """Whether ``index`` is among ``chosen`` of ``total`` indices that lie evenly spread over them."""
    return (index + 1) * chosen // total > index * chosen // total


@dataclass
class Survey:
    """What one pass over a part's training files found, before anything is written.

    Attributes:
        rows: lines (of each side) in the file, blank ones included.
        kept: lines of text; for a pair, the pairs without an empty side.
        valid_start: for a language, the row where the held-out documents start (``rows`` when there are none).
        cut: whether the held-out lines are a piece of a document, for want of a second document.
        dropped: rows of a pair with an empty side, in the training files and in the validation files.
    """

    rows: int
    kept: int
    valid_start: int
    cut: bool = False
    dropped: int = 0


def survey_mono(path: Path, valid_lines: int) -> Survey:
    """Count, and find where the last whole documents with together ``valid_lines`` lines or more start.

    If that would leave no line for training, the document is cut before the last ``valid_lines`` lines.

    Raises:
        UserError: no text, or not more lines of text than are to be held out.
    """
    rows = kept = in_documents = 0
    documents = deque()  # [first row, lines] of the last documents: enough of them for valid_lines, no more
    last_rows = deque(maxlen=max(valid_lines, 1))
    blank_before = True
    for row, line in enumerate(read_text(path)):
        rows = row + 1
        blank = not line.strip()
        if not blank:
            if blank_before:
                while documents and in_documents - documents[0][1] >= valid_lines:
                    in_documents -= documents.popleft()[1]
                documents.append([row, 0])
            documents[-1][1] += 1
            in_documents += 1
            kept += 1
            last_rows.append(row)
        blank_before = blank
    while len(documents) > 1 and in_documents - documents[0][1] >= valid_lines:
        in_documents -= documents.popleft()[1]
    _require_lines(path, kept, valid_lines)
    if not valid_lines:
        return Survey(rows, kept, rows)
    if in_documents == kept:
        return Survey(rows, kept, last_rows[0], cut=True)
    return Survey(rows, kept, documents[0][0])


def survey_bitext(paths: Tuple[Path, ...], valid_lines: int) -> Survey:
    """Count the pairs, and those that have text on both sides.

    Raises:
        UserError: unequal numbers of lines, no text, or not more pairs than are to be held out.
    """
    counts = [0, 0]
    kept = 0
    for lines in zip_longest(*map(read_text, paths)):
        for side, line in enumerate(lines):
            counts[side] += line is not None
        kept += all(line and line.strip() for line in lines)
    if counts[0] != counts[1]:
        raise UserError(
            f"{paths[0]} has {counts[0]:,} lines and {paths[1]} has {counts[1]:,}: "
            "line N of the one must be the translation of line N of the other"
        )
    _require_lines(paths[0], kept, valid_lines)
    return Survey(counts[0], kept, counts[0], dropped=counts[0] - kept)


def _require_lines(path: Path, kept: int, valid_lines: int) -> None:
    if not kept:
        raise UserError(f"{path}: holds no text")
    if valid_lines >= kept:
        raise UserError(f"{path}: has {kept:,} usable lines, too few to hold out --valid-lines {valid_lines:,}")


def held_out(part: Part, valid_lines: int) -> int:
    """The lines to hold out of the training files: none where validation files were given."""
    return 0 if part.valid else valid_lines


def split_rows(part: Part, survey: Survey, valid_lines: int) -> Iterator[Tuple[str, Tuple[str, ...]]]:
    """The rows that the part is made of, with their split: ``("train", (line,))`` or ``("valid", (line, line))``.

    Pairs with an empty side are left out; blank lines of a language are document borders and stay.
    """
    valid_lines = held_out(part, valid_lines)
    kept = 0
    for row, lines in enumerate(zip(*map(read_text, part.train))):
        if not part.is_pair:
            yield "train" if row < survey.valid_start else "valid", lines
        elif all(line.strip() for line in lines):
            yield "valid" if is_spread(kept, valid_lines, survey.kept) else "train", lines
            kept += 1
    if part.valid:
        for lines in zip(*map(read_text, part.valid)):
            if not part.is_pair or all(line.strip() for line in lines):
                yield "valid", lines


# Vocabulary ------------------------------------------------------------------------------------------


def equal_shares(lines: Dict[str, int], limit: int) -> Dict[str, int]:
    """How many lines of each language to take: the same for all, but no more than it has, together ``limit``."""
    shares = {}
    for position, language in enumerate(sorted(lines, key=lambda name: (lines[name], name))):
        shares[language] = min(lines[language], limit // (len(lines) - position))
        limit -= shares[language]
    return shares


def training_lines(plan: Plan, surveys: Dict[str, Survey]) -> Iterator[str]:
    """The lines that the vocabulary is learnt from: those of the training split, at most ``plan.vocab_lines``."""
    totals = Counter()
    for part in plan.parts:
        for language in part.languages:
            totals[language] += surveys[part.name].kept
    shares = equal_shares(totals, plan.vocab_lines)
    seen = Counter()
    for part in plan.parts:
        for split, lines in split_rows(part, surveys[part.name], plan.valid_lines):
            for language, line in zip(part.languages, lines):
                if line.strip():
                    if split == "train" and is_spread(seen[language], shares[language], totals[language]):
                        yield line
                    # Lines of validation files are not among the totals.
                    seen[language] += split == "train" or not part.valid


def train_sentencepiece(lines: Iterable[str], vocab_size: int, character_coverage: float, quiet: bool = True) -> bytes:
    """A serialised unigram model of ``vocab_size`` pieces, <unk>, <s> and </s> among them; normalised as XLM-R's.

    Raises:
        UserError: the text has too few different pieces for this size, or too many characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            num_threads=TRAINING_THREADS,
            minloglevel=2 if quiet else 0,
        )
    except RuntimeError as error:
        message = str(error)
        too_high = re.search(r"value <= (\d+)", message)
        too_low = re.search(r"required_chars\. \d+ vs (\d+)", message)
        if too_high:
            message = f"more than the text has pieces for: at most {too_high[1]}"
        elif too_low:
            message = f"too few for the characters of the text: at least {too_low[1]}, or lower --character-coverage"
        raise UserError(f"--vocab-size {vocab_size}: {message}") from error
    return model.getvalue()


def load_sentencepiece(path: Path) -> sentencepiece.SentencePieceProcessor:
    """The model in ``path``; UserError if there is none."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except RuntimeError as error:
        raise UserError(f"{path}: not a SentencePiece model") from error


def dictionary_text(model: sentencepiece.SentencePieceProcessor, path: Path) -> str:
    """dict.txt for the model in ``path``: a line ``piece 1`` for each ordinary piece, in the model's order.

    Raises:
        UserError: a piece has the name of one of fairseq's own symbols.
    """
    pieces = [
        model.id_to_piece(i) for i in range(len(model)) if not (model.is_unknown(i) or model.is_control(i))
    ]
    for piece in pieces:
        if piece in RESERVED:
            raise UserError(f"{path}: has a piece '{piece}', which is a symbol of fairseq's: take it out of the text")
    return "".join(f"{piece} 1\n" for piece in pieces)


def load_fairseq_dictionary(path: Path) -> Dictionary:
    """The dictionary in ``path``, without <mask>; UserError if it is none."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return Dictionary.load(str(path))
    except Exception as error:  # fairseq raises a bare Exception on a wrong encoding
        raise UserError(f"{path}: not a fairseq dictionary ({error})") from error


class Encoder:
    """Lines -> fairseq ids with </s>, as fairseq-preprocess would make them from the lines' pieces.

    SentencePiece encodes in threads of its own, so one process keeps all processors busy.
    """

    def __init__(self, model: sentencepiece.SentencePieceProcessor, dictionary: Dictionary, workers: int):
        self.model = model
        self.workers = workers
        self.vocabulary = len(dictionary)
        self.unk, self.eos = dictionary.unk(), dictionary.eos()
        # <unk>, <s> and </s> have the same names in both.
        self.ids = np.array([dictionary.index(model.id_to_piece(i)) for i in range(len(model))], dtype=np.int64)

    def __call__(self, lines: List[str]) -> List[np.ndarray]:
        encoded = self.model.encode(lines, num_threads=self.workers)
        return [np.append(self.ids[np.array(pieces, dtype=np.int64)], self.eos) for pieces in encoded]


def encode_text(model: Path, source: Path, target: Path, workers: int) -> int:
    """Write the lines of ``source`` (plain or .gz) as space-separated pieces to ``target``; return their number.

    This is the input of fairseq-preprocess, for translation data.
    """
    processor = load_sentencepiece(model)
    lines = read_text(source)
    count = 0
    with atomic_output(target) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as stream:
        while batch := list(islice(lines, LINES_A_BATCH)):
            count += len(batch)
            for pieces in processor.encode(batch, out_type=str, num_threads=workers):
                stream.write(" ".join(pieces) + "\n")
        if not count:
            raise UserError(f"{source}: holds no text")
    return count


# Steps -----------------------------------------------------------------------------------------------


def fingerprint(paths: Iterable[Path]) -> List[List[Any]]:
    """Name, size and time of change of files: enough to notice that one was replaced, without reading it."""
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def checksum(*contents: bytes) -> str:
    """One checksum of several byte strings."""
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()


class Manifest:
    """ROOT/preparation.json: for each step, what it was made from, the sizes of its files, and its report."""

    def __init__(self, root: Path):
        self.root = root
        self.path = root / MANIFEST_NAME
        self.steps: Dict[str, Dict[str, Any]] = {}
        if self.path.is_file():
            try:
                self.steps = json.loads(self.path.read_text(encoding="utf-8"))["steps"]
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{self.path}: damaged: remove the folder {root} and start again") from error
        elif (root / DICT_NAME).exists():
            raise UserError(f"{root}: holds a {DICT_NAME} that this command did not make: name another --output")

    def is_done(self, step: str, made_from: Dict[str, Any]) -> bool:
        """Whether the step was done with these inputs and its files are still as it left them."""
        entry = self.steps.get(step)
        if entry is None or entry["made_from"] != json.loads(json.dumps(made_from)):
            return False
        paths = {name: self.root / name for name in entry["files"]}
        return all(path.is_file() and path.stat().st_size == entry["files"][name] for name, path in paths.items())

    def start(self, step: str, files: Iterable[str] = ()) -> None:
        """Forget the step and remove its old files: half new and half old ones must never be taken for a whole."""
        old = self.steps.pop(step, {"files": {}})["files"]
        self.save()
        for name in sorted({*old, *files}):
            path = self.root / name
            # A killed run leaves its temporary files (see atomic_output).
            for stale in (path, *path.parent.glob(f".{path.name}.*.tmp")):
                stale.unlink(missing_ok=True)

    def finish(self, step: str, made_from: Dict[str, Any], files: Iterable[str], report: Dict[str, Any]) -> None:
        """Note that the step is done."""
        sizes = {name: (self.root / name).stat().st_size for name in files}
        self.steps[step] = {"made_from": made_from, "files": sizes, "report": report}
        self.save()

    def save(self) -> None:
        with atomic_output(self.path) as temporary:
            temporary.write_text(json.dumps({"steps": self.steps}, indent=1, ensure_ascii=False), encoding="utf-8")


@dataclass
class Counts:
    """What was written of one side of one split. Tokens are pieces, without </s>."""

    lines: int = 0
    documents: int = 0
    tokens: int = 0
    unknown: int = 0
    in_document: bool = False

    def add(self, ids: np.ndarray, unk: int) -> None:
        text = len(ids) > 1
        self.lines += text
        self.documents += text and not self.in_document
        self.in_document = text
        self.tokens += len(ids) - 1
        self.unknown += int((ids == unk).sum())


def say(message: str) -> None:
    print(message, flush=True)


def prepare_root(plan: Plan) -> Dict[str, Dict[str, Any]]:
    """Make the root, or what is missing of it; return each step's report.

    Raises:
        UserError: anything that is wrong with the input; the files of a failed step do not stay.
    """
    manifest = Manifest(plan.output)
    vocabulary_from = _vocabulary_inputs(plan)
    vocabulary_is_done = manifest.is_done("vocabulary", vocabulary_from)
    if not vocabulary_is_done:
        _refuse_left_over_parts(plan, manifest)
    # All inputs are read once before anything is written: an error in the last file should not come after an hour.
    surveys = {}
    for part in plan.parts:
        made_from = _part_inputs(part, plan, manifest.steps.get("vocabulary", {}).get("report", {}).get("sha256"))
        if not (vocabulary_is_done and manifest.is_done(part.name, made_from)):
            surveys[part.name] = _survey(part, plan)
    if not manifest.path.exists():
        manifest.save()  # from here on the root is ours, whatever interrupts us
    if vocabulary_is_done:
        say("vocabulary: already there")
    else:
        _make_vocabulary(plan, surveys, manifest, vocabulary_from)
    encoder = Encoder(
        load_sentencepiece(plan.output / MODEL_NAME), load_fairseq_dictionary(plan.output / DICT_NAME), plan.workers
    )
    if (encoder.ids == encoder.unk).mean() > 0.5:
        say("warning: most pieces of the SentencePiece model are not in the dictionary: do they belong together?")
    for part in plan.parts:
        made_from = _part_inputs(part, plan, manifest.steps["vocabulary"]["report"]["sha256"])
        if manifest.is_done(part.name, made_from):
            say(f"{part.name}: already there")
        else:
            _encode_part(part, plan, surveys[part.name], encoder, manifest, made_from)
    return {step: entry["report"] for step, entry in manifest.steps.items()}


def _vocabulary_inputs(plan: Plan) -> Dict[str, Any]:
    if plan.vocab_size is None:
        load_sentencepiece(plan.sentencepiece)
        load_fairseq_dictionary(plan.dictionary)
        return {"given": checksum(plan.sentencepiece.read_bytes(), plan.dictionary.read_bytes())}
    return {
        "vocab_size": plan.vocab_size,
        "character_coverage": plan.character_coverage,
        "vocab_lines": plan.vocab_lines,
        "parts": {part.name: [held_out(part, plan.valid_lines), fingerprint(part.train)] for part in plan.parts},
    }


def _part_inputs(part: Part, plan: Plan, vocabulary: Optional[str]) -> Dict[str, Any]:
    return {
        "train": fingerprint(part.train),
        "valid": fingerprint(part.valid) or held_out(part, plan.valid_lines),
        "vocabulary": vocabulary,
    }


def _refuse_left_over_parts(plan: Plan, manifest: Manifest) -> None:
    left_over = sorted(set(manifest.steps) - {"vocabulary"} - {part.name for part in plan.parts})
    if left_over:
        raise UserError(
            f"{plan.output}: {', '.join(left_over)} would be left over from another vocabulary: "
            "name it too, remove the folder, or choose another --output"
        )


def _survey(part: Part, plan: Plan) -> Survey:
    say(f"{part.name}: reading {', '.join(str(path) for path in (*part.train, *part.valid))}")
    valid_lines = held_out(part, plan.valid_lines)
    if part.is_pair:
        survey = survey_bitext(part.train, valid_lines)
        if part.valid:
            survey.dropped += survey_bitext(part.valid, 0).dropped
        return survey
    if part.valid:
        survey_mono(part.valid[0], 0)
    survey = survey_mono(part.train[0], valid_lines)
    if survey.cut:
        say(f"{part.name}: one document (no blank line before the held-out lines): it is cut for validation")
    return survey


def _make_vocabulary(plan: Plan, surveys: Dict[str, Survey], manifest: Manifest, made_from: Dict[str, Any]) -> None:
    if plan.vocab_size is None:
        contents = (plan.sentencepiece.read_bytes(), plan.dictionary.read_bytes())
    else:
        lines = min(sum(surveys[p.name].kept * len(p.languages) for p in plan.parts), plan.vocab_lines)
        say(f"vocabulary: training SentencePiece, {plan.vocab_size:,} pieces, on about {lines:,} lines")
        model = train_sentencepiece(
            training_lines(plan, surveys), plan.vocab_size, plan.character_coverage, quiet=lines < 500_000
        )
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        contents = (model, dictionary_text(processor, plan.output / MODEL_NAME).encode("utf-8"))
    files = (MODEL_NAME, DICT_NAME)
    manifest.start("vocabulary", files)
    for name, content in zip(files, contents):
        with atomic_output(plan.output / name) as temporary:
            temporary.write_bytes(content)
    report = {"sha256": checksum(*contents), "tokens": contents[1].count(b"\n")}
    manifest.finish("vocabulary", made_from, files, report)


def _encode_part(
    part: Part, plan: Plan, survey: Survey, encoder: Encoder, manifest: Manifest, made_from: Dict[str, Any]
) -> None:
    """Write the token files of all sides and splits of a part, in one pass over its text."""
    splits = ("train", "valid") if plan.valid_lines or part.valid else ("train",)
    keys = [(split, side) for split in splits for side in range(len(part.languages))]
    files = [f"{part.prefix(*key)}{suffix}" for key in keys for suffix in (".bin", ".idx")]
    manifest.start(part.name, files)
    counts = {key: Counts() for key in keys}
    done, started, reported = 0, time.time(), time.time()
    with ExitStack() as stack:
        builders = {}
        for key in keys:
            prefix = plan.output / part.prefix(*key)
            # The index is renamed last (the stack is left in reverse order): where there is one, all is there.
            index = stack.enter_context(atomic_output(f"{prefix}.idx"))
            tokens = stack.enter_context(atomic_output(f"{prefix}.bin"))
            builders[key] = indexed_dataset.make_builder(str(tokens), "mmap", encoder.vocabulary)
            stack.callback(builders[key].finalize, str(index))
        rows = split_rows(part, survey, plan.valid_lines)
        while batch := list(islice(rows, LINES_A_BATCH)):
            for side in range(len(part.languages)):
                for (split, _), ids in zip(batch, encoder([lines[side] for _, lines in batch])):
                    builders[split, side].add_item(torch.from_numpy(ids))
                    counts[split, side].add(ids, encoder.unk)
            done += len(batch)
            if time.time() - reported > SECONDS_BETWEEN_PROGRESS:
                reported = time.time()
                speed = done / (reported - started)
                say(f"{part.name}: {done:,} of about {survey.rows:,} lines, {speed:,.0f} a second")
    report = {"rows": survey.rows, "dropped": survey.dropped, "splits": {}}
    for (split, side), count in counts.items():
        numbers = {name: value for name, value in asdict(count).items() if name != "in_document"}
        if part.is_pair:
            del numbers["documents"]
        report["splits"].setdefault(split, {})[part.languages[side]] = numbers
    manifest.finish(part.name, made_from, files, report)
    say(f"{part.name}: {done:,} lines encoded in {time.time() - started:.1f} s")


def report_table(reports: Dict[str, Dict[str, Any]]) -> str:
    """The reports of :func:`prepare_root` as a table: a row for each part, split and language."""
    rows = [("part", "split", "language", "lines", "documents", "dropped", "tokens", "unknown", "unknown %")]
    for part, report in sorted(reports.items()):
        for split, languages in report.get("splits", {}).items():
            for language, n in languages.items():
                of_pair = "documents" not in n
                documents = "-" if of_pair else f"{n['documents']:,}"
                dropped = f"{report['dropped']:,}" if of_pair and split == "train" else "-"
                share = f"{100 * n['unknown'] / max(n['tokens'], 1):.3f}"
                numbers = (f"{n['lines']:,}", documents, dropped, f"{n['tokens']:,}", f"{n['unknown']:,}", share)
                rows.append((part, split, language, *numbers))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) if i < 3 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
