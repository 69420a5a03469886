# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements in turn, each in a process of its own, so that what else the machine does hits all alike."""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable

from veco_fairseq.errors import UserError


def in_turn(jobs: dict[str, list[str]], rounds: int, say: Callable[[str], None]) -> dict[str, list[dict[str, float]]]:
    """Run the commands (of :func:`command_of`) in turn; the last line that each prints is its figures, as JSON.

    Returns:
        The figures of every round, by the commands' names.
    """
    results: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for number in range(1, rounds + 1):
        for name, command in jobs.items():
            result = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True)
            if result.returncode != 0:
                raise UserError(f"{name}: ended with exit code {result.returncode} (-9: too little memory); see above")
            results[name].append(json.loads(result.stdout.splitlines()[-1]))
            say(f"round {number} of {rounds}, {name}: {results[name][-1]['seconds']:.2f} s")
    return results


def command_of(args: Namespace, job: str, **changes) -> list[str]:
    """This command of bench.py again, for one job; with other options, too."""
    options = {**vars(args), **changes, "job": job, "json": None}
    words = ["-m", "veco_fairseq", "bench", options.pop("command")]
    for name, value in options.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        words += [] if value is None or value is False else [f"--{name.replace('_', '-')}", *map(str, values)]
    return words
