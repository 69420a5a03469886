# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Turn the checkpoint that VECO's authors released into one for this project."""

import argparse

from veco_fairseq.arguments import INPUT, REPORTED, Parser
from veco_fairseq.commands.convert import number_of_layers
from veco_fairseq.errors import UserError
from veco_fairseq.help_texts import TRUST
from veco_fairseq.options.flags import flag


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add(
        "--checkpoint", type=INPUT, required=True, metavar="FILE", help="the authors' model.pt, or one fine-tuned with their code"
    )
    add("--dict", type=INPUT, required=True, metavar="FILE", help="its dict.txt, with the language tokens ([en], ...) at the end")
    add("--output", type=REPORTED, required=True, metavar="FILE", help="the file to write; FILE.json gets the report")
    add(
        "--pretraining",
        action="store_true",
        help="write a checkpoint of --task camlm, to pre-train further with fairseq-train --finetune-from-model FILE, instead of "
        "a translation model",
    )
    add("--decoder-layers", type=number_of_layers, metavar="N", help="layers of the decoder, or all (default)")
    add("--layer-selection", default="last", metavar="WHICH", help="last (default), first, or N layer numbers such as 3,5")
    add(
        "--source-lang",
        metavar="LANG",
        help="with --target-lang: the languages whose tokens veco translate adds, as the authors do; "
        "fairseq-generate and fairseq-train take them from -s and -t",
    )
    add("--target-lang", metavar="LANG", help="see --source-lang")
    add("--trust-checkpoint", action="store_true", help=TRUST)


def main(args: argparse.Namespace) -> None:
    of_translation = {"decoder_layers": None, "layer_selection": "last", "source_lang": None, "target_lang": None}
    given = [flag(name) for name, default in of_translation.items() if getattr(args, name) != default]
    if args.pretraining and given:
        raise UserError(f"--pretraining: makes no translation model, which {given[0]} is for: leave out one of them")
    from veco_fairseq.checkpoints.release import back_to_pretraining, import_release
    from veco_fairseq.checkpoints.seq2seq import report_lines
    from veco_fairseq.checkpoints.skeleton import making_sense_of

    if args.pretraining:
        with making_sense_of(args.checkpoint):
            groups = back_to_pretraining(args.checkpoint, args.dict, args.output, args.trust_checkpoint)
        print("\n".join([*map(str, groups), f"wrote    {args.output}"]))
        return
    with making_sense_of(args.checkpoint):
        report = import_release(args.checkpoint, args.dict, args.output, decoder_layers=args.decoder_layers,
                                layer_selection=args.layer_selection, source_lang=args.source_lang,
                                target_lang=args.target_lang, trust=args.trust_checkpoint)  # fmt: skip
    print("\n".join(report_lines(report)))
