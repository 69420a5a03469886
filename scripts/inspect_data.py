#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Check a data root and show what --task camlm would do with it: sizes, sampling, batches, parameters."""

import argparse
from pathlib import Path

from veco_fairseq.cli import run


def main() -> None:
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    from veco_fairseq.data.inspection import inspect_root
    from veco_fairseq.data.roots import load_dictionary
    from veco_fairseq.models.veco import count_parameters
    from veco_fairseq.tasks.camlm import CamlmTaskConfig, check_options

    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    gen_parser_from_dataclass(parser.add_argument_group("options of the task"), CamlmTaskConfig())
    parser.add_argument("--max-tokens", type=int, default=16384, metavar="N", help="of a batch (default: %(default)s)")
    parser.add_argument("--arch", default="veco_small", help="whose parameters to count (default: %(default)s)")
    parser.add_argument("--examples", type=int, default=0, metavar="N", help="masked pairs to show of each")
    args = parser.parse_args()
    args.seed, args.update_freq = 1, [1]
    check_options(args)
    for root in map(Path, args.data.split(":")):
        print(f"{root}:")
        for line in inspect_root(root, args, args.max_tokens, args.examples):
            print(line, flush=True)
    parameters = count_parameters(args.arch, load_dictionary(root))
    print(
        f"\n{args.arch}: {parameters:,} parameters; {parameters * 16 / 2**30:.2f} GiB with gradients and Adam, in fp32"
    )


if __name__ == "__main__":
    run(main)
