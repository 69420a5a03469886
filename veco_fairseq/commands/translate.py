# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translate raw text from standard input, one sentence a line, to raw text on standard output.

The lines keep their order, and empty lines stay. A line with more pieces than the model takes is translated in parts.
With --prefixes or --constraints the columns of a line are separated by tabs: SOURCE, PREFIX, CONSTRAINT, CONSTRAINT...
With --nbest or --alignment the columns of the output are separated by " ||| ": NUMBER, TEXT, LINKS, SCORE.
"""

import argparse
import sys

from veco_fairseq.arguments import (
    COUNT,
    FROM_0,
    INPUT,
    LENGTH_PENALTY,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SEED,
    Number,
    Parser,
)
from veco_fairseq.errors import UserError

ADVICE = "a text is read from standard input: give it with < FILE"


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.advice = f": {ADVICE}"
    add = parser.add_argument
    add("checkpoints", type=INPUT, nargs="+", metavar="CHECKPOINT", help="a fine-tuned model; several make an ensemble")
    add("--sentencepiece", type=INPUT, metavar="MODEL",
        help="SentencePiece model (default: sentencepiece.bpe.model beside the checkpoint or the data)")  # fmt: skip
    add("--data", type=INPUT, metavar="DIR", help="the folder of dict.LANG.txt (default: the training data's)")
    add("--to", metavar="LANG", help="the language to translate into, of a model for many directions")
    add("--beam", type=Number(int, least=1, most=10_000), metavar="N", help="hypotheses of the search (default: 5)")
    add("--nbest", type=COUNT, default=1, metavar="N",
        help="print the N best translations of a line, each with the line's number, from 0, and its score: the natural "
        "logarithm of its probability divided by LENGTH**LENPEN (default: the best one alone)")  # fmt: skip
    add("--sampling", action="store_true",
        help="draw the pieces of translations at random instead of searching for the best ones: --nbest translations of "
        "each line")  # fmt: skip
    add("--sampling-topk", type=COUNT, metavar="K", help="draw from the K likeliest pieces (default: from all)")
    add("--sampling-topp", type=POSITIVE_SHARE, metavar="P",
        help="draw from the likeliest pieces that together have the probability P")  # fmt: skip
    add("--temperature", type=POSITIVE, default=1.0, metavar="T",
        help="divide the logits by T: below 1 makes likely pieces likelier (default: %(default)s)")  # fmt: skip
    add("--seed", type=SEED, default=1, metavar="N",
        help="seed of --sampling, which draws the same for the same lines, --batch-size and --buffer-size (default: %(default)s)")  # fmt: skip
    add("--constraints", choices=["ordered", "unordered"],
        help="make each translation contain the constraints of its line, in their order or in any order")  # fmt: skip
    add("--prefixes", action="store_true", help="make each translation begin with the prefix of its line")
    add("--alignment", action="store_true",
        help="print word links I-J, from 0: word J of the translation looks most at word I of the source")  # fmt: skip
    add("--lenpen", type=LENGTH_PENALTY, default=1.0, metavar="P", help="length penalty (default: %(default)s)")
    add("--max-len-a", type=NOT_NEGATIVE, default=1.5, metavar="A",
        help="a translation has at most A times as many pieces as the source, whose </s> counts as one, plus B (default: %(default)s)")  # fmt: skip
    add("--max-len-b", type=FROM_0, default=20, metavar="B", help="see --max-len-a (default: %(default)s)")
    add("--batch-size", type=COUNT, default=64, metavar="N", help="sentences of a batch (default: %(default)s)")
    add("--batch-tokens", "--max-tokens", type=COUNT, default=8192, metavar="N",
        help="source pieces of a batch, with padding (default: %(default)s)")  # fmt: skip
    add("--buffer-size", type=COUNT, default=4096, metavar="N",
        help="lines to read before sorting them by length and translating them (default: %(default)s; 1: one by one)")  # fmt: skip
    add("--amp", action="store_true", help="compute in bf16 where that is safe")
    add("--cpu", action="store_true", help="use the CPU even if there is a GPU")


def main(args: argparse.Namespace) -> None:
    from fairseq.dataclass.configs import GenerationConfig
    from tqdm import tqdm

    from veco_fairseq.checkpoints.reading import DamagedCheckpoint
    from veco_fairseq.compat.texts import standard_input
    from veco_fairseq.inference.requests import in_lines, read_requests
    from veco_fairseq.inference.search import settled
    from veco_fairseq.inference.translator import Translator, translate_stream
    from veco_fairseq.options.borders import lengths

    for message in lengths({"max_len_a": args.max_len_a, "max_len_b": args.max_len_b, "min_len": 1}):
        raise UserError(message)
    check(args)
    search = settled(GenerationConfig(
        beam=args.beam or 5, nbest=args.nbest, lenpen=args.lenpen, max_len_a=args.max_len_a, max_len_b=args.max_len_b,
        sampling=args.sampling, sampling_topk=args.sampling_topk or -1, sampling_topp=args.sampling_topp or -1.0,
        temperature=args.temperature, constraints=args.constraints,
    ))  # fmt: skip
    try:
        translator = Translator(
            args.checkpoints,
            model=args.sentencepiece,
            data=args.data,
            search=search,
            batch_size=args.batch_size,
            max_tokens=args.batch_tokens,
            bf16=args.amp,
            cpu=args.cpu,
            seed=args.seed,
            to=args.to,
        )
    except DamagedCheckpoint as error:
        if len(args.checkpoints) == 1:
            raise
        raise UserError(f"{error}. Each file before the options is a model; {ADVICE}") from error
    requests = read_requests(standard_input(), prefixes=args.prefixes, constraints=args.constraints is not None)
    with tqdm(unit=" lines", disable=None, leave=False) as progress:

        def note(words: str) -> None:
            progress.clear()
            print(words, file=sys.stderr)

        found = translate_stream(translator, requests, args.buffer_size, note=note, translated=progress.update)
        for number, hypotheses in enumerate(found):
            for line in in_lines(number, hypotheses, nbest=args.nbest > 1, alignment=args.alignment):
                sys.stdout.buffer.write(line.encode("utf-8") + b"\n")
            if not (number + 1) % args.buffer_size:  # whoever waits for them before giving more lines has them
                sys.stdout.buffer.flush()


def check(args: argparse.Namespace) -> None:
    """Raise UserError for options that do not go together."""
    if args.sampling and args.beam not in (None, args.nbest):
        advice = f"leave it out, or give --nbest {args.beam} for all of them"
        raise UserError(f"--beam {args.beam}: with --sampling, the best of {args.beam} draws would be no draw: {advice}")
    if (args.sampling_topk or args.sampling_topp) and not args.sampling:
        raise UserError("--sampling-topk and --sampling-topp: go with --sampling")
    if args.sampling and args.constraints:
        raise UserError("--sampling and --constraints: constraints need a search: leave out one of the two")
