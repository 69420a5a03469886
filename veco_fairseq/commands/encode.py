# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Cut text into SentencePiece pieces, as fairseq-preprocess takes it for translation data."""

import argparse

from veco_fairseq.arguments import INPUT, OUTPUT, WORKERS, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("--sentencepiece", type=INPUT, required=True, metavar="MODEL", help="pre-training's SentencePiece model")
    parser.add_argument("--inputs", type=INPUT, nargs="+", required=True, metavar="FILE", help="raw text, plain, .gz or .xz")
    parser.add_argument(
        "--outputs", type=OUTPUT, nargs="+", required=True, metavar="FILE", help="the files to write, as many as --inputs"
    )
    parser.add_argument("--workers", type=WORKERS, metavar="W", help="threads (default: all processors)")


def main(args: argparse.Namespace) -> None:
    if len(args.inputs) != len(args.outputs):
        raise UserError(f"{len(args.inputs)} --inputs, but {len(args.outputs)} --outputs: name one for each")
    from veco_fairseq.data.sentencepiece import encode_text
    from veco_fairseq.parallel import default_workers

    workers = args.workers or default_workers()
    for source, target in zip(args.inputs, args.outputs):
        count = encode_text(args.sentencepiece, source, target, workers)
        print(f"{target}: {count:,} lines")
