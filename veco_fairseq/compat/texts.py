# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Raw text in fairseq's own commands, read as everywhere here: UTF-8, without a mark at the beginning, lines of ``\\n``."""

import re
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any

from veco_fairseq.errors import UserError
from veco_fairseq.files import decoded_lines, read_lines


def standard_input() -> Iterator[str]:
    """The lines of standard input; errors as of :func:`veco_fairseq.files.decoded_lines`."""
    return decoded_lines(sys.stdin.buffer, "standard input")


def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
    """Read for fairseq-interactive: so many lines at a time of a file, or of standard input (``-``).

    Raises:
        UserError: see :func:`veco_fairseq.files.read_lines`.
    """
    lines = (line.strip() for line in (standard_input() if input == "-" else read_lines(input)))
    while batch := list(islice(lines, max(1, buffer_size))):
        yield batch


def naming_long_lines(make_batches: Callable) -> Callable:
    """Make a ``make_batches`` of fairseq-interactive whose error has the line that is too long for the model."""

    def batches(lines: list[str], cfg, *args) -> Iterator:
        try:
            yield from make_batches(lines, cfg, *args)
        except Exception as error:
            found = re.match(r"Size of sample #(\d+) is invalid .* since max_positions=\D*(\d+)", str(error))
            if not found:
                raise
            source = "standard input" if cfg.interactive.input == "-" else cfg.interactive.input
            raise UserError(
                f"{source}: the line that begins with {lines[int(found[1])][:30]!r} has more than {found[2]} tokens, which is "
                "what the model takes: shorten it, or give --skip-invalid-size-inputs-valid-test"
            ) from error

    return batches


def check_texts(args) -> None:
    """Read all texts of a fairseq-preprocess once, before anything is made of the first.

    Raises:
        UserError: one is missing or no UTF-8 text, or has a carriage return within a line, where fairseq would cut it.
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
                        f"{path}, line {number}: has a carriage return within, which ends a line for fairseq-preprocess: "
                        "remove these with tr -d '\\r'"
                    )


_checked: list[Any] = [None]  # the arguments whose texts were


def checked_first(make: Callable) -> Callable:
    """A function of fairseq-preprocess that makes a dictionary or data, once its texts were looked at."""

    @wraps(make)
    def made(*positional, **options):
        args = options["args"] if "args" in options else positional[-1]
        if args is not _checked[0]:
            check_texts(args)
            _checked[0] = args
        return make(*positional, **options)

    return made
