# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Align the words of sentences with those of their translations, by optimal transport over a pre-trained model's states."""

import argparse

from veco_fairseq.arguments import COUNT, INPUT, OUTPUT, Number, Parser
from veco_fairseq.errors import UserError
from veco_fairseq.help_texts import PRETRAINED


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("checkpoint", type=INPUT, help=PRETRAINED)
    add(
        "--source",
        type=INPUT,
        required=True,
        metavar="FILE",
        help="one sentence a line, with spaces between its words; .gz, .xz or neither",
    )
    add("--target", type=INPUT, required=True, metavar="FILE", help="their translations, in the same form")
    add(
        "--output", type=OUTPUT, metavar="FILE", help="links i-j, words numbered from 0 (default: standard output, unless --gold)"
    )
    add(
        "--gold",
        type=INPUT,
        metavar="FILE",
        help="print the alignment error rate against the links of this file: i-j sure, ipj possible; "
        "or lines PAIR i j S|P of the shared tasks, from 1",
    )
    add("--gold-from-1", action="store_true", help="the words of --gold are numbered from 1")
    add("--layer", metavar="N", help="states after the N-th layer; 0: the embeddings (default: 9 of 12, as in the "
        "paper, or the middle one of another model)")  # fmt: skip
    add("--apart", action="store_true", help="encode each sentence alone (default: both in one sequence)")
    add(
        "--regularisation",
        type=Number(above=0, most=1e9),  # from 1e14 on, the costs vanish in fp64 beside the masses
        default=1.0,
        metavar="X",
        help="weight of the entropy (default: 1, the authors' value)",
    )
    add(
        "--iterations",
        type=Number(int, least=1, most=10_000),
        default=2,
        metavar="N",
        help="iterations of Sinkhorn's algorithm (default: 2, the authors' value)",
    )
    add("--max-tokens", type=COUNT, default=8192, metavar="N", help="tokens of a batch (default: %(default)s)")
    add("--cpu", action="store_true", help="use the CPU even if there is a GPU")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.alignment.gold import figures, read_gold
    from veco_fairseq.alignment.words import align, pharaoh, usual_layer
    from veco_fairseq.files import read_translations, write_text
    from veco_fairseq.inference.pretrained import chosen_layers, load_pretrained

    if args.gold_from_1 and not args.gold:
        raise UserError("--gold-from-1: is for --gold, which is missing: leave it out (links are always written from 0)")
    texts = read_translations(args.source, args.target)
    golds = args.gold and read_gold(args.gold, *texts, first=int(args.gold_from_1))
    pretrained = load_pretrained(args.checkpoint, cpu=args.cpu)
    layer = chosen_layers(pretrained, [args.layer], "--layer")[0] if args.layer else usual_layer(pretrained)
    found = align(
        pretrained, *texts, layer=layer, apart=args.apart, regularisation=args.regularisation, iterations=args.iterations,
        max_tokens=args.max_tokens, names=(args.source, args.target),
    )  # fmt: skip
    if args.output:
        write_text(args.output, pharaoh(found))
    elif not golds:
        print(pharaoh(found), end="")
    if golds:
        scores = ", ".join(f"{name} {100 * value:.2f}" for name, value in figures(found, golds).items())
        print(f"layer {layer}: {scores} (%), {sum(map(len, found)):,} links in {len(found):,} pairs")
