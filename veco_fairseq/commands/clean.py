# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Clean pairs of sentences: normalise them, drop bad ones, and say how many by which rule. It can be interrupted.

The rules come in this order, and the first one that a pair breaks counts: no text on a side, too short, too long, lengths
too different, both sides the same, another language, a line of a test set, a pair that was there before. Lengths and
comparisons are those of the normalised text.
"""

import argparse

from veco_fairseq.arguments import COUNT, INPUT, NOT_NEGATIVE, OUTPUT, PACKED, WORKERS, Number, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("-s", "--source-lang", required=True, metavar="LANG", help="a code such as en, for its punctuation")
    add("-t", "--target-lang", required=True, metavar="LANG", help="likewise")
    pair = ("SOURCE", "TARGET")
    add("--inputs", type=INPUT, nargs=2, required=True, metavar=pair, help="texts whose line N is each other's translation")
    add(
        "--outputs",
        type=PACKED,
        nargs=2,
        required=True,
        metavar=pair,
        help="the texts to write; .gz, .xz or neither, as --inputs",
    )
    add("--report", type=OUTPUT, metavar="FILE",
        help="write what was dropped as JSON, with up to three examples of each rule but duplicate")  # fmt: skip
    add(
        "--punctuation",
        choices=("sacremoses", "perl", "keep"),
        default="sacremoses",
        help="quotation marks, dashes and spaces: as sacremoses normalises them; as Moses' Perl script does, which makes a "
        "double quotation mark of a ’ that is not between letters; or as they are (default: %(default)s)",
    )
    add("--keep-controls", action="store_true", help="keep what cannot be printed, instead of a space for each such character")
    add(
        "--sentencepiece",
        type=INPUT,
        metavar="MODEL",
        help="count this model's pieces as lengths (default: words between spaces)",
    )
    add("--min-length", type=COUNT, default=1, metavar="N", help="drop shorter sides (words or pieces; default: %(default)s)")
    add("--max-length", type=COUNT, default=250, metavar="N", help="drop longer sides (words or pieces; default: %(default)s)")
    add(
        "--max-ratio",
        type=Number(least=1),
        default=3.0,
        metavar="R",
        help="drop pairs of which one side is longer than R times the other (default: %(default)s)",
    )
    add("--keep-copies", action="store_true", help="keep pairs whose two sides are the same but for case")
    add(
        "--language-margin",
        type=NOT_NEGATIVE,
        metavar="M",
        help="drop pairs with a side that py3langid takes for another language, whose log probability is higher by more than "
        "M: 5 keeps nearly all short sentences (default: languages are not identified)",
    )
    add("--held-out", type=INPUT, nargs="+", default=[], metavar="FILE",
        help="drop pairs with a side that is a line of these test sets but for case, punctuation and spaces")  # fmt: skip
    add("--keep-duplicates", action="store_true", help="keep pairs that were there before")
    add("--workers", type=WORKERS, metavar="W", help="processes (default: all processors)")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.data.cleaning.cleaning import clean, report_table
    from veco_fairseq.data.cleaning.rules import Options
    from veco_fairseq.data.languages import two_letters
    from veco_fairseq.parallel import default_workers

    if args.min_length > args.max_length:
        raise UserError(f"--min-length {args.min_length}: is more than --max-length {args.max_length}: no pair would be kept")
    options = Options(
        source_lang=two_letters("--source-lang", args.source_lang),
        target_lang=two_letters("--target-lang", args.target_lang),
        punctuation=args.punctuation,
        controls=args.keep_controls,
        sentencepiece=args.sentencepiece,
        min_length=args.min_length,
        max_length=args.max_length,
        max_ratio=args.max_ratio,
        copies=args.keep_copies,
        language_margin=args.language_margin,
        held_out=tuple(args.held_out),
        duplicates=args.keep_duplicates,
    )
    workers = args.workers or default_workers()
    print(report_table(clean(tuple(args.inputs), tuple(args.outputs), options, workers=workers, report=args.report)))
