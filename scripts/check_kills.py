#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Kill trainings of all kinds at random moments, start each again, and compare it with one that nobody disturbed.

Every kind of training is run once undisturbed, on a small random corpus that this command makes. Then each kill starts
the training, waits for a random moment (or for one in which a checkpoint is being written), stops the training with
SIGKILL, SIGTERM or SIGINT, and runs the same command again to its end. It is resumed exactly if every line of its log
from there on is the same to the last digit, all tensors of all checkpoints, the optimizer's too, are equal to the last
bit, all checkpoints can be read, no file is left over, and no more updates were lost than those after the last save.

prepare_root.py is killed, too: the data must have the same bytes. It notes how far it has come after each few thousand
lines here, not every half minute.

Interrupted, the same command goes on. Exit code 1 if a training was not resumed exactly; its logs and checkpoints stay
in FOLDER/trials/NUMBER then, and --only NUMBER with the same options repeats it.
"""

import argparse
import runpy
import signal
from pathlib import Path

from veco_fairseq.cli import run


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--kills", type=int, default=100, metavar="N", help="how many (default: %(default)s)")
    add(
        "--inside-saves",
        type=int,
        default=30,
        metavar="N",
        help="so many of them while a checkpoint is being written (default: %(default)s)",
    )
    add("--seed", type=int, default=1, metavar="N", help="of the corpus, the signals and the moments (default: 1)")
    add(
        "--kinds",
        nargs="+",
        metavar="KIND",
        help="of training: camlm, xlm, knn, xlme, frozen, translation, classification, tagging, span, preparation, ... (default: all)",
    )
    add(
        "--folder",
        type=Path,
        default=Path("kills-out"),
        metavar="DIR",
        help="for the corpus, the trainings and the results so far (default: %(default)s)",
    )
    add("--json", type=Path, metavar="FILE", help="write the table and every kill there, too")
    add(
        "--only",
        type=int,
        nargs="+",
        metavar="NUMBER",
        help="make only these kills again, and print their results, instead of the table",
    )
    return parser.parse_args()


def prepare() -> None:
    """prepare_root.py, which notes its progress after each few thousand lines here, not every half minute."""
    from veco_fairseq.data.prepare import encoding

    encoding.SECONDS_BETWEEN_MARKS = 0
    runpy.run_path(str(Path(__file__).with_name("prepare_root.py")), run_name="__main__")


def main() -> int:
    args = parse_arguments()
    import torch
    import torch._dynamo  # what training imports later than others: forks have it then
    from fairseq_cli.train import cli_main
    from tqdm import tqdm

    from veco_fairseq.kills.report import check_kills

    # A shell makes what it starts in the background ignore Ctrl-C, and all that this starts would ignore it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A fork of a process with threads would wait for them for ever.
    torch.set_num_threads(1)
    tqdm.monitor_interval = 0
    return check_kills(args, cli_main, prepare)


if __name__ == "__main__":
    run(main)
