# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measure the speed and memory of this project and of its peers, in turn in one run, and print the ratio."""

import argparse
import json
import os
from pathlib import Path

from veco_fairseq.arguments import COUNT, FROM_0, INPUT, OUTPUT, SHARE, SIZE, WORKERS, Number, Parser
from veco_fairseq.commands.export_ct2 import QUANTIZATIONS

LENGTH = Number(int, least=4)  # <s>, two tokens to learn from, and </s>
VOCABULARY = Number(int, least=6)  # <s>, <pad>, </s>, <unk>, <mask> and one word


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    commands = parser.add_subparsers(dest="command", required=True)
    pretrain = commands.add_parser("pretrain", help="training of VECO or XLM-E, beside fairseq's masked_lm and transformers")
    pretrain.add_argument("--profile", action="store_true", help="only print which operations take an update's time")
    data = commands.add_parser("data", help="one loader process, beside the training that it feeds")
    knn = commands.add_parser("knn", help="a training step with k-NN target sampling, beside the full softmax")
    knn.add_argument(
        "--neighbours",
        type=COUNT,
        nargs="+",
        default=[5, 25, 50, 100],
        metavar="K",
        help="neighbours of k-NN target sampling (default: 5 25 50 100)",
    )
    knn.add_argument("--refresh", type=COUNT, default=1000, metavar="N", help="value of --knn-refresh (default: %(default)s)")
    knn.add_argument("--rest", type=COUNT, default=8192, metavar="N", help="value of --knn-rest (default: %(default)s)")
    finetune = commands.add_parser(
        "finetune",
        help="training for translation, or with --arch veco_nlu_* for understanding, beside fairseq as it is and transformers",
    )
    finetune.add_argument("--decoder-layers", type=COUNT, metavar="N", help="layers of the decoder (default: the architecture's)")
    usual = {pretrain: "veco_small", data: "veco_small", knn: "veco_base", finetune: "veco_mt_small"}
    for command, arch in usual.items():
        command.add_argument("--arch", default=arch, help="architecture (default: %(default)s)")
        command.add_argument("--tokens", type=COUNT, default=4096, metavar="N", help="tokens of a batch (default: %(default)s)")
        least = COUNT if command is finetune else LENGTH
        command.add_argument("--length", type=least, default=128, metavar="N", help="tokens of a side (default: %(default)s)")
        command.add_argument(
            "--updates", type=COUNT, default=3, metavar="N", help="updates that are timed in a round (default: %(default)s)"
        )
    head = commands.add_parser("head", help="the LM head's projection and loss, beside PyTorch's plain ones")
    head.add_argument("--rows", type=COUNT, default=8192, metavar="N", help="number of masked tokens (default: %(default)s)")
    head.add_argument("--dim", type=SIZE, default=768, metavar="N", help="dimensions of the model (default: %(default)s)")
    head.add_argument(
        "--plain-rows",
        type=COUNT,
        default=1024,
        metavar="N",
        help="masked tokens for the comparison with the plain loss, whose logits must fit into memory (default: %(default)s)",
    )
    attention = commands.add_parser("attention", help="a layer's self-attention beside fairseq's, by length and type")
    attention.add_argument("--arch", default="veco_small", help="architecture whose sizes are taken (default: %(default)s)")
    attention.add_argument("--tokens", type=COUNT, default=2048, metavar="N", help="tokens of a batch (default: %(default)s)")
    attention.add_argument(
        "--lengths",
        type=COUNT,
        nargs="+",
        default=[16, 32, 64, 128, 256, 512],
        metavar="N",
        help="lengths of the sequences (default: 16 to 512)",
    )
    attention.add_argument(
        "--attention-dropout", type=SHARE, metavar="P", help="dropout of the attention weights (default: the architecture's)"
    )
    start = commands.add_parser("start", help="time and memory until the first batch is ready, with much data")
    start.add_argument("--languages", type=COUNT, default=50, metavar="N", help="number of languages (default: %(default)s)")
    start.add_argument("--pairs", type=FROM_0, default=879, metavar="N", help="pairs of languages (default: %(default)s)")
    start.add_argument(
        "--sentences",
        type=COUNT,
        default=1_000_000,
        metavar="N",
        help="sentences of the largest language and pair; the k-th largest has a k-th of them (default: %(default)s)",
    )
    start.add_argument("--no-inspect", action="store_true", help="leave out veco inspect, which looks at every token")
    start.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    read = commands.add_parser("read", help="reading a checkpoint with its checks, beside torch.load alone")
    read.add_argument("--arch", default="veco_large", help="architecture, with random weights (default: %(default)s)")
    read.add_argument("--file", type=INPUT, metavar="FILE", help="a checkpoint instead of random weights")
    generate = commands.add_parser("generate", help="translation with fairseq, beside CTranslate2 and transformers")
    generate.add_argument("--arch", default="veco_large", help="architecture, with random weights (default: %(default)s)")
    generate.add_argument(
        "--decoder-layers",
        type=COUNT,
        nargs="+",
        default=[3, 6, 24],
        metavar="N",
        help="layers of the decoders (default: 3 6 24)",
    )
    generate.add_argument(
        "--sentences", type=COUNT, default=50, metavar="N", help="number of random sentences (default: %(default)s)"
    )
    generate.add_argument(
        "--length", type=COUNT, default=25, metavar="N", help="tokens of random sentences and translations (default: %(default)s)"
    )
    generate.add_argument("--checkpoint", type=INPUT, metavar="FILE", help="a trained model instead of random weights")
    generate.add_argument("--data", type=INPUT, metavar="DIR", help="the folder with the dict.LANG.txt of --checkpoint")
    generate.add_argument("--sentencepiece", type=INPUT, metavar="MODEL", help="the SentencePiece model of --checkpoint")
    generate.add_argument("--source", type=INPUT, metavar="FILE", help="raw text that --checkpoint translates")
    generate.add_argument("--to", metavar="LANG", help="the language to translate into, if --checkpoint has many directions")
    generate.add_argument("--reference", type=INPUT, metavar="FILE", help="the translation of --source, for BLEU")
    generate.add_argument("--lang", default="de", metavar="CODE", help="language of the reference (default: %(default)s)")
    generate.add_argument("--beam", type=COUNT, default=5, metavar="N", help="hypotheses of the search (default: %(default)s)")
    generate.add_argument("--batch-size", type=COUNT, default=32, metavar="N", help="sentences of a batch (default: %(default)s)")
    generate.add_argument(
        "--quantization",
        nargs="+",
        choices=QUANTIZATIONS,
        default=["float32", "int8"],
        metavar="TYPE",
        help="types of CTranslate2 (default: float32 int8)",
    )
    generate.add_argument(
        "--inter-threads",
        type=WORKERS,
        metavar="N",
        help="batches that CTranslate2 translates side by side, each on its part of --threads (default: one a thread)",
    )
    generate.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    for command in (pretrain, data, head, knn, finetune):
        command.add_argument(
            "--autocast", choices=["none", "bf16"], default="none", help="precision of this project's model, or of both heads"
        )
    for command in (pretrain, data, head, knn, read, finetune):
        command.add_argument(
            "--vocabulary", type=VOCABULARY, default=250_002, metavar="N", help="tokens of the vocabulary (default: %(default)s)"
        )
    generate.add_argument(
        "--vocabulary", type=VOCABULARY, default=40_000, metavar="N", help="random tokens (default: %(default)s)"
    )
    for command in (pretrain, data, head, knn, attention, start, read, generate, finetune):
        command.add_argument(
            "--rounds", type=COUNT, default=3, metavar="N", help="how often each one is measured (default: %(default)s)"
        )
        command.add_argument("--threads", type=WORKERS, metavar="N", help="threads on a CPU (default: PyTorch's number)")
        command.add_argument("--device", choices=["cpu", "cuda"], help="where to measure (default: a GPU, if there is one)")
        command.add_argument("--json", type=OUTPUT, metavar="FILE", help="also write the figures to this file")
        command.add_argument("--job", help=argparse.SUPPRESS)  # one measurement in a process of its own


def main(args: argparse.Namespace) -> None:
    import torch

    from veco_fairseq.benchmarks import finetuning, generation, kernels, loading, reading, softmax, training, understanding
    from veco_fairseq.files import write_text

    if args.threads:
        torch.set_num_threads(args.threads)
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # where there is a GPU, fairseq takes the norm of a CPU's gradients there
    of_understanding = getattr(args, "arch", "").startswith(understanding.PREFIX)
    finetune = understanding.finetune if of_understanding else finetuning.finetune
    measure = {"pretrain": training.pretrain, "finetune": finetune, "knn": softmax.knn, "generate": generation.generate, "data": loading.data,
               "start": loading.start, "read": reading.read, "head": kernels.head,
               "attention": kernels.attention}[args.command]  # fmt: skip
    figures = measure(args)
    if args.job:
        print(json.dumps(figures))
    elif args.json:
        hidden = ("json", "job", "root", "folder")
        options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k not in hidden}
        write_text(args.json, json.dumps({"options": options, **figures}, indent=1) + "\n")
