# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Convert a pre-trained VECO to a fairseq translation model, which --finetune-from-model takes."""

import argparse

from veco_fairseq.arguments import INPUT, REPORTED, SEED, Parser
from veco_fairseq.help_texts import TRUST


def number_of_layers(text: str) -> int | None:
    """Return a number of layers, or None for "all"; the type of an argument."""
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: give a number, or all")
    return None if text == "all" else int(text)


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--checkpoint", type=INPUT, required=True, metavar="FILE", help="a checkpoint of fairseq-train --task camlm")
    add("--output", type=REPORTED, required=True, metavar="FILE", help="the file to write; FILE.json gets the report")
    add(
        "--decoder-layers",
        required=True,
        type=number_of_layers,
        metavar="N",
        help="layers of the decoder, at most pre-training's, or all (paper: 24 of 24; 3 and 6 cost 0.5 and 0.2 BLEU)",
    )
    add(
        "--layer-selection",
        default="last",
        metavar="WHICH",
        help="last (default, the paper's better choice), first, or N layer numbers such as 3,5, counted from 0, "
        "in the decoder's order",
    )
    add("--dict", type=INPUT, metavar="FILE", help="dict.txt of the translation data (default: pre-training's without <mask>)")
    add(
        "--random-cross-attention",
        action="store_true",
        help="initialise the cross-attention at random: for the baseline initialised from XLM-R alone, or a start from XLM-E",
    )
    add(
        "--keep-lm-head",
        action="store_true",
        help="end the decoder in pre-training's LM head, with its dense layer, LayerNorm and bias. The model is then one of "
        "--arch veco_transformer_*, which fairseq runs and veco export-hf takes, but not CTranslate2",
    )
    add(
        "--tie-self-attention",
        action="store_true",
        help="share each decoder layer's self-attention with the encoder layer that it comes from; likewise a model of "
        "--arch veco_transformer_*",
    )
    add(
        "--allow-new-tokens",
        action="store_true",
        help="take a dictionary even if more than 1%% of its tokens were not in pre-training",
    )
    add(
        "--new-tokens",
        choices=("mean", "random"),
        default="mean",
        help="rows of tokens that were not in pre-training: of each, the mean of the rows of the pieces that spell it with "
        "sentencepiece.bpe.model beside the checkpoint (of a token <2LANG>, the row of <s>), or random ones "
        "(default: %(default)s)",
    )
    add("--trust-checkpoint", action="store_true", help=TRUST)
    add("--seed", type=SEED, default=1, metavar="N", help="seed of everything that is newly initialised (default: 1)")


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq, report_lines
    from veco_fairseq.checkpoints.skeleton import making_sense_of

    with making_sense_of(args.checkpoint):
        report = convert_to_seq2seq(
            args.checkpoint,
            args.output,
            args.decoder_layers,
            layer_selection=args.layer_selection,
            dictionary=args.dict,
            random_cross_attention=args.random_cross_attention,
            keep_lm_head=args.keep_lm_head,
            tie_self_attention=args.tie_self_attention,
            allow_new_tokens=args.allow_new_tokens,
            new_tokens=args.new_tokens,
            trust=args.trust_checkpoint,
            seed=args.seed,
        )
    print("\n".join(report_lines(report)))
