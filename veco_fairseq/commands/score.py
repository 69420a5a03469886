# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Score a translation: sacreBLEU and chrF with their signatures, and case-insensitive tokenised BLEU."""

import argparse

from veco_fairseq.arguments import INPUT, OUTPUT, Number, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    system = parser.add_mutually_exclusive_group(required=True)
    system.add_argument("--hypothesis", type=INPUT, metavar="FILE", help="detokenised text, one sentence a line")
    system.add_argument(
        "--generate-output",
        type=INPUT,
        metavar="FILE",
        help="what fairseq-generate printed (--remove-bpe sentencepiece), instead of --hypothesis",
    )
    parser.add_argument("--reference", type=INPUT, required=True, metavar="FILE", help="detokenised text with as many lines")
    parser.add_argument("--lang", required=True, metavar="CODE", help="language of both texts, for the tokenisation, such as de")
    parser.add_argument("--split-compounds", action="store_true", help="cut words at their hyphens for tokenised BLEU")
    parser.add_argument(
        "--bootstrap",
        type=Number(int, least=0, most=1_000_000),
        default=0,
        metavar="N",
        help="print 95%% confidence intervals from N resamples of the test set, such as 1000 (default: none)",
    )
    parser.add_argument(
        "--baseline",
        type=INPUT,
        metavar="FILE",
        help="run a paired bootstrap test against another system's output, of the same format",
    )
    parser.add_argument("--json", type=OUTPUT, metavar="FILE", help="also write the scores to this file")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.files import write_json
    from veco_fairseq.inference.scoring import score_files, score_lines

    if args.bootstrap == 1:
        raise UserError(f"--bootstrap {args.bootstrap}: give a number of resamples, such as 1000")
    generated = args.generate_output is not None
    result = score_files(
        args.generate_output if generated else args.hypothesis,
        args.reference,
        lang=args.lang,
        generated=generated,
        split_compounds=args.split_compounds,
        samples=args.bootstrap,
        baseline=args.baseline,
    )
    if args.json:
        write_json(args.json, result, ensure_ascii=False)
    print("\n".join(score_lines(result)))
