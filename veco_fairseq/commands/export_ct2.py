# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Write a fine-tuned translation model as a folder for CTranslate2, which is faster (pip install ctranslate2)."""

import argparse

from veco_fairseq.arguments import INPUT, OUTPUT_FOLDER, Parser

QUANTIZATIONS = ("float32", "bfloat16", "float16", "int8", "int8_float32", "int8_bfloat16", "int8_float16", "int16")


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--checkpoint", type=INPUT, required=True, metavar="FILE", help="of fairseq-train --task translation")
    add("--output", type=OUTPUT_FOLDER, required=True, metavar="DIR", help="the folder to make")
    add("--data", type=INPUT, metavar="DIR", help="the folder with dict.LANG.txt (default: the checkpoint's own dictionaries)")
    add("--quantization", choices=QUANTIZATIONS, default="float32", help="type of the weights (default: %(default)s)")
    add(
        "--sentencepiece",
        type=INPUT,
        metavar="MODEL",
        help="SentencePiece model to put into the folder (default: that beside the checkpoint or its data)",
    )


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.checkpoints.ct2 import export_ct2, largest_ct2_difference, limits
    from veco_fairseq.checkpoints.skeleton import making_sense_of

    with making_sense_of(args.checkpoint):
        translation = export_ct2(
            args.checkpoint, args.output, data=args.data, quantization=args.quantization, sentencepiece=args.sentencepiece
        )
    print(f"wrote {args.output} ({args.quantization})")
    for note in translation.notes:
        print(f"note: {note}")
    if translation.has_language_tokens:
        end = " ".join(translation.source_end)
        print(f"note: give {end} at the end of every source: CTranslate2 can add one token alone")
    if few := limits(translation):
        options = ", ".join(f"{name}={value}" for name, value in few.items())
        print(f"note: give translate_batch {options}: beyond its positions the model ends in an error")
    with making_sense_of(args.checkpoint):
        difference = largest_ct2_difference(translation, args.output)
    print(f"largest difference of a token's log-probability to fairseq's model: {difference:.1e}")
