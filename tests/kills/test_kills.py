# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""check_kills.py: that it kills, resumes and compares, and that a difference does not escape it."""

import json
import runpy
import shutil
import signal
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY, error_line
from fairseq_cli.train import cli_main
from tqdm import tqdm

from veco_fairseq.data.prepare import encoding
from veco_fairseq.kills.comparison import folder_differences, log_differences, missing_lines, resume_differences
from veco_fairseq.kills.kinds import KINDS
from veco_fairseq.kills.plan import HELPER_KILLED, KILLED, WAYS, Trial, make_plan
from veco_fairseq.kills.processes import Process, family, send, state_of
from veco_fairseq.kills.report import by_kind, make_all
from veco_fairseq.kills.trials import Runner
from veco_fairseq.tasks.base import VecoTask


@pytest.mark.slow
def test_two_kills_and_a_training_that_goes_on_otherwise(run, tmp_path):
    folder, output = tmp_path / "kills", tmp_path / "kills.json"
    command = ["scripts/check_kills.py", "--kinds", "camlm", "--kills", 2, "--inside-saves", 1, "--seed", 4]
    result = run(*command, "--folder", folder, "--json", output)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    written = json.loads(output.read_text())
    figures = written["by_kind"]["camlm"]
    assert figures["kills"] == figures["resumed exactly"] == figures["SIGKILL"] == 2 and figures["failed"] == 0
    assert figures["inside a save"] >= 1 and not list((folder / "trials").iterdir())
    inside, other = sorted(written["trials"], key=lambda trial: not trial["inside_save"])
    assert inside["writing"] and all(name.endswith(".pt.tmp") for name in inside["writing"])
    assert [trial["exit_code"] for trial in (inside, other)] == [-signal.SIGKILL] * 2
    assert 0 < inside["resumed_at"] <= inside["after_update"] + 1
    # What was interrupted goes on: all is there already.
    again = run(*command, "--folder", folder)
    assert again.returncode == 0 and again.stdout == result.stdout
    assert "is of other options" in error_line(run(*command[:-1], 5, "--folder", folder))

    def train_otherwise():
        if (folder / "trials/7/saved/checkpoint_last.pt").exists():
            sys.argv += ["--lr", "0.0020001"]  # from the resume on
        cli_main()

    trial = Trial(7, "camlm", KILLED, inside_save=False, early=False, place=0.5, delay=0.5)
    found = Runner(folder, train_otherwise, cli_main, 4).run(trial)["failures"]
    assert any(failure.startswith("log: train_inner") for failure in found)
    assert any(failure.startswith("checkpoint_last.pt: model ") for failure in found)
    assert (folder / "trials/7/resumed.log").exists()


@pytest.fixture
def folders(tmp_path):
    """Two save folders that are the same."""
    weights = {"a": torch.tensor([0.5, 0.25]), "b": torch.tensor([3.0, 4.0])}
    moments = {"state": {0: {"exp_avg": torch.tensor([1e-9, 2.0]), "step": 7}}}
    state = {
        "args": None, "cfg": {"checkpoint": {"save_dir": "x"}}, "model": weights, "last_optimizer_state": moments,
        "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {"best": 2.5}}], "task_state": {"symbols": ["<s>"]},
        "extra_state": {"train_iterator": {"epoch": 2, "iterations_in_epoch": 3}, "previous_training_time": 3.5},
    }  # fmt: skip
    for name in ("found", "expected"):
        (tmp_path / name).mkdir()
        torch.save(state, tmp_path / name / "checkpoint_last.pt")
        (tmp_path / name / "dict.txt").write_text("w 1\n")
    return tmp_path / "found", tmp_path / "expected", state


def next_float(tensor):
    tensor[0] = torch.nextafter(tensor[0], torch.tensor(9.0))


@pytest.mark.parametrize(("change", "message"), [
    (lambda state: next_float(state["model"]["a"]), "model a: 1 of 2 values differ"),
    (lambda state: next_float(state["last_optimizer_state"]["state"][0]["exp_avg"]), "last_optimizer_state state 0 exp_avg"),
    (lambda state: state["model"].update(a=state["model"]["a"].double()), "model a: torch.float64 [2] for torch.float32 [2]"),
    (lambda state: state["model"].pop("b"), "model: b is missing"),
    (lambda state: state["extra_state"]["train_iterator"].update(iterations_in_epoch=4), "iterations_in_epoch: 4 for 3"),
    (lambda state: state["optimizer_history"][0]["lr_scheduler_state"].update(best=2.0), "lr_scheduler_state best: 2.0 for 2.5"),
    (lambda state: state["task_state"]["symbols"].append("w"), "task_state symbols: 2 values for 1"),
])  # fmt: skip
def test_differences_of_state(folders, change, message):
    found, expected, state = folders
    assert list(folder_differences(found, expected)) == []
    change(state)
    torch.save(state, found / "checkpoint_last.pt")
    (difference,) = folder_differences(found, expected)
    assert difference.startswith("checkpoint_last.pt: ") and message in difference


def test_what_is_another_run_of_the_same_training(folders):
    found, expected, state = folders
    state["cfg"]["checkpoint"]["save_dir"], state["extra_state"]["previous_training_time"] = "y", 4.5
    state["optimizer_history"].insert(0, {"num_updates": 4})  # it was started twice
    torch.save(state, found / "checkpoint_last.pt")
    assert list(folder_differences(found, expected)) == []


def test_differences_of_files(folders):
    found, expected, _ = folders
    shutil.copy(found / "checkpoint_last.pt", found / "checkpoint_1_3.pt.tmp")
    content = (found / "checkpoint_last.pt").read_bytes()
    (found / "checkpoint_last.pt").write_bytes(content[:-30])
    (found / "dict.txt").write_text("v 1\n")
    leftover, damaged, other = folder_differences(found, expected)
    assert leftover == "checkpoint_1_3.pt.tmp: is left over" and other == "dict.txt: other bytes"
    assert damaged.startswith("checkpoint_last.pt: cannot be read: ")
    assert list(folder_differences(expected, found))[0] == "checkpoint_1_3.pt.tmp: is missing"


def log(*losses, first=1, **others):
    """The lines of updates with these losses."""
    return "".join(
        f"2026 | INFO | train_inner | {json.dumps({'loss': loss, 'num_updates': str(update), 'epoch': 1, **others})}\n"
        for update, loss in enumerate(losses, start=first)
    )


def test_differences_of_logs():
    whole = log("9.1", "8.2", "7.3")
    assert list(log_differences(log("8.2", "7.3", first=2, wps="5", train_wall="3"), whole)) == []
    assert list(log_differences(log("8.2", "7.4", first=2), whole)) == ["log: train_inner at update 3: loss 7.4 for 7.3"]
    (more,) = log_differences(log("7.3", "6.4", first=3), whole)
    assert more == "log: train_inner at update 4, where the undisturbed training has none"


SAVED = "Saved checkpoint x/checkpoint_1_2.pt (epoch 1 @ 2 updates, score None) (writing took 0.1 seconds)\n"


@pytest.mark.parametrize(("after", "missing"), [
    (log("7.3", "6.4", first=3), []),
    (log("6.4", first=4), []),  # what was done before it is not asked for here
    (log("7.3", first=3), [4]),
    ("", [3, 4]),  # a resumed training that did nothing
])  # fmt: skip
def test_lines_that_a_resumed_log_lacks(tmp_path, after, missing):
    before, expected = log("9.1", "8.2") + SAVED, log("9.1", "8.2", "7.3", "6.4")
    told = [f"log: no train_inner at update {update}, where the undisturbed training has one" for update in missing]
    assert list(missing_lines(before, after, expected)) == told
    assert list(missing_lines(log("9.1"), "", "")) == []  # prepare_root.py, which has no updates
    # ... and they count as failures of the kill.
    for name in ("saved", "undisturbed"):
        (tmp_path / name).mkdir()
    (tmp_path / "killed.log").write_text(before)
    runner = SimpleNamespace(start=lambda *_, **__: SimpleNamespace(wait=lambda _: 0, end=lambda: None))
    (tmp_path / "resumed.log").write_text(after)
    trial = Trial(1, "camlm", KILLED, inside_save=False, early=False, place=0.5, delay=0.5)
    reference = SimpleNamespace(log=expected, folder=tmp_path / "undisturbed")
    found = Runner._resume(runner, trial, reference, tmp_path, {"left_running": {}, "exit_code": -9})
    assert [failure for failure in found if failure.startswith("log: ")] == told


def test_where_it_went_on():
    before = log("9.1", "8.2") + SAVED + log("7.3", first=3)
    assert list(resume_differences(before, log("7.3", first=3))) == []
    for first in (1, 2, 5):
        assert list(resume_differences(before, log("9.1", first=first))) == [f"went on with update {first}; saved were 2, done 3"]
    told = log("9.1", "8.2") + "SIGTERM: saved after update 1; the same command goes on from here"
    assert list(resume_differences(told, log("8.2", first=2))) == ["told to end, it saved after update 1, and had done 2"]


def test_plan():
    plan = make_plan(list(KINDS), 100, 30, seed=1)
    assert plan == make_plan(list(KINDS), 100, 30, seed=1) != make_plan(list(KINDS), 100, 30, seed=2)
    assert sum(trial.inside_save for trial in plan) == 30 and sum(trial.early for trial in plan) < 30
    assert set(KINDS) == {trial.kind for trial in plan}
    ways = Counter(trial.way for trial in plan)
    assert ways[KILLED] > 50 and len(ways) == 6
    assert all(KINDS[trial.kind].loaders or KINDS[trial.kind].workers > 1 for trial in plan if trial.way == HELPER_KILLED)


def test_table():
    """Every kill is in one of the columns of signals, and in one of the last two."""
    results = [
        {"kind": "span", "way": way, "early": number == 0, "writing": {"a.pt.tmp": 5} if number < 2 else {},
         "failures": ["x"] * (number == 3)}
        for number, way in enumerate(WAYS)
    ]  # fmt: skip
    assert by_kind(results) == {"span": {
        "kills": 6, "inside a save": 2, "epoch 2 or later": 5, "SIGKILL": 3, "SIGTERM": 2, "SIGINT": 1,
        "resumed exactly": 5, "failed": 1,
    }}  # fmt: skip


def test_family_is_frozen_and_killed(tmp_path):
    process = Process(["bash", "-c", "sleep 60 & sleep 60 & wait"], tmp_path / "log")
    deadline = time.monotonic() + 20
    while len(family(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    frozen = process.freeze()
    assert frozen[0] == process.pid and [state_of(pid) for pid in frozen] == ["T"] * 3 and process.running
    send(frozen, signal.SIGCONT)
    process.end()
    assert process.exit_code == -signal.SIGKILL
    while not all(state_of(pid) in "ZX" for pid in frozen) and time.monotonic() < deadline:
        time.sleep(0.01)  # a signal is sent before its process is gone
    assert all(state_of(pid) in "ZX" for pid in frozen)


def test_vocabulary_copied_again_and_again_leaves_one_file(tmp_path):
    """Killed while it was copied into the save folder, it has left a part under the name that the next copy has."""
    root, saved = tmp_path / "root", tmp_path / "saved"
    for folder in (root, saved):
        folder.mkdir()
    for name in ("dict.txt", "sentencepiece.bpe.model"):
        (root / name).write_text("whole")
        (saved / f"{name}.tmp").write_text("who")
    VecoTask.begin_epoch(SimpleNamespace(vocabulary=root, cfg=SimpleNamespace(save_dir=str(saved), no_save=False)), 1, None)
    assert {path.name: path.read_text() for path in saved.iterdir()} == {
        "dict.txt": "whole", "sentencepiece.bpe.model": "whole"
    }  # fmt: skip


@pytest.mark.parametrize(("options", "message"), [
    (["--kinds", "nlu"], "--kinds nlu: there is camlm, "),
    (["--kills", "3", "--inside-saves", "4"], "--kills 3 --inside-saves 4: give 1 or more, and not more of them"),
])  # fmt: skip
def test_refusals(run, tmp_path, options, message):
    result = run("scripts/check_kills.py", *options, "--folder", tmp_path / "kills")
    assert message in error_line(result) and not (tmp_path / "kills").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code_says_whether_all_were_resumed(code, monkeypatch):
    found, before = [], signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell has it for what runs in the background

    def check_kills(args, train, prepare):
        found.extend(
            (torch.get_num_threads(), signal.getsignal(signal.SIGINT), tqdm.monitor_interval, train is cli_main, prepare.__name__)
        )
        return code

    monkeypatch.setattr("veco_fairseq.kills.report.check_kills", check_kills)
    monkeypatch.setattr("logging.raiseExceptions", False)
    monkeypatch.setattr(tqdm, "monitor_interval", 10)
    monkeypatch.setattr(sys, "argv", ["check_kills.py"])
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(REPOSITORY / "scripts/check_kills.py"), run_name="__main__")
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, before)
    assert (end.value.code or 0) == code and found == [1, signal.default_int_handler, 0, True, "prepare"]


def test_a_preparation_that_is_killed_has_noted_its_progress_often(monkeypatch):
    """Otherwise, a kill within half a minute tests only that it begins again."""
    script = runpy.run_path(str(REPOSITORY / "scripts/check_kills.py"), run_name="check_kills")
    monkeypatch.setattr(encoding, "SECONDS_BETWEEN_MARKS", 30.0)
    monkeypatch.setattr(runpy, "run_path", lambda *_, **__: None)
    script["prepare"]()
    assert encoding.Clock("a", total=100, before=0).has_come(10)


@pytest.mark.parametrize("cut_off", ['{"number": 2, "writing": {}', '{"number": 2', ""])
def test_notes_that_were_cut_off_are_gone_on_with(tmp_path, cut_off):
    """Twice: what was cut off must not be in the way of the line that is written next."""
    options, made = {"kills": 3}, []
    noted = {"number": 1, "kind": "camlm", "way": KILLED, "early": False, "failures": [], "seconds": 1, "processor_seconds": 2}

    def run_trial(trial):
        made.append(trial.number)
        return {**noted, "number": trial.number}

    plan = [SimpleNamespace(number=number, kind="camlm", way="SIGKILL") for number in (1, 2, 3)]
    runner = SimpleNamespace(folder=tmp_path, run=run_trial)
    notes = tmp_path / "results.jsonl"
    notes.write_text(f'{{"kills": 3}}\n{json.dumps(noted)}\n{cut_off}')
    for _ in range(2):
        assert [result["number"] for result in make_all(plan, runner, options)] == [1, 2, 3]
    assert made == [2, 3] and len(notes.read_text().splitlines()) == 4
    notes.write_text('{"kil')  # killed before it had begun
    assert len(make_all(plan, runner, options)) == 3 and made[2:] == [1, 2, 3]
