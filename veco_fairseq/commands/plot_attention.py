# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Draw where a sentence's tokens look in its translation: the cross-attention of a pre-trained VECO.

For an XLM or XLM-E it is the self-attention over both sentences, concatenated as in TLM (VECO, figure 1).
"""

import argparse
import os

from veco_fairseq.arguments import FROM_0, INPUT, OUTPUT, Parser
from veco_fairseq.errors import UserError
from veco_fairseq.help_texts import PRETRAINED


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("checkpoint", type=INPUT, help=PRETRAINED)
    parser.add_argument("--source", required=True, metavar="TEXT", help="the sentence whose tokens look (rows)")
    parser.add_argument("--target", required=True, metavar="TEXT", help="the sentence that is looked at (columns)")
    parser.add_argument("--layer", type=FROM_0, metavar="N", help="counted from 0 (default: the middle one, as in the paper)")
    parser.add_argument("--attention", choices=["cross", "self"], default="cross",
                        help="self: over both sentences, concatenated (default: cross)")  # fmt: skip
    parser.add_argument("--output", type=OUTPUT, required=True, metavar="PNG", help="the picture to write; also .pdf or .svg")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.inference.pretrained import load_pretrained
    from veco_fairseq.plots import plot_attention

    for option, text in (("--source", args.source), ("--target", args.target)):
        if os.path.isfile(text):  # False where the text is too long for a path
            raise UserError(f'{option} {text}: is a file: give a sentence of it, such as "$(head -n 1 {text})"')
    pretrained = load_pretrained(args.checkpoint, cpu=True)  # for two sentences
    rows, columns = pretrained.encode(args.source), pretrained.encode(args.target)
    if args.attention == "self":
        rows = columns = pretrained.join(rows, columns)
        weights, title, names = pretrained.self_attention(rows, args.layer), "Self-attention over a pair", ("x and y",) * 2
    else:
        weights, title, names = pretrained.cross_attention(rows, columns, args.layer), "VECO cross-attention", ("x", "y")
    title = f"{title}, layer {pretrained.layer_number(args.layer)}"
    tokens = pretrained.tokens(rows[0]), pretrained.tokens(columns[0])
    plot_attention(weights, *tokens, title=title, names=names, output=args.output)
    print(f"wrote {args.output}")
