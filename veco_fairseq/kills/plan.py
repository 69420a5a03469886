# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The plan of all kills: which training, how, and when; the same one for the same options."""

import random
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from veco_fairseq.kills.kinds import KINDS, Kind

# How a training is stopped. The first is the most frequent one.
KILLED = "SIGKILL to all its processes"
FIRST_KILLED = "SIGKILL to the command alone"
HELPER_KILLED = "SIGKILL to a loader or worker"
TERMINATED = "SIGTERM to the command"
ALL_TERMINATED = "SIGTERM to all its processes"
INTERRUPTED = "SIGINT, as Ctrl-C"
WAYS = (KILLED, FIRST_KILLED, HELPER_KILLED, TERMINATED, ALL_TERMINATED, INTERRUPTED)
IN_SAVES = (KILLED, FIRST_KILLED, TERMINATED, ALL_TERMINATED, INTERRUPTED)
SHARE_KILLED = 0.6
SHARE_EARLY = 0.15


@dataclass(frozen=True)
class Trial:
    """One kill.

    Attributes:
        number: from 1 on.
        kind: of :data:`KINDS`.
        way: of :data:`WAYS`.
        inside_save: whether it must hit the training while it writes a checkpoint.
        early: whether in the first epoch, or before it; else it is in a later one.
        place: from 0 to 1, after which of the updates.
        delay: from 0 to 1, how far into the next update, or the save.
    """

    number: int
    kind: str
    way: str
    inside_save: bool
    early: bool
    place: float
    delay: float


def signal_of(way: str) -> signal.Signals:
    """The signal of one of :data:`WAYS`, which begins with its name."""
    return signal.Signals[way.split()[0].rstrip(",")]


def ways_of(kind: Kind) -> list[str]:
    """The ways in which a kind of training can be stopped."""
    left_out = {HELPER_KILLED} if kind.workers == 1 and not kind.loaders else set()
    # Workers whose launcher is gone go on, as they would on another machine: nobody is to start a second training.
    left_out |= {FIRST_KILLED} if kind.workers > 1 else set()
    left_out |= set() if kind.trains else {FIRST_KILLED, ALL_TERMINATED}  # it is one process
    return [way for way in WAYS if way not in left_out]


def make_plan(kinds: Sequence[str], kills: int, inside_saves: int, seed: int) -> list[Trial]:
    """All trials, kind by kind in turn.

    Args:
        kinds: names of :data:`KINDS`; each has its share.
        kills, inside_saves: how many, and how many of them.
        seed: of all that is random.
    """
    rng = random.Random(seed)
    most = max(KINDS[name].share for name in kinds)
    turns = [name for turn in range(most) for name in kinds if KINDS[name].share > turn]
    of_trials = list(islice(cycle(turns), kills))
    saving = [number for number, name in enumerate(of_trials) if KINDS[name].trains]
    inside = set(rng.sample(saving, min(inside_saves, len(saving))))
    used: Counter[str] = Counter()
    trials = []
    for number, name in enumerate(of_trials):
        others = [way for way in ways_of(KINDS[name])[1:] if number not in inside or way in IN_SAVES]
        rng.shuffle(others)
        way = KILLED if rng.random() < SHARE_KILLED else min(others, key=used.__getitem__)
        used[way] += 1
        early = rng.random() < SHARE_EARLY
        trials.append(Trial(number + 1, name, way, number in inside, early, rng.random(), rng.random()))
    return trials
