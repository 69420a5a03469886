# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Write the plugged-out encoder of a model, pre-trained or fine-tuned, as a Hugging Face XLM-RoBERTa folder."""

import argparse

from veco_fairseq.arguments import INPUT, NEW_FOLDER, Parser


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--checkpoint",
        type=INPUT,
        required=True,
        metavar="PRETRAINED",
        help="a checkpoint of --task camlm, or of --task veco_nlu --plug out",
    )
    parser.add_argument("--output", type=NEW_FOLDER, required=True, metavar="DIR", help="the folder to make")
    parser.add_argument(
        "--trust-checkpoint",
        action="store_true",
        help="unpickle a file that holds more than tensors and plain values; such a file can run any code",
    )


def main(args: argparse.Namespace) -> None:
    from veco_fairseq import plugin  # noqa: F401  registers the models, of which one is built to compare
    from veco_fairseq.checkpoints.huggingface import export_hf, largest_difference
    from veco_fairseq.checkpoints.skeleton import making_sense_of

    with making_sense_of(args.checkpoint):
        export = export_hf(args.checkpoint, args.output, args.trust_checkpoint)
    for note in export.notes:
        print(f"note: {note}")
    dropped = f" (without the cross-attention's {export.dropped:,} parameters)" if export.dropped else ""
    print(f"wrote {export.folder}{dropped}")
    with making_sense_of(args.checkpoint):
        difference = largest_difference(args.checkpoint, export.folder, args.trust_checkpoint)
    if difference is None:
        print("transformers is not installed, so the outputs were not compared: pip install transformers")
    else:
        print(f"largest difference between an output and that of transformers' model: {difference:.1e}")
