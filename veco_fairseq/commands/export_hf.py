# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Write a model as a Hugging Face folder: a translation model as BART, an encoder, plugged out, as XLM-RoBERTa.

The folder has the tokenizer and a model card, too. Where transformers is installed, the outputs are compared.
"""

import argparse

from veco_fairseq.arguments import INPUT, NAMED_INPUTS, OUTPUT_FOLDER, Parser
from veco_fairseq.errors import UserError
from veco_fairseq.help_texts import TRUST


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--checkpoint",
        type=INPUT,
        required=True,
        metavar="FILE",
        help="of --task translation, of --task camlm, or of --task veco_nlu --plug out",
    )
    parser.add_argument(
        "--data",
        type=INPUT,
        metavar="DIR",
        help="a translation model's folder with dict.LANG.txt (default: its own dictionaries)",
    )
    parser.add_argument("--output", type=OUTPUT_FOLDER, required=True, metavar="DIR", help="the folder to make")
    parser.add_argument(
        "--sentencepiece",
        type=INPUT,
        metavar="MODEL",
        help="SentencePiece model (default: sentencepiece.bpe.model beside the checkpoint or a translation model's data)",
    )
    parser.add_argument(
        "--scores",
        type=NAMED_INPUTS,
        nargs="+",
        default=[],
        metavar="NAME=FILE",
        help="test sets, and the files of veco score --json, for the model card",
    )
    parser.add_argument("--trust-checkpoint", action="store_true", help=TRUST)


def main(args: argparse.Namespace) -> None:
    from veco_fairseq import plugin  # noqa: F401  registers the models, of which one is built to compare
    from veco_fairseq.checkpoints.bart import export_translation, largest_translation_difference
    from veco_fairseq.checkpoints.card import scores_list
    from veco_fairseq.checkpoints.huggingface import export_hf, largest_difference
    from veco_fairseq.checkpoints.skeleton import making_sense_of
    from veco_fairseq.checkpoints.translation import read_translation

    more = {"sentencepiece": args.sentencepiece, "scores": scores_list(args.scores)}
    with making_sense_of(args.checkpoint):
        translation = read_translation(args.checkpoint, data=args.data, trust=args.trust_checkpoint)
        if translation is None and args.data is not None:
            raise UserError(f"--data {args.data}: is for translation models, and {args.checkpoint} is none: leave it out")
        if translation is not None:
            export = export_translation(translation, args.output, **more)
        else:
            export = export_hf(args.checkpoint, args.output, args.trust_checkpoint, **more)
    for note in export.notes:
        print(f"note: {note}")
    dropped = f" (without the cross-attention's {export.dropped:,} parameters)" if export.dropped else ""
    print(f"wrote {export.folder}{dropped}")
    with making_sense_of(args.checkpoint):
        if translation is not None:
            difference = largest_translation_difference(translation, export.folder)
        else:
            difference = largest_difference(args.checkpoint, export.folder, args.trust_checkpoint)
    if difference is None:
        print("transformers is not installed, so the outputs were not compared: pip install transformers")
    else:
        print(f"largest difference between an output and that of transformers' model: {difference:.1e}")
