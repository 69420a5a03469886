# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Make a pre-training data root from raw text: vocabulary, held-out lines and token files. It can be interrupted."""

import argparse
from typing import Any

from veco_fairseq.arguments import COUNT, FROM_0, INPUT, NAMED_INPUTS, POSITIVE_SHARE, WORKERS, Parser, PathArgument

# What is written to a root; a text that lies there under another name is left alone.
ROOT = PathArgument(writes=("dict.txt", "sentencepiece.bpe.model", "preparation.json", "mono/*", "bitext/*"))


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    many: dict[str, Any] = {"type": NAMED_INPUTS, "nargs": "+", "action": "extend", "default": []}
    mono, pair = "LANG=FILE", "SRC-TGT=FILE,FILE"
    parser.add_argument(
        "--mono", **many, metavar=mono, help="text with one sentence a line and a blank line between documents, plain, .gz or .xz"
    )
    parser.add_argument("--bitext", **many, metavar=pair, help="two files whose lines N are translations of each other")
    parser.add_argument(
        "--valid-lines",
        type=FROM_0,
        required=True,
        metavar="N",
        help="hold out N lines of each text: whole documents from its end, or pairs from all parts of the file",
    )
    parser.add_argument("--mono-valid", **many, metavar=mono, help="validation text, instead of held-out lines")
    parser.add_argument("--bitext-valid", **many, metavar=pair, help="validation pairs, instead of held-out ones")
    parser.add_argument("--sentencepiece", type=INPUT, metavar="MODEL", help="the SentencePiece model to use, with --dict")
    parser.add_argument("--dict", type=INPUT, metavar="DICT", help="the fairseq dictionary that belongs to --sentencepiece")
    parser.add_argument(
        "--vocab-size", type=COUNT, metavar="N", help="instead of these two: train a vocabulary of N pieces on all languages"
    )
    parser.add_argument(
        "--soft-vocab-limit", action="store_true", help="make fewer pieces than --vocab-size where the text has no more"
    )
    parser.add_argument(
        "--vocab-lines",
        type=COUNT,
        default=500_000,
        metavar="N",
        help="train the vocabulary on at most N lines, as many of each language. A line of 130 characters takes 3 kB of memory "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--character-coverage",
        type=POSITIVE_SHARE,
        default=0.9998,
        metavar="SHARE",
        help="share of the text's characters that the vocabulary must cover (default: %(default)s)",
    )
    parser.add_argument("--output", type=ROOT, required=True, metavar="ROOT", help="the folder to make")
    parser.add_argument("--workers", type=WORKERS, metavar="W", help="processes (default: all processors)")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.data.prepare.preparation import prepare_root, report_table
    from veco_fairseq.data.prepare.text import Options, parse_parts
    from veco_fairseq.parallel import default_workers

    options = Options(
        output=args.output,
        parts=parse_parts(args.mono, args.bitext, args.mono_valid, args.bitext_valid),
        valid_lines=args.valid_lines,
        vocab_size=args.vocab_size,
        sentencepiece=args.sentencepiece,
        dictionary=args.dict,
        character_coverage=args.character_coverage,
        vocab_lines=args.vocab_lines,
        soft_vocab_limit=args.soft_vocab_limit,
        workers=args.workers or default_workers(),
    )
    print(report_table(prepare_root(options)))
