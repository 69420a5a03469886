# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translate raw text from standard input, one sentence a line, to raw text on standard output.

The lines keep their order, and empty lines stay. A line with more pieces than the model takes is translated in parts.
"""

import argparse
import sys

from veco_fairseq.arguments import COUNT, FROM_0, INPUT, LENGTH_PENALTY, NOT_NEGATIVE, Number, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("checkpoints", type=INPUT, nargs="+", metavar="CHECKPOINT", help="a fine-tuned model; several make an ensemble")
    add(
        "--sentencepiece",
        type=INPUT,
        metavar="MODEL",
        help="SentencePiece model (default: sentencepiece.bpe.model beside the checkpoint or the data)",
    )
    add("--data", type=INPUT, metavar="DIR", help="the folder of dict.LANG.txt (default: the training data's)")
    add(
        "--beam",
        type=Number(int, least=1, most=10_000),
        default=5,
        metavar="N",
        help="hypotheses of the search (default: %(default)s)",
    )
    add("--lenpen", type=LENGTH_PENALTY, default=1.0, metavar="P", help="length penalty (default: %(default)s)")
    add(
        "--max-len-a",
        type=NOT_NEGATIVE,
        default=1.5,
        metavar="A",
        help="a translation has at most A times as many pieces as the source, plus B (default: %(default)s)",
    )
    add("--max-len-b", type=FROM_0, default=20, metavar="B", help="see --max-len-a (default: %(default)s)")
    add("--batch-size", type=COUNT, default=64, metavar="N", help="sentences of a batch (default: %(default)s)")
    add("--max-tokens", type=COUNT, default=8192, metavar="N", help="source pieces of a batch (default: %(default)s)")
    add(
        "--buffer-size",
        type=COUNT,
        default=4096,
        metavar="N",
        help="lines to read before sorting them by length and translating them (default: %(default)s; 1: one by one)",
    )
    add("--amp", action="store_true", help="compute in bf16 where that is safe")
    add("--cpu", action="store_true", help="use the CPU even if there is a GPU")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.compat.texts import standard_input
    from veco_fairseq.inference.translator import Translator, translate_stream
    from veco_fairseq.options.borders import lengths

    for message in lengths({"max_len_a": args.max_len_a, "max_len_b": args.max_len_b, "min_len": 1}):
        raise UserError(message)
    translator = Translator(
        args.checkpoints,
        model=args.sentencepiece,
        data=args.data,
        beam=args.beam,
        lenpen=args.lenpen,
        max_len_a=args.max_len_a,
        max_len_b=args.max_len_b,
        batch_size=args.batch_size,
        max_tokens=args.max_tokens,
        bf16=args.amp,
        cpu=args.cpu,
    )
    for line in translate_stream(translator, standard_input(), args.buffer_size, lambda n: print(n, file=sys.stderr)):
        sys.stdout.buffer.write(line.encode("utf-8") + b"\n")
        if args.buffer_size == 1:
            sys.stdout.buffer.flush()
