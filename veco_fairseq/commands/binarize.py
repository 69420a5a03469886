# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Make translation data of raw text: what encode and fairseq-preprocess make together, byte for byte. It can be interrupted."""

import argparse

from veco_fairseq.arguments import INPUT, WORKERS, Parser, PathArgument

# What is written to the folder; a text that lies there is left alone.
DATA = PathArgument(writes=("dict.*.txt", "*.bin", "*.idx", "binarized.json"))


def add_arguments(parser: Parser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("-s", "--source-lang", required=True, metavar="LANG", help="the language to translate from")
    add("-t", "--target-lang", required=True, metavar="LANG", help="the language to translate into")
    add("--trainpref", metavar="PREFIX", help="the raw texts to train on: PREFIX.LANG, plain, .gz or .xz")
    add("--validpref", metavar="PREFIX,...", help="likewise, the texts to validate on; several become valid, valid1 and so on")
    add("--testpref", metavar="PREFIX,...", help="likewise, the texts to test on; several become test, test1 and so on")
    add("--sentencepiece", type=INPUT, required=True, metavar="MODEL", help="the SentencePiece model to cut the texts with")
    add("--dict", type=INPUT, required=True, metavar="DICT", help="the dictionary of both languages, which belongs to it")
    add("--destdir", type=DATA, required=True, metavar="DIR", help="the folder to make")
    add("--workers", type=WORKERS, metavar="W", help="processes (default: all processors)")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.data.prepare.binarizing import binarize, parse_splits, report_lines
    from veco_fairseq.parallel import default_workers

    splits = parse_splits(args.source_lang, args.target_lang, train=args.trainpref, valid=args.validpref, test=args.testpref)
    workers = args.workers or default_workers()
    print(*report_lines(binarize(splits, args.sentencepiece, args.dict, args.destdir, workers=workers)), sep="\n")
