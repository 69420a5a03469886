#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measure speed and memory, ours and fairseq's own in turn in one run, and print their ratio."""

import json
from pathlib import Path

from veco_fairseq.benchmarks.options import parse_arguments
from veco_fairseq.cli import run


def main() -> None:
    args = parse_arguments(__doc__)
    import torch

    from veco_fairseq.benchmarks import generation, kernels, loading, reading, softmax, training
    from veco_fairseq.files import atomic_output

    if args.threads:
        torch.set_num_threads(args.threads)
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    measure = {"pretrain": training.pretrain, "knn": softmax.knn, "generate": generation.generate, "data": loading.data,
               "start": loading.start, "read": reading.read, "head": kernels.head,
               "attention": kernels.attention}[args.command]  # fmt: skip
    figures = measure(args)
    if args.job:
        print(json.dumps(figures))
    elif args.json:
        hidden = ("json", "job", "root", "folder")
        options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k not in hidden}
        with atomic_output(args.json) as temporary:
            temporary.write_text(json.dumps({"options": options, **figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
