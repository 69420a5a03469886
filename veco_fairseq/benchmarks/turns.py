# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements in turn, each in a process of its own, so that what else the machine does hits all alike."""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Collection

from veco_fairseq.errors import UserError
from veco_fairseq.options.flags import flag

KILLED = -9  # what Linux does to a process when there is too little memory


def in_turn(jobs: dict[str, list[str]], rounds: int, peers: Collection[str] = ()) -> dict[str, list[dict[str, float]]]:
    """Run the commands (of :func:`command_of`) in turn; the last line that each prints is its figures, as JSON.

    A line tells the seconds of each; a job that only makes files for others has none, and is not told of.

    Args:
        jobs: by name.
        peers: those of the jobs that are left out from where the machine has too little memory for them.

    Returns:
        The figures of every round, by the commands' names, without the peers that were left out.

    Raises:
        UserError: another job was killed.
        SystemExit: a job failed, and has said why.
    """
    results: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for number in range(1, rounds + 1):
        for name in list(results):
            result = subprocess.run([sys.executable, *jobs[name]], stdout=subprocess.PIPE, text=True)
            if result.returncode == KILLED and name in peers:
                print(f"{name}: was killed, since the machine has too little memory for it; it is left out", flush=True)
                del results[name]
                continue
            if result.returncode == KILLED:
                raise UserError(f"{name}: was killed, since the machine has too little memory for it: ask for less")
            if result.returncode != 0:  # it has said why
                raise SystemExit(result.returncode)
            results[name].append(json.loads(result.stdout.splitlines()[-1]))
            if "seconds" in results[name][-1]:
                print(f"round {number} of {rounds}, {name}: {results[name][-1]['seconds']:.2f} s", flush=True)
    return results


def command_of(args: Namespace, job: str, **changes) -> list[str]:
    """This command of bench.py again, for one job; with other options, too."""
    options = {**vars(args), **changes, "job": job, "json": None}
    words = ["-m", "veco_fairseq", "bench", options.pop("command")]
    for name, value in options.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        words += [] if value is None or value is False else [flag(name), *map(str, values)]
    return words
