# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Make one vocabulary for many languages with VoCap, or measure vocabularies (ALP). It can be interrupted."""

import argparse

from veco_fairseq.arguments import COUNT, EXPONENT, POSITIVE_SHARE, WORKERS, Parser, PathArgument, end_with, files_of
from veco_fairseq.options.flags import flag

CORPORA = PathArgument(within=lambda text: files_of(text) if "=" in text else [text])
# What is written to the folder; a text that lies there under another name is left alone.
FOLDER = PathArgument(writes=("dict.txt", "sentencepiece.bpe.model", "*.tsv", "*.png", "*.json", "languages/*", "joint/*"))

OF_MAKING = ("size", "alpha", "beta", "step", "largest", "character_coverage", "train_every_size", "joint")


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add(
        "--corpora",
        type=CORPORA,
        nargs="+",
        required=True,
        metavar="DIR|LANG=FILE",
        help="a folder with one or more texts of each language, LANG.txt or NAME.LANG, plain, .gz or .xz; or files by language",
    )
    add("--size", type=COUNT, metavar="T", help="pieces of the vocabulary")
    add("--alpha", type=EXPONENT, default=0.7, metavar="X", help="exponent of the languages' sizes (default: %(default)s)")
    add("--beta", type=EXPONENT, default=0.7, metavar="X", help="exponent of the languages' probabilities (default: %(default)s)")
    add("--output", type=FOLDER, metavar="DIR", help="folder for model, dict.txt, table, picture and all stages")
    add("--step", type=COUNT, default=1000, metavar="N", help="pieces to give to a language at a time (default: %(default)s)")
    add(
        "--largest",
        type=COUNT,
        default=50_000,
        metavar="N",
        help="largest vocabulary of one language, in pieces (default: %(default)s)",
    )
    add("--lines", type=COUNT, default=1_000_000, metavar="N", help="lines to read of each language (default: %(default)s)")
    add(
        "--character-coverage",
        type=POSITIVE_SHARE,
        default=1.0,
        metavar="SHARE",
        help="share of a language's characters in the vocabulary (default: %(default)s; 0.9995 suits web text)",
    )
    add("--train-every-size", action="store_true", help="train a model of each size, as the paper does")
    add("--joint", action="store_true", help="also train one model on all text, in DIR/joint")
    add("--alp", nargs="+", metavar="NAME=MODEL", help="instead of making one: print the ALP of SentencePiece models by language")
    add(
        "--workers",
        type=WORKERS,
        metavar="W",
        help="languages to work on at a time, each with its text in memory (default: all processors, at most 8)",
    )


def main(args: argparse.Namespace) -> None:
    if args.alp is None and (args.size is None or args.output is None):
        end_with("--size and --output are needed (or --alp)")
    if args.alp is not None:
        usual = Parser()
        add_arguments(usual)
        if given := [flag(name) for name in OF_MAKING if getattr(args, name) != usual.get_default(name)]:
            end_with(f"{given[0]}: is to make a vocabulary, and --alp measures some: run one command after the other")
    from veco_fairseq.parallel import default_workers
    from veco_fairseq.vocab.comparison import measure, named_models, write_comparison  # fmt: skip
    from veco_fairseq.vocab.corpora import find_corpora
    from veco_fairseq.vocab.vocap import Options, make_vocabulary

    corpora, workers = find_corpora(args.corpora), args.workers or min(default_workers(), 8)
    if args.alp is not None:
        found = measure(named_models(args.alp), corpora, args.lines, workers)
        print(write_comparison(found, args.output), end="")
        return
    options = Options(
        corpora, args.output, args.size, args.alpha, args.beta, args.largest, args.step, args.lines,
        args.character_coverage, args.train_every_size, args.joint, workers,
    )  # fmt: skip
    print(make_vocabulary(options, lambda message: print(message, flush=True)), end="")
