# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Average a training's last checkpoints, or the ones that are listed, for fairseq-generate."""

import argparse

from veco_fairseq.arguments import COUNT, FROM_0, INPUT, OUTPUT, Input, Output, Parser, require_apart
from veco_fairseq.errors import UserError
from veco_fairseq.help_texts import TRUST


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("--inputs", type=INPUT, required=True, nargs="+", metavar="DIR", help="a training's --save-dir, or checkpoint files")
    add("--output", type=OUTPUT, required=True, metavar="FILE", help="the checkpoint to write")
    last = parser.add_mutually_exclusive_group()
    last.add_argument(
        "--num-update-checkpoints", type=COUNT, metavar="N", help="average the last N checkpoints of --save-interval-updates"
    )
    last.add_argument("--num-epoch-checkpoints", type=COUNT, metavar="N", help="average the checkpoints of the last N epochs")
    add(
        "--checkpoint-upper-bound",
        type=FROM_0,
        metavar="U",
        help="with one of these two: leave out checkpoints after update or epoch U",
    )
    add("--trust-checkpoint", action="store_true", help=TRUST)


def main(args: argparse.Namespace) -> None:
    from veco_fairseq.checkpoints.averaging import EPOCH, UPDATE, average_checkpoints, last_checkpoints
    from veco_fairseq.checkpoints.skeleton import making_sense_of

    count = args.num_update_checkpoints or args.num_epoch_checkpoints
    paths = args.inputs
    if count is None:
        if args.checkpoint_upper_bound is not None:
            raise UserError("--checkpoint-upper-bound: goes with --num-update-checkpoints or --num-epoch-checkpoints")
        folders = [path for path in paths if path.is_dir()]
        if folders:
            raise UserError(f"{folders[0]}: is a folder: say which of its checkpoints, with --num-update-checkpoints N")
    elif len(paths) > 1:
        raise UserError("--num-update-checkpoints and --num-epoch-checkpoints: take one folder")
    else:
        name = UPDATE if args.num_update_checkpoints else EPOCH
        paths = last_checkpoints(paths[0], count, name, args.checkpoint_upper_bound)
    require_apart([Input("--inputs", path) for path in paths], [Output("--output", args.output)])
    with making_sense_of(", ".join(map(str, paths))):
        average_checkpoints(paths, args.output, args.trust_checkpoint)
    print(f"wrote {args.output}, the mean of {len(paths)}: {', '.join(path.name for path in paths)}")
