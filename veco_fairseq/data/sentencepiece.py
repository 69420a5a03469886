# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""SentencePiece models: train, read and trim them, and encode text. Nothing here needs PyTorch."""

import copy
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.data.exact import exact
from veco_fairseq.data.reserved import MASK, RESERVED, without_symbols
from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import Path_, atomic_output, read_lines, require_file

MODEL_NAME = "sentencepiece.bpe.model"
DICT_NAME = "dict.txt"

# SentencePiece sums over threads in float, so another number of threads could give another vocabulary.
TRAINING_THREADS = 16
LINES_A_BATCH = 8192
# In characters. The trainer's time grows with the square of a line's length: a line of 200,000 words takes minutes.
LONGEST_LINE = 2**14


def train_sentencepiece(
    lines: Iterable[str],
    vocab_size: int,
    *,
    character_coverage: float,
    quiet: bool = True,
    at_most: bool = False,
    option: str = "--vocab-size",
) -> bytes:
    """Train a unigram model of ``vocab_size`` pieces, with <unk>, <s> and </s>; return it serialised.

    The normalisation is XLM-R's.

    Args:
        lines: of text.
        vocab_size, character_coverage: SentencePiece's options.
        quiet: do not print the progress.
        at_most: make fewer pieces where the text has not as many, instead of an error.
        option: the user's option for the size, for messages.

    Raises:
        UserError: the text has too few different pieces for this size, or too many characters, or none.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_cut(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            num_threads=TRAINING_THREADS,
            hard_vocab_limit=not at_most,
            # In bytes. The trainer leaves out longer lines, by default those above 4,192: a paragraph of Hindi or Thai.
            max_sentence_length=4 * LONGEST_LINE,
            minloglevel=2 if quiet else 0,
        )
    except RuntimeError as error:
        message = str(error)
        if "all_chars_count" in message:
            raise UserError("nothing is left of the text when it is normalised: give one with more than spaces") from error
        too_high = re.search(r"value <= (\d+)", message)
        too_low = re.search(r"required_chars\. \d+ vs (\d+)", message)
        if too_high:
            other = ", or --soft-vocab-limit" if option == "--vocab-size" else ""
            message = f"more than the text has pieces for: give at most {too_high[1]}{other}"
        elif too_low:
            message = f"too few for the characters of the text: give at least {too_low[1]}, or lower --character-coverage"
        raise UserError(f"{option} {vocab_size}: {message}") from error
    return model.getvalue()


def _cut(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; those above :data:`LONGEST_LINE` in parts, cut between words, which the trainer counts one by one."""
    for line in lines:
        while len(line) > LONGEST_LINE:
            place = line.rfind(" ", 1, LONGEST_LINE)
            place = LONGEST_LINE if place < 0 else place
            yield line[:place]
            line = line[place:]
        yield line


def load_sentencepiece(path: Path_) -> sentencepiece.SentencePieceProcessor:
    """Load the model in ``path``.

    Raises:
        UserError: there is none, or it is damaged. A file that is cut off between two pieces can be read, but has no
            settings.
    """
    require_file(path)
    try:
        content = Path(path).read_bytes()
        proto = sentencepiece_model_pb2.ModelProto.FromString(content)
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        model.encode("a")  # some damage shows only here
        model.id_to_piece(list(range(len(model))))  # and bytes that are no text show here
        whole = proto.HasField("trainer_spec") and proto.HasField("normalizer_spec")
    except (RuntimeError, DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a SentencePiece model, or damaged: copy it again") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    if not whole:
        raise UserError(f"{path}: is a SentencePiece model that is cut off: copy it again")
    return model


def ordinary_pieces(model: sentencepiece.SentencePieceProcessor) -> list[str]:
    """Return the pieces without ``<unk>`` and control symbols, in the model's order."""
    return [model.id_to_piece(i) for i in range(len(model)) if not (model.is_unknown(i) or model.is_control(i))]


def dictionary_text(model: bytes, path: Path) -> bytes:
    """Return dict.txt for a serialised model: a line ``piece 1`` for each ordinary piece, in the model's order.

    Raises:
        UserError: a piece of the model, which is to be in ``path``, has the name of one of fairseq's own symbols.
    """
    pieces = ordinary_pieces(sentencepiece.SentencePieceProcessor(model_proto=model))
    for piece in pieces:
        if piece in RESERVED:
            raise UserError(f"{path}: has a piece '{piece}', which is a symbol of fairseq's: take it out of the text")
    return "".join(f"{piece} 1\n" for piece in pieces).encode("utf-8")


def write_vocabulary(folder: Path_, model: bytes, dictionary: bytes) -> None:
    """Write a SentencePiece model and its dictionary under the names that all commands look for."""
    for name, content in ((MODEL_NAME, model), (DICT_NAME, dictionary)):
        with atomic_output(Path(folder) / name) as temporary:
            temporary.write_bytes(content)


class Trimmed(NamedTuple):
    """The result of :func:`trim`.

    Attributes:
        model: a serialised SentencePiece model of the kept pieces. It cuts other text into smaller pieces, so that no
            character of the texts becomes unknown.
        dictionary: its dict.txt.
        kept, pieces: the number of pieces that are kept, and of all pieces.
        share: the share of the texts' pieces that are kept.
    """

    model: bytes
    dictionary: bytes
    kept: int
    pieces: int
    share: float


def trim(model: sentencepiece.SentencePieceProcessor, corpora: Sequence[Path_], keep: int, workers: int) -> Trimmed:
    """Keep the pieces that texts need most: all their characters first, then the most frequent pieces.

    Args:
        model: pre-training's unigram model.
        corpora: the translation data's training texts of every language, plain, .gz or .xz.
        keep: pieces to keep, beside ``<unk>``, bytes, and control and user-defined symbols.
        workers: threads.

    Raises:
        UserError: a text is missing or not UTF-8, all texts are empty, they have more characters than ``keep``, or the
            model is no unigram model.
    """
    require_list(corpora, "corpora")
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto())
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise UserError("--sentencepiece: is no unigram model: only of such a model can pieces be left out")
    counts = np.zeros(len(model), dtype=np.int64)
    for corpus in corpora:
        lines = read_lines(corpus)
        while batch := list(islice(lines, LINES_A_BATCH)):
            for pieces in model.encode(batch, num_threads=workers):
                np.add.at(counts, pieces, 1)
    # These stay: bytes spell characters without a piece, and a symbol such as <2de> is wanted, also where no text has it.
    kind = sentencepiece_model_pb2.ModelProto.SentencePiece
    special = (kind.UNKNOWN, kind.CONTROL, kind.BYTE, kind.USER_DEFINED)
    ordinary = np.array([piece.type not in special or piece.piece == MASK for piece in proto.pieces])  # fairseq has its own
    counts *= ordinary
    if not counts.any():
        raise UserError(f"{', '.join(map(str, corpora))}: {'holds' if len(corpora) == 1 else 'hold'} no text")
    seen = "".join(model.id_to_piece(int(i)) for i in np.flatnonzero(counts))
    characters = [i for i in map(model.piece_to_id, sorted(set(seen))) if ordinary[i]]
    if len(characters) > keep:
        raise UserError(f"--keep {keep}: the texts have {len(characters):,} different characters: keep at least as many")
    need = counts.copy()
    need[characters] = counts.sum() + 1
    kept = [i for i in np.argsort(-need, kind="stable")[:keep] if need[i]]
    share = float(counts[kept].sum() / counts.sum())
    pieces = [proto.pieces[i] for i in sorted({*kept, *np.flatnonzero(~ordinary)})]
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    proto.trainer_spec.vocab_size = len(pieces)
    small = proto.SerializeToString()
    return Trimmed(small, dictionary_text(small, Path(MODEL_NAME)), len(kept), int(ordinary.sum()), share)


def encode_text(model: Path, source: Path, target: Path, workers: int) -> int:
    """Write the lines of ``source`` (plain, .gz or .xz) as space-separated pieces to ``target``; return the number of lines.

    fairseq-preprocess makes translation data from such files.
    """
    processor = load_sentencepiece(model)
    lines = read_lines(source)
    count = 0
    with atomic_output(target) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as stream:
        while batch := list(islice(lines, LINES_A_BATCH)):
            count += len(batch)
            for pieces in processor.encode(batch, out_type=str, num_threads=workers):
                # A carriage return, of a model that does not normalise, would end the line for fairseq-preprocess.
                stream.write(without_symbols(processor, " ".join(pieces)).replace("\r", " ") + "\n")
        if not count:
            raise UserError(f"{source}: holds no text")
    return count


class Encoder:
    """Turns lines into fairseq's ids with </s>, as fairseq-preprocess does with the lines' pieces.

    SentencePiece encodes in its own threads. Half of the time around it is Python's, so much text goes to several processes
    (:func:`veco_fairseq.data.prepare.encoding.encode_rows`).

    Args:
        model: cuts the lines into pieces.
        symbols: of the dictionary, by id; other pieces become ``<unk>``.
        workers: threads.
    """

    def __init__(self, model: sentencepiece.SentencePieceProcessor, symbols: Sequence[str], workers: int):
        self.model = model
        self.workers = workers
        self.vocabulary = len(symbols)
        self.symbols = {symbol: index for index, symbol in enumerate(symbols)}
        self.unk, self.eos = self.symbols["<unk>"], self.symbols["</s>"]
        pieces = [model.id_to_piece(i) for i in range(len(model))]
        # <unk>, <s> and </s> have the same names in both.
        self.ids = np.array([self.symbols.get(piece, self.unk) for piece in pieces], dtype=np.int64)
        # fairseq-preprocess reads words, not pieces: of unknown text its letters, of a piece with a space in it two.
        self.apart = np.array([model.is_unknown(i) or piece.split() != [piece] for i, piece in enumerate(pieces)])

    def __call__(self, lines: list[str]) -> list[np.ndarray]:
        ids, sizes = self.flat(lines)
        return np.split(ids, np.cumsum(sizes)[:-1]) if lines else []

    def flat(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all lines one after the other, each with its </s>, and the lines' lengths (int32)."""
        encoded = self.model.encode(lines, num_threads=self.workers, return_type="numpy")
        sizes = np.fromiter(map(len, encoded), dtype=np.int32, count=len(lines))
        pieces = np.concatenate([*encoded, np.empty(0, dtype=np.int32)])
        ids, apart = self.ids[pieces], self.apart[pieces]
        if apart.any():
            ids, sizes = self._as_words(lines, np.unique(np.repeat(np.arange(len(lines)), sizes)[apart]), ids, sizes)
        return np.insert(ids, np.cumsum(sizes), self.eos), sizes + np.int32(1)

    def _as_words(self, lines: list[str], rows: np.ndarray, ids: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids and lengths, those of a few lines looked up by word: hardly ever others than those of the pieces."""
        ends = np.cumsum(sizes)
        other = {}
        for row in rows:
            words = without_symbols(self.model, " ".join(self.model.encode(lines[row], out_type=str))).split()
            found = np.array([self.symbols.get(word, self.unk) for word in words], dtype=np.int64)
            if not np.array_equal(found, ids[ends[row] - sizes[row] : ends[row]]):
                other[row] = found
        if not other:
            return ids, sizes
        parts = [other.get(row, part) for row, part in enumerate(np.split(ids, ends[:-1]))]
        return np.concatenate(parts), np.fromiter(map(len, parts), dtype=np.int32, count=len(parts))

    def words(self, words: Sequence[str], first: int = 1) -> list[np.ndarray]:
        """Return the ids of each word on its own, without </s>; <unk> for a word whose characters SentencePiece drops.

        Args:
            first: so many of them begin a sentence. Before the others there is a space also for a model that adds none.
        """
        encoder, lines = self, list(words)
        if len(lines) > first and len(self.model.normalize("a")) == 1:  # without add_dummy_prefix
            encoder, lines[first:] = copy.copy(self), [f" {word}" for word in lines[first:]]
            encoder.model = exact(self.model)
        return [ids[:-1] if len(ids) > 1 else np.array([self.unk]) for ids in encoder(lines)]
