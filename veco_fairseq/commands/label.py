# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tag translations with a tagger that was trained on English. This makes a training set for translate-train-all."""

import argparse

from veco_fairseq.arguments import COUNT, INPUT, OUTPUT, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "teacher", type=INPUT, metavar="CKPT", help="a tagger: a checkpoint of --task veco_nlu --nlu-task tagging"
    )
    parser.add_argument(
        "--input", required=True, type=INPUT, metavar="FILE", help="the translations, one sentence a line, plain, .gz or .xz"
    )
    parser.add_argument(
        "--tokenize", metavar="LANG", help="cut the text into words as Moses does for this language (default: at spaces)"
    )
    parser.add_argument(
        "--like",
        type=INPUT,
        metavar="FILE",
        help="the tagged originals, .conllu or .tsv, one for each line: the translations get their ids, by which "
        "--plug in finds a sentence's translation",
    )
    parser.add_argument(
        "--output", required=True, type=OUTPUT, metavar="FILE.conllu", help="the file to write, such as train-de.conllu"
    )
    parser.add_argument("--max-tokens", type=COUNT, default=8192, metavar="N", help="tokens of a batch (default: %(default)s)")
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")


def main(args: argparse.Namespace) -> None:
    if args.output.suffix != ".conllu":
        raise UserError(f"--output {args.output}: is written as CoNLL-U: choose a name that ends in .conllu")
    from veco_fairseq.inference.evaluation import label
    from veco_fairseq.inference.finetuned import load_finetuned
    from veco_fairseq.understanding.teaching import ids_like, read_words, write_conllu

    sentences = read_words(args.input, args.tokenize)
    ids = ids_like(args.like, args.input, len(sentences)) if args.like else [str(n + 1) for n in range(len(sentences))]
    teacher = load_finetuned(args.teacher, args.input.parent, args.cpu)
    tags = label(teacher, sentences, args.max_tokens, args.teacher)
    write_conllu(args.output, ids, sentences, tags)
    print(f"wrote {args.output}: {len(sentences):,} sentences, {sum(map(len, sentences)):,} words")
    if teacher.task.plug_in:
        print(f"predicted without a translation to look at: {len(sentences):,} (a teacher of --plug out needs none)")
