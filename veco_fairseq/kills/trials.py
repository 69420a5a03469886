# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""One kill: start a training, watch it, stop it, start it again, and compare."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, TextIO

from fairseq import utils

from veco_fairseq.errors import UserError
from veco_fairseq.kills.comparison import (
    MOST_TOLD,
    folder_differences,
    log_differences,
    logged,
    missing_lines,
    resume_differences,
    updates,
)
from veco_fairseq.kills.corpus import make_corpus, make_inputs
from veco_fairseq.kills.kinds import CAMLM, KINDS, PLUGIN
from veco_fairseq.kills.plan import (
    ALL_TERMINATED,
    FIRST_KILLED,
    HELPER_KILLED,
    INTERRUPTED,
    KILLED,
    TERMINATED,
    Trial,
    signal_of,
)
from veco_fairseq.kills.processes import Process, begun_at, children, group_of, last_line, send

PAUSE = 0.004  # seconds between two looks at a log
SHORT_PAUSE = 0.0003  # at a folder, for a save that takes some milliseconds
LIMIT = 600.0  # seconds of a training, which takes a few
ATTEMPTS = 6


class Watch:
    """The log of a running process, read as it grows."""

    def __init__(self, process: Process):
        self.process, self.text = process, ""
        self._file: TextIO | None = None

    def read(self) -> str:
        """All that is there now."""
        if self._file is None and self.process.log.exists():
            self._file = open(self.process.log, encoding="utf-8", errors="replace")
        self.text += self._file.read() if self._file else ""
        return self.text

    def until(self, happened: Callable[[], Any], pause: float = PAUSE) -> Any:
        """Wait for something that happens; what it is, or None if the process ended before.

        Raises:
            TimeoutError: the process goes on and on.
        """
        deadline = time.monotonic() + LIMIT
        while not (result := happened()):
            if not self.process.running:
                return happened() or None
            if time.monotonic() > deadline:
                raise TimeoutError(f"still runs after {LIMIT:.0f} seconds")
            time.sleep(pause)
        return result

    def until_update(self, update: int) -> bool:
        """Wait for the line of an update; of update 0, for the first words."""
        wanted = f'"num_updates": "{update}"' if update else "\n"
        return bool(self.until(lambda: wanted in self.read()))


@dataclass
class Reference:
    """A training that nobody disturbed.

    Attributes:
        folder: its --save-dir.
        log: what it printed.
        start: seconds from its first words to the first update.
        update: seconds of an update, on average, with all that is done between two.
        save: seconds of a save.
    """

    folder: Path
    log: str
    start: float
    update: float
    save: float

    def moments(self, early: bool) -> list[int]:
        """The updates after which a training can be stopped: in the first epoch, before it too, or in later ones."""
        found = logged(self.log)
        last = max(updates(self.log), default=0)
        if not last:  # no training
            return [0]
        in_first = {update for (tag, update), lines in found.items() if tag == "train_inner" and lines[0]["epoch"] == 1}
        return [update for update in range(last) if (update in in_first or update == 0) == early]


class Runner:
    """Makes the trials.

    Args:
        folder: of data, references and trials.
        train, prepare: fairseq-train and prepare_root.py, on sys.argv: for the forks.
        seed: of the data.
    """

    def __init__(self, folder: Path, train: Callable[[], object], prepare: Callable[[], object], seed: int):
        self.folder, self.train, self.prepare, self.seed = folder, train, prepare, seed
        self.references: dict[str, Reference] = {}
        # Forks have the plug-in already, under whatever name of its folder it was imported by.
        utils.import_user_module.memo = {os.path.abspath(PLUGIN)}

    def start(self, kind: str, save_dir: Path, log: Path, forked: bool) -> Process:
        """Start a training, in a fork if it is wanted and the training has one worker."""
        data, of_kind = self.folder / "data", KINDS[kind]
        if forked and of_kind.workers == 1:
            name, call = ("fairseq-train", self.train) if of_kind.trains else ("prepare_root.py", self.prepare)
            return Process([name, *of_kind.arguments(data, save_dir)], log, call)
        return Process(of_kind.command(data, save_dir), log)

    def reference(self, kind: str) -> Reference:
        """The undisturbed training of a kind, in a process of its own, not in a fork; made once.

        Raises:
            UserError: it fails.
        """
        if kind not in self.references:
            folder = self.folder / "undisturbed" / kind
            log, times = folder.with_suffix(".log"), folder.with_suffix(".json")
            if not times.exists():
                self._make_reference(kind, folder, log, times)
            seconds = json.loads(times.read_text(encoding="utf-8"))
            self.references[kind] = Reference(folder, log.read_text(encoding="utf-8"), **seconds)
        return self.references[kind]

    def _make_reference(self, kind: str, folder: Path, log: Path, times: Path) -> None:
        make_corpus(self.folder / "data", self.seed)
        make_inputs(self.folder / "data", KINDS[kind].options, self.train, CAMLM.split()[1:])
        clear(folder, log)
        folder.parent.mkdir(parents=True, exist_ok=True)
        process = self.start(kind, folder, log, forked=False)
        try:
            watch, moments = Watch(process), []
            for update in (0, 1) if KINDS[kind].trains else (0,):
                watch.until_update(update)
                moments.append(time.monotonic())
            code = process.wait(LIMIT)
            moments.append(time.monotonic())
        finally:
            process.end()
        text = log.read_text(encoding="utf-8")
        if code != 0:
            raise UserError(f"{kind}: fails undisturbed: {last_line(log)}: see {log}")
        saves = [float(seconds) for seconds in re.findall(r"writing took ([\d.e-]+) seconds", text)] or [0.0]
        seconds = {"start": moments[1] - moments[0], "save": mean(saves),
                   "update": (moments[-1] - moments[1]) / max(updates(text), default=1)}  # fmt: skip
        times.write_text(json.dumps(seconds), encoding="utf-8")

    def run(self, trial: Trial) -> dict[str, Any]:
        """Make a trial. What was found is under ``failures``: nothing, if all is well; its folder stays otherwise."""
        began, processor = time.monotonic(), processor_seconds()
        result: dict[str, Any] = {**asdict(trial), "failures": []}
        try:
            self._try(trial, result)
        except TimeoutError as error:
            result["failures"].append(f"the training that was to be killed {error}")
        result["seconds"] = round(time.monotonic() - began, 2)
        result["processor_seconds"] = round(processor_seconds() - processor, 2)
        return result

    def _try(self, trial: Trial, result: dict[str, Any]) -> None:
        reference = self.reference(trial.kind)
        folder = self.folder / "trials" / str(trial.number)
        for attempt in range(ATTEMPTS):
            clear(folder)
            folder.mkdir(parents=True)
            killed = self._kill(trial, reference, folder, earlier=attempt / ATTEMPTS)
            if killed is not None:
                result.update(killed)
                break
        else:
            result["failures"].append(f"ended {ATTEMPTS} times before it was hit: {last_line(folder / 'killed.log')}")
            return
        result["failures"] += self._resume(trial, reference, folder, result)
        if not result["failures"]:
            clear(folder)

    def _kill(self, trial: Trial, reference: Reference, folder: Path, earlier: float) -> dict[str, Any] | None:
        """Start and stop a training; None if it ended before it could be hit."""
        moments = reference.moments(trial.early)
        update = moments[int(trial.place * (1 - earlier) * len(moments))]
        length = reference.save if trial.inside_save else reference.update if update else reference.start
        process = self.start(trial.kind, folder / "saved", folder / "killed.log", forked=True)
        try:
            watch = Watch(process)
            if not watch.until_update(update):
                return None
            while True:
                if trial.inside_save and not watch.until(lambda: being_written(folder / "saved"), SHORT_PAUSE):
                    return None
                time.sleep(trial.delay * (1 - earlier) * length)
                frozen = process.freeze()
                writing = being_written(folder / "saved")
                helpers = children(process.pid)
                began = {pid: begun_at(pid) for pid in frozen[1:]}
                if not process.running:
                    return None
                if (writing or not trial.inside_save) and (helpers or trial.way != HELPER_KILLED):
                    break
                send(frozen, signal.SIGCONT)
                if not trial.inside_save:
                    length = PAUSE
            targets = {
                KILLED: frozen,
                FIRST_KILLED: [process.pid],
                HELPER_KILLED: helpers[int(trial.place * len(helpers)) :][:1],
                TERMINATED: [process.pid],
                ALL_TERMINATED: frozen,
                INTERRUPTED: [pid for pid in frozen if group_of(pid) == process.pid],
            }[trial.way]
            send(targets, signal_of(trial.way))
            send(frozen, signal.SIGCONT)
            code = process.wait(LIMIT)
        finally:
            if trial.way != FIRST_KILLED:
                process.end()
        return {"after_update": max(updates(watch.read()), default=0), "writing": writing, "exit_code": code,
                "left_running": began if trial.way == FIRST_KILLED else {}}  # fmt: skip

    def _resume(self, trial: Trial, reference: Reference, folder: Path, result: dict[str, Any]) -> list[str]:
        """Start the training again, and list all that is wrong with it, or with how it ended before."""
        process = self.start(trial.kind, folder / "saved", folder / "resumed.log", forked=True)
        try:
            code = process.wait(LIMIT)
        except TimeoutError as error:
            return [f"the resumed training {error}"]
        finally:
            process.end()
            left = result.pop("left_running").items()
            send([pid for pid, began in left if begun_at(pid) == began], signal.SIGKILL)
        before, after = ((folder / name).read_text(encoding="utf-8") for name in ("killed.log", "resumed.log"))
        if code != 0:
            return [f"the resumed training ended with exit code {code}: {last_line(folder / 'resumed.log')}"]
        result["resumed_at"] = min(updates(after), default=None)
        found = [*end_differences(trial, before, result["exit_code"]), *resume_differences(before, after)]
        found += [f"before the kill, {difference}" for difference in log_differences(before, reference.log)][:MOST_TOLD]
        found += list(log_differences(after, reference.log))[:MOST_TOLD]
        found += list(missing_lines(before, after, reference.log))[:MOST_TOLD]
        return [*found, *folder_differences(folder / "saved", reference.folder)]


def end_differences(trial: Trial, log: str, code: int) -> list[str]:
    """How a training that was told to end, or that lost a loader, ended otherwise than it should."""
    if KINDS[trial.kind].workers > 1 or not KINDS[trial.kind].trains or trial.way in (KILLED, FIRST_KILLED):
        return []
    number = signal_of(trial.way)
    # 0: it was at its end; then a training's own code, and Python's where it has not begun
    expected = {0, 1} if trial.way == HELPER_KILLED else {0, 128 + number, -number}
    found = [] if code in expected else [f"exit code {code}, not one of {sorted(expected)}"]
    return found + (["a traceback in the log of the stopped training"] if "Traceback" in log else [])


def processor_seconds() -> float:
    """Of this process and all that it has started and that have ended."""
    return sum(os.times()[:4])


def being_written(folder: Path) -> dict[str, int]:
    """The checkpoints that are being written in a save folder, by their temporary names, with their bytes so far."""
    try:
        return {path.name: path.stat().st_size for path in folder.iterdir() if path.name.endswith(".pt.tmp")}
    except FileNotFoundError:  # no folder yet, or a file that has just got its name
        return {}


def clear(*paths: Path) -> None:
    """Remove files and folders, if they are there."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
