# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measure the speed and memory of this project and of its peers, in turn in one run, and print the ratio."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

from veco_fairseq.arguments import COUNT, FROM_0, INPUT, OUTPUT, SHARE, SIZE, WORKERS, Number, Parser
from veco_fairseq.commands.export_ct2 import QUANTIZATIONS

LENGTH = Number(int, least=4)  # <s>, two tokens to learn from, and </s>
VOCABULARY = Number(int, least=6)  # <s>, <pad>, </s>, <unk>, <mask> and one word
Add = Callable[..., argparse.Action]  # a parser's add_argument


def add_arguments(parser: Parser) -> None:
    """Add the measurements, with the options of each, and with those of all of them."""
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (text, add_options) in MEASUREMENTS.items():
        add = commands.add_parser(name, help=text).add_argument
        add_options(add)
        add("--rounds", type=COUNT, default=3, metavar="N", help="how often each one is measured (default: %(default)s)")
        add("--threads", type=WORKERS, metavar="N", help="threads on a CPU (default: PyTorch's number)")
        add("--device", choices=["cpu", "cuda"], help="where to measure (default: a GPU, if there is one)")
        add("--json", type=OUTPUT, metavar="FILE", help="also write the figures to this file")
        add("--job", help=argparse.SUPPRESS)  # one measurement in a process of its own


def _training(add: Add, arch: str = "veco_small", shortest: Number = LENGTH) -> None:
    add("--arch", default=arch, help="architecture (default: %(default)s)")
    add("--tokens", type=COUNT, default=4096, metavar="N", help="tokens of a batch (default: %(default)s)")
    add("--length", type=shortest, default=128, metavar="N", help="tokens of a side (default: %(default)s)")
    add("--updates", type=COUNT, default=3, metavar="N", help="updates that are timed in a round (default: %(default)s)")
    _precision(add)
    _vocabulary(add)


def _precision(add: Add) -> None:
    add("--autocast", choices=["none", "bf16"], default="none", help="precision of this project's model, or of both heads")


def _vocabulary(add: Add) -> None:
    add("--vocabulary", type=VOCABULARY, default=250_002, metavar="N", help="tokens of the vocabulary (default: %(default)s)")


def _pretrain(add: Add) -> None:
    add("--profile", action="store_true", help="only print which operations take an update's time")
    _training(add)


def _knn(add: Add) -> None:
    add("--neighbours", type=COUNT, nargs="+", default=[5, 25, 50, 100], metavar="K",
        help="neighbours of k-NN target sampling (default: 5 25 50 100)")  # fmt: skip
    add("--refresh", type=COUNT, default=1000, metavar="N", help="value of --knn-refresh (default: %(default)s)")
    add("--rest", type=COUNT, default=8192, metavar="N", help="value of --knn-rest (default: %(default)s)")
    _training(add, "veco_base")


def _finetune(add: Add) -> None:
    add("--decoder-layers", type=COUNT, metavar="N", help="layers of the decoder (default: the architecture's)")
    _training(add, "veco_mt_small", COUNT)


def _head(add: Add) -> None:
    add("--rows", type=COUNT, default=8192, metavar="N", help="number of masked tokens (default: %(default)s)")
    add("--dim", type=SIZE, default=768, metavar="N", help="dimensions of the model (default: %(default)s)")
    add("--plain-rows", type=COUNT, default=1024, metavar="N",
        help="masked tokens for the comparison with the plain loss, whose logits must fit into memory (default: "
        "%(default)s)")  # fmt: skip
    _precision(add)
    _vocabulary(add)


def _attention(add: Add) -> None:
    add("--arch", default="veco_small", help="architecture whose sizes are taken (default: %(default)s)")
    add("--tokens", type=COUNT, default=2048, metavar="N", help="tokens of a batch (default: %(default)s)")
    add("--lengths", type=COUNT, nargs="+", default=[16, 32, 64, 128, 256, 512], metavar="N",
        help="lengths of the sequences (default: 16 to 512)")  # fmt: skip
    add("--attention-dropout", type=SHARE, metavar="P", help="dropout of the attention weights (default: the architecture's)")


def _start(add: Add) -> None:
    add("--languages", type=COUNT, default=50, metavar="N", help="number of languages (default: %(default)s)")
    add("--pairs", type=FROM_0, default=879, metavar="N", help="pairs of languages (default: %(default)s)")
    add("--sentences", type=COUNT, default=1_000_000, metavar="N",
        help="sentences of the largest language and pair; the k-th largest has a k-th of them (default: %(default)s)")  # fmt: skip
    add("--no-inspect", action="store_true", help="leave out veco inspect, which looks at every token")
    add("--root", type=Path, help=argparse.SUPPRESS)


def _read(add: Add) -> None:
    add("--arch", default="veco_large", help="architecture, with random weights (default: %(default)s)")
    add("--file", type=INPUT, metavar="FILE", help="a checkpoint instead of random weights")
    _vocabulary(add)


def _generate(add: Add) -> None:
    add("--arch", default="veco_large", help="architecture, with random weights (default: %(default)s)")
    add("--decoder-layers", type=COUNT, nargs="+", default=[3, 6, 24], metavar="N",
        help="layers of the decoders (default: 3 6 24)")  # fmt: skip
    add("--sentences", type=COUNT, default=50, metavar="N", help="number of random sentences (default: %(default)s)")
    add(
        "--length", type=COUNT, default=25, metavar="N", help="tokens of random sentences and translations (default: %(default)s)"
    )
    add("--checkpoint", type=INPUT, metavar="FILE", help="a trained model instead of random weights")
    add("--data", type=INPUT, metavar="DIR", help="the folder with the dict.LANG.txt of --checkpoint")
    add("--sentencepiece", type=INPUT, metavar="MODEL", help="the SentencePiece model of --checkpoint")
    add("--source", type=INPUT, metavar="FILE", help="raw text that --checkpoint translates")
    add("--to", metavar="LANG", help="the language to translate into, if --checkpoint has many directions")
    add("--reference", type=INPUT, metavar="FILE", help="the translation of --source, for BLEU")
    add("--lang", default="de", metavar="CODE", help="language of the reference (default: %(default)s)")
    add("--beam", type=COUNT, default=5, metavar="N", help="hypotheses of the search (default: %(default)s)")
    add("--batch-size", type=COUNT, default=32, metavar="N", help="sentences of a batch (default: %(default)s)")
    add("--quantization", nargs="+", choices=QUANTIZATIONS, default=["float32", "int8"], metavar="TYPE",
        help="types of CTranslate2 (default: float32 int8)")  # fmt: skip
    add("--inter-threads", type=WORKERS, metavar="N",
        help="batches that CTranslate2 translates side by side, each on its part of --threads (default: one a "
        "thread)")  # fmt: skip
    add("--folder", type=Path, help=argparse.SUPPRESS)
    add("--vocabulary", type=VOCABULARY, default=40_000, metavar="N", help="random tokens (default: %(default)s)")


MEASUREMENTS: dict[str, tuple[str, Callable[[Add], None]]] = {
    "pretrain": ("training of VECO or XLM-E, beside fairseq's masked_lm and transformers", _pretrain),
    "data": ("one loader process, beside the training that it feeds", _training),
    "knn": ("a training step with k-NN target sampling, beside the full softmax", _knn),
    "finetune": (
        "training for translation, or with --arch veco_nlu_* for understanding, beside fairseq as it is and transformers",
        _finetune,
    ),
    "head": ("the LM head's projection and loss, beside PyTorch's plain ones", _head),
    "attention": ("a layer's self-attention beside fairseq's, by length and type", _attention),
    "start": ("time and memory until the first batch is ready, with much data", _start),
    "read": ("reading a checkpoint with its checks, beside torch.load alone", _read),
    "generate": ("translation with fairseq, beside CTranslate2 and transformers", _generate),
}


def main(args: argparse.Namespace) -> None:
    import torch

    from veco_fairseq.benchmarks import finetuning, generation, kernels, loading, reading, softmax, training, understanding
    from veco_fairseq.files import write_json
    from veco_fairseq.modules.device import usual_device

    if args.threads:
        torch.set_num_threads(args.threads)
    args.device = args.device or usual_device()
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # where there is a GPU, fairseq takes the norm of a CPU's gradients there
    of_understanding = getattr(args, "arch", "").startswith(understanding.PREFIX)
    finetune = understanding.finetune if of_understanding else finetuning.finetune
    measure = {
        "pretrain": training.pretrain, "data": loading.data, "knn": softmax.knn, "finetune": finetune, "head": kernels.head,
        "attention": kernels.attention, "start": loading.start, "read": reading.read, "generate": generation.generate,
    }[args.command]  # fmt: skip
    figures = measure(args)
    if args.job:
        print(json.dumps(figures))
    elif args.json:
        hidden = ("json", "job", "root", "folder")
        options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k not in hidden}
        write_json(args.json, {"options": options, **figures})
