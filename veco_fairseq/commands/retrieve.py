# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Find translations by the sentences' mean-pooled states: Tatoeba's accuracy, or mining as in BUCC."""

import argparse

from veco_fairseq.arguments import COUNT, FINITE, INPUT, NAMED_INPUTS, OUTPUT, Parser
from veco_fairseq.errors import UserError
from veco_fairseq.help_texts import PRETRAINED


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    commands = parser.add_subparsers(dest="command", required=True)
    tatoeba = commands.add_parser("tatoeba", help="print the share of sentences that are nearest to their own translation")
    bucc = commands.add_parser("bucc", help="find the sentences of two texts that are translations of each other")
    for command in (tatoeba, bucc):
        command.add_argument("checkpoint", type=INPUT, help=PRETRAINED)
    tatoeba.add_argument(
        "--pairs",
        type=NAMED_INPUTS,
        nargs="+",
        required=True,
        metavar="NAME=SRC,TGT",
        help="two texts whose lines N are translations of each other, plain, .gz or .xz; XTREME reports the accuracy towards "
        "the source, with English as TGT",
    )
    tatoeba.add_argument(
        "--layers", nargs="+", metavar="N", help="states after the N-th layer; 0: the embeddings (default: all of them)"
    )
    bucc.add_argument("--source", required=True, type=INPUT, metavar="FILE", help="lines ID<TAB>sentence, plain, .gz or .xz")
    bucc.add_argument("--target", required=True, type=INPUT, metavar="FILE", help="lines of the same form")
    bucc.add_argument("--gold", type=INPUT, metavar="FILE", help="lines ID<TAB>ID, for F1")
    bucc.add_argument(
        "--threshold",
        type=FINITE,
        metavar="X",
        help="keep pairs with at least this score (default: the one with the best F1, which needs --gold)",
    )
    bucc.add_argument("--layer", metavar="N", help="states after the N-th layer; 0: the embeddings (default: the last)")
    bucc.add_argument("--lang", default="all", metavar="L", help="the language's name in --json (default: all)")
    bucc.add_argument("--output", type=OUTPUT, metavar="FILE", help="write the pairs there, score<TAB>ID<TAB>ID")
    for command in (tatoeba, bucc):
        command.add_argument(
            "--score",
            default="cosine" if command is tatoeba else "csls",
            choices=["cosine", "csls", "ratio"],
            help="cosine, or a margin: the cosine compared with those of the nearest sentences (default: %(default)s)",
        )
        command.add_argument(
            "--neighbours",
            type=COUNT,
            default=10,
            metavar="K",
            help="nearest sentences by cosine, with which csls and ratio compare and among which they choose (default: %(default)s)",
        )
        command.add_argument(
            "--max-tokens", type=COUNT, default=8192, metavar="N", help="tokens of a batch (default: %(default)s)"
        )
        command.add_argument("--json", type=OUTPUT, metavar="FILE", help="also write the figures to this file")
        command.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.files import write_json

    if args.command == "bucc" and args.threshold is None and args.gold is None:
        raise UserError("give --gold, to find the threshold of the best F1, or --threshold")
    figures = {"tatoeba": run_tatoeba, "bucc": run_bucc}[args.command](args)
    if args.json:
        options = {"score": args.score, "neighbours": args.neighbours}
        write_json(args.json, {**options, **figures})


def run_tatoeba(args: argparse.Namespace) -> dict:
    """Print and return the accuracies."""
    from veco_fairseq.inference.pretrained import chosen_layers, load_pretrained
    from veco_fairseq.retrieval.tatoeba import evaluate, read_pair

    pairs = dict(map(read_pair, args.pairs))
    if len({"mean", *pairs}) <= len(args.pairs):
        raise UserError("--pairs: a name comes twice, or is mean; each pair needs its own")
    pretrained = load_pretrained(args.checkpoint, cpu=args.cpu)
    layers = sorted(set(chosen_layers(pretrained, args.layers, "--layers")))
    found = evaluate(pretrained, pairs, layers=layers, score=args.score, neighbours=args.neighbours, max_tokens=args.max_tokens)
    return {"accuracy": found}


def run_bucc(args: argparse.Namespace) -> dict:
    """Write the pairs, and print and return threshold and F1."""
    from veco_fairseq.inference.pretrained import chosen_layers, load_pretrained
    from veco_fairseq.retrieval import mining
    from veco_fairseq.retrieval.search import candidates
    from veco_fairseq.retrieval.states import sentence_states

    paths = args.source, args.target
    sides = [mining.read_sentences(path) for path in paths]
    ids = [list(side) for side in sides]
    gold = args.gold and mining.read_gold(args.gold, *ids)
    pretrained = load_pretrained(args.checkpoint, cpu=args.cpu)
    layers = chosen_layers(pretrained, args.layer and [args.layer], "--layer")[-1:]
    x, y = (
        sentence_states(pretrained, list(side.values()), layers=layers, max_tokens=args.max_tokens, name=str(path))[0]
        for path, side in zip(paths, sides)
    )
    mined = mining.mine(*candidates(x, y, args.score, args.neighbours))
    threshold = mining.best_threshold(mined, gold) if args.threshold is None else args.threshold
    kept = [pair for pair in mined if pair.score >= threshold]
    print(f"{len(kept):,} pairs of a score of at least {threshold}, of {len(x):,} and {len(y):,} sentences")
    figures = mining.figures(kept, gold) if gold else {}
    if figures:
        print(", ".join(f"{name} {100 * value:.1f}" for name, value in figures.items())
              + (" (at the threshold that is best for this)" if args.threshold is None else ""))  # fmt: skip
    if args.output:
        mining.write_pairs(args.output, kept, *ids)
        print(f"wrote {args.output}")
    found = {"lang": args.lang, "layer": layers[0], "threshold": threshold, "tuned_here": args.threshold is None}
    return {**found, "pairs": len(kept), **figures}
