# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What check_kills.py notes in its folder, reads back, prints and refuses; no training is run."""

import json
from argparse import Namespace

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.kills import report


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Runs the command with stand-ins for the trials: those that failed have these numbers."""

    def run(*failed, **options):
        def made(runner, trial):
            made_now.append(trial.number)
            failures = ["x"] * (trial.number in failed)
            return {**vars(trial), "failures": failures, "seconds": 1.5, "processor_seconds": 2.25}

        made_now = []
        monkeypatch.setattr(report.Runner, "run", made)
        defaults = {"kinds": ["span", "preparation"], "kills": 5, "inside_saves": 1, "seed": 3, "only": None, "json": None}
        return report.check_kills(Namespace(**{**defaults, "folder": tmp_path / "kills", **options}), None, None), made_now

    return run


def test_a_folder_of_another_machine_is_refused(check, tmp_path, monkeypatch):
    """... since its results would be printed under the machine and the versions of today."""
    written = tmp_path / "kills.json"
    monkeypatch.setattr(report, "machine", lambda: {"processor": "one", "torch": "2.13.0"})
    assert check(json=written) == (0, [1, 2, 3, 4, 5])
    assert json.loads(written.read_text())["machine"] == {"processor": "one", "torch": "2.13.0"}
    assert check() == (0, [])
    monkeypatch.setattr(report, "machine", lambda: {"processor": "one", "torch": "2.14.1"})
    with pytest.raises(UserError, match=r"results.jsonl: is of other options, or of another machine or version, .*2\.13\.0"):
        check()


def test_only_what_is_trained_has_epochs(check, tmp_path):
    """... and so a kill of prepare_root.py is in none of them, whatever the plan has drawn."""
    written = tmp_path / "kills.json"
    check(kills=9, seed=2, json=written)
    content = json.loads(written.read_text())
    later = [trial["kind"] for trial in content["trials"] if not trial["early"]]
    assert later.count("preparation") == 4 and later.count("span") == 4
    assert {kind: figures["epoch 2 or later"] for kind, figures in content["by_kind"].items()} == {"span": 4, "preparation": 0}


def test_some_kills_are_made_again_and_written(check, tmp_path):
    written = tmp_path / "kills.json"
    assert check(4, only=[2, 4], json=written) == (1, [2, 4])
    content = json.loads(written.read_text())
    assert [(trial["number"], trial["failures"]) for trial in content["trials"]] == [(2, []), (4, ["x"])]
    assert content["seconds"] == 3 and check(4, only=[2]) == (0, [2])
    for number in (0, 6, 999):
        with pytest.raises(UserError, match=f"^--only {number}: there are the kills 1 to 5$"):
            check(only=[2, number])


@pytest.mark.parametrize(("place", "line"), [
    (1, '{"kills": 5,'), (2, '{"number": 1, "ki'), (3, '{"number": 2, "failures": []}'), (3, "[2]"), (2, "\udcff"),
])  # fmt: skip
def test_notes_that_are_damaged(check, tmp_path, place, line):
    """... elsewhere than at their end, where a run that was killed cuts them off."""
    check()
    notes = tmp_path / "kills/results.jsonl"
    lines = notes.read_text().splitlines()
    lines[place - 1] = line
    notes.write_text("\n".join([*lines, ""]), errors="surrogateescape")
    with pytest.raises(
        UserError, match=f"results.jsonl, line {place}: is damaged .*: remove the file, or choose another --folder"
    ):
        check()
