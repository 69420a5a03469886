# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Make a smaller vocabulary for translation, from the pieces that its training texts need most.

The command writes a SentencePiece model and its dict.txt, for veco binarize (or veco encode and fairseq-preprocess)
and veco convert --dict.
"""

import argparse

from veco_fairseq.arguments import COUNT, INPUT, VOCABULARY, WORKERS, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("corpora", type=INPUT, nargs="+", metavar="CORPUS", help="raw training text of every language, plain, .gz or .xz")
    add("--sentencepiece", type=INPUT, required=True, metavar="MODEL", help="pre-training's SentencePiece model")
    add(
        "--keep",
        type=COUNT,
        required=True,
        metavar="N",
        help="pieces to keep: all characters of the texts first, then the most frequent pieces",
    )
    add("--output", type=VOCABULARY, required=True, metavar="DIR", help="the folder to write both files to")
    add("--workers", type=WORKERS, metavar="W", help="threads (default: all processors)")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.data.sentencepiece import load_sentencepiece, trim, write_vocabulary
    from veco_fairseq.parallel import default_workers

    held = next((path for name in ("mono", "bitext", "*.pt") for path in sorted(args.output.glob(name))), None)
    if held is not None:
        raise UserError(
            f"--output {args.output}: holds {held.name}, and the new vocabulary would replace its own: choose another folder"
        )
    workers = args.workers or default_workers()
    trimmed = trim(load_sentencepiece(args.sentencepiece), args.corpora, args.keep, workers)
    write_vocabulary(args.output, trimmed.model, trimmed.dictionary)
    print(
        f"{args.output}: {trimmed.kept:,} of {trimmed.pieces:,} pieces, which are {trimmed.share:.2%} of the texts; "
        "the others are cut into smaller pieces"
    )
