# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads raw text in fairseq's own commands as elsewhere here: UTF-8, no byte order mark, lines that end with ``\\n``."""

import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.data import data_utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from torch import Tensor

from veco_fairseq.compat.patching import replaced
from veco_fairseq.data.languages import WITHOUT_SPACES, known_as
from veco_fairseq.data.reserved import without_symbols
from veco_fairseq.errors import UserError
from veco_fairseq.files import decoded_lines, read_lines

logger = logging.getLogger(__name__)

BYTES = re.compile(r"(?<!\S)<0x[0-9A-F]{2}>(?: <0x[0-9A-F]{2}>)*(?!\S)")  # pieces of a model with byte fallback
OF_WORDS = ("subword_nmt", "@@ ")  # pieces that are joined to words with spaces between them, in any language


def standard_input() -> Iterator[str]:
    """Yield the lines of standard input.

    Raises:
        UserError: it is closed, or as in :func:`veco_fairseq.files.decoded_lines`.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed: give the text with < FILE or a pipe")
    return decoded_lines(sys.stdin.buffer, "standard input")


def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
    """Read for fairseq-interactive: ``buffer_size`` lines at a time from a file or from standard input (``-``).

    Raises:
        UserError: see :func:`veco_fairseq.files.read_lines`.
    """
    lines = (line.strip() for line in (standard_input() if input == "-" else read_lines(input)))
    while batch := list(islice(lines, max(1, buffer_size))):
        yield batch


def naming_long_lines(make_batches: Callable) -> Callable:
    """Make a ``make_batches`` of fairseq-interactive whose error names the line that is too long for the model."""

    def batches(lines: list[str], cfg, *args) -> Iterator:
        try:
            yield from make_batches(lines, cfg, *args)
        except Exception as error:
            found = re.match(r"Size of sample #(\d+) is invalid .* since max_positions=\D*(\d+)", str(error))
            if not found:
                raise
            source = "standard input" if cfg.interactive.input == "-" else cfg.interactive.input
            raise UserError(
                f"{source}: the line that begins with {lines[int(found[1])][:30]!r} has more than the {found[2]} tokens that "
                "the model takes: shorten it, or give --skip-invalid-size-inputs-valid-test"
            ) from error

    return batches


def without_empty(pack: Callable) -> Callable:
    """Make a ``pack_constraints`` that leaves out constraints without a piece, such as those between two tabs."""

    def packed(lines: Sequence[Sequence[Tensor]]) -> Tensor:
        return pack([[one for one in constraints if len(one)] for constraints in lines])

    return packed


def spelling_no_symbol(encode: Callable) -> Callable:
    """Make an ``encode`` of fairseq's SentencePiece whose pieces spell none of fairseq's symbols by unknown letters."""

    @wraps(encode)
    def encoded(bpe: Any, text: str) -> str:
        return without_symbols(bpe.sp, encode(bpe, text))

    return encoded


def of_bytes(post_process: Callable) -> Callable:
    """Make a ``post_process`` that joins pieces of bytes, such as ``<0xE2> <0x82> <0xAC>``, to the characters that they spell.

    A line feed becomes a space, since a text is one line.
    """

    def spelt(found: re.Match) -> str:
        characters = bytes.fromhex(re.sub("<0x|>", "", found[0])).decode("utf-8", "replace")
        return re.sub("[ \n]", "\u2581", characters)

    @wraps(post_process)
    def processed(sentence: str, symbol: str) -> str:
        return post_process(BYTES.sub(spelt, sentence) if symbol == "sentencepiece" else sentence, symbol)

    return processed


def decode(bpe: SentencepieceBPE, text: str) -> str:
    """Join the pieces of a text for ``--bpe sentencepiece``, as for ``--remove-bpe sentencepiece``."""
    return data_utils.post_process(text, "sentencepiece")


def joined_once(main: Callable) -> Callable:
    """Make a ``main`` of fairseq-generate or -interactive that joins pieces once, if both of its options ask for it.

    With ``--bpe sentencepiece --remove-bpe sentencepiece`` fairseq joins the words, too: a text has no spaces any more.
    """

    @wraps(main)
    def translate(cfg, *args, **kwargs):
        if not getattr(cfg.bpe, "_name", None) == cfg.common_eval.post_process == "sentencepiece":
            return main(cfg, *args, **kwargs)
        with replaced(SentencepieceBPE, "decode", lambda bpe, text: text):
            return main(cfg, *args, **kwargs)

    return translate


def telling_of_long_words(main: Callable) -> Callable:
    """Make a ``main`` of fairseq-generate that says that its BLEU takes a sentence for one word, in a language without spaces."""

    @wraps(main)
    def translate(cfg, *args):
        scorer = main(cfg, *args)
        by_spaces = cfg.scoring._name == "bleu" and cfg.common_eval.post_process
        if cfg.scoring._name == "sacrebleu":
            by_spaces = cfg.scoring.sacrebleu_tokenizer in ("none", "13a", "intl") and not cfg.scoring.sacrebleu_char_level
        has_scored = getattr(scorer, "ref", ()) or getattr(getattr(scorer, "stat", None), "reflen", 0)
        by_spaces = by_spaces and cfg.common_eval.post_process not in OF_WORDS
        if by_spaces and has_scored and (data := getattr(cfg.task, "data", None)):
            lang = getattr(cfg.task, "target_lang", None) or data_utils.infer_language_pair(utils.split_paths(data)[0])[1]
            if (code := known_as(lang or "")) in WITHOUT_SPACES:
                how = f"--scoring sacrebleu --sacrebleu-tokenizer {'zh' if code == 'zh' else 'char'}"
                logger.warning(f"the BLEU above takes a sentence of {lang} for one word: give {how}, or score with veco score")
        return scorer

    return translate


def check_texts(args) -> None:
    """Read all texts of a fairseq-preprocess once, before anything is made from them.

    Raises:
        UserError: a text is missing or not UTF-8, or has a carriage return within a line, where fairseq would cut it.
    """
    prefixes = [args.trainpref, *(args.validpref or "").split(","), *(args.testpref or "").split(",")]
    for prefix in filter(None, prefixes):
        for lang in dict.fromkeys([args.source_lang, None if args.only_source else args.target_lang]):
            if lang is None and args.source_lang is not None:
                continue
            path = Path(prefix if lang is None else f"{prefix}.{lang}")
            for number, line in enumerate(read_lines(path), start=1):
                if "\r" in line:
                    raise UserError(
                        f"{path}, line {number}: has a carriage return, which ends a line for fairseq-preprocess: remove "
                        "carriage returns with tr -d '\\r'"
                    )


_checked: list[Any] = [None]  # the arguments whose texts are checked


def checked_first(make: Callable) -> Callable:
    """Make a function of fairseq-preprocess, for a dictionary or data, that checks the texts first."""

    @wraps(make)
    def made(*positional, **options):
        args = options["args"] if "args" in options else positional[-1]
        if args is not _checked[0]:
            check_texts(args)
            _checked[0] = args
        return make(*positional, **options)

    return made
