# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Score a translation by COMET; the first call installs COMET into its own environment.

The environment takes 6 GB, and the model that COMET downloads takes 2 GB.
"""

import argparse
import os
from pathlib import Path

from veco_fairseq.arguments import COUNT, FROM_0, INPUT, OUTPUT, OUTPUT_FOLDER, Parser
from veco_fairseq.errors import UserError


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    system = parser.add_mutually_exclusive_group(required=True)
    system.add_argument("--hypothesis", type=INPUT, metavar="FILE", help="detokenised text, one sentence a line")
    system.add_argument("--generate-output", type=INPUT, metavar="FILE",
                        help="what fairseq-generate printed (--remove-bpe sentencepiece), instead of --hypothesis")  # fmt: skip
    add = parser.add_argument
    add("--source", type=INPUT, required=True, metavar="FILE", help="the source text, with as many lines")
    add("--reference", type=INPUT, required=True, metavar="FILE", help="detokenised text with as many lines")
    add("--model", default="Unbabel/wmt22-comet-da", metavar="NAME", help="COMET's model, or a checkpoint (default: %(default)s)")
    add("--environment", type=OUTPUT_FOLDER, metavar="DIR",
        help="folder of COMET's environment (default: veco_fairseq/comet in the user's cache)")  # fmt: skip
    add("--gpus", type=FROM_0, default=0, metavar="N", help="GPUs to use (default: %(default)s)")
    add("--batch-size", type=COUNT, default=16, metavar="N", help="sentences of a batch (default: %(default)s)")
    add("--json", type=OUTPUT, metavar="FILE", help="also write the score to this file")


def cache() -> Path:
    """Return the folder of COMET's environment in the user's cache.

    Raises:
        UserError: the user has no home folder, and XDG_CACHE_HOME is not set.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "veco_fairseq/comet"
    except RuntimeError as error:
        raise UserError(f"--environment: is needed here, since you have no cache ({error}): name a folder") from error


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.files import read_lines, write_json
    from veco_fairseq.inference.comet import comet_score
    from veco_fairseq.inference.scoring import read_generate_output

    texts = [list(read_lines(args.source))]
    texts.append(read_generate_output(args.generate_output) if args.hypothesis is None else list(read_lines(args.hypothesis)))
    texts.append(list(read_lines(args.reference)))
    result = comet_score(args.environment or cache(), *texts, model=args.model, gpus=args.gpus, batch_size=args.batch_size)
    if args.json:
        write_json(args.json, result)
    print(f"COMET {result['comet']['score']:.4f}  {result['comet']['signature']}")
