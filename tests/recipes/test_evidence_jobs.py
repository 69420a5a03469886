# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The comparisons go on from lines of results that another machine wrote: what they tell is not run again."""

import json
import os
import subprocess
import sys

import pytest
from support.modules import load_script

from recipes import RECIPES
from veco_fairseq.errors import UserError

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
results = load_script(RECIPES / "evidence/results.py")


def translation(arm, data, seed, pretraining="1", **more):
    return {"kind": "translation", "arm": arm, "data": data, "pretraining": pretraining, "seed": seed, **more}


def jobs(tmp_path, *lines):
    """The names of the jobs that are left to do, in their order."""
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["bash", RECIPES / "evidence/compare.sh", "--out", tmp_path / "out", "--list", "--results", file]
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": path, "VECO_SKIP_SETUP": "1"}, check=True
    )
    states = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert set(states.values()) <= {"to do", "ended"}
    return [name for name, state in states.items() if state == "to do"]


def test_a_line_tells_which_jobs_have_ended():
    of = results.ended(
        [
            translation("no-stop", "en-de.2000", "1", grid={"lr1e-3.dropout0.1": 4.5, "lr2e-3.dropout0.1": 4.25}),
            translation("veco", "en-sw.6379", "3", set="bible"),
            {"kind": "understanding", "task": "pud", "arm": "random", "plug": "out", "pretraining": "1", "seed": "2"},
            {"kind": "retrieval", "task": "flores", "arm": "xlm", "plug": "out", "pretraining": "3", "seed": "1"},
            {"kind": "cost", "arm": "mbart", "seed": "1"},
        ]
    )
    assert of == [
        "finetune.no-stop.p1.en-de.2000.s1", "evaluate.no-stop.p1.en-de.2000.s1", "grid.no-stop.en-de.2000",
        "bible.finetune.veco.p1.en-sw.6379.s3", "bible.evaluate.veco.p1.en-sw.6379.s3",
        "understand.pud.random.out.p1.s2", "understand.flores.xlm.out.p3.s1", "cost.mbart.s1",
    ]  # fmt: skip


def test_what_only_ended_jobs_need_is_not_run(tmp_path):
    every = jobs(tmp_path, {"kind": "cost", "arm": "nobody", "seed": "1"})
    grid = {"lr1e-3.dropout0.1": 4.5, "lr2e-3.dropout0.1": 4.25}
    lines = [
        translation("random", "en-de.2000", "1", grid=grid, lr="2e-3", dropout="0.1"),
        translation("no-stop", "en-de.2000", "1"),  # whose grid somebody has lost
        translation("mbart", "en-de.2000", "1", "3"), translation("mbart", "en-de.29000", "1", "3"),
    ]  # fmt: skip
    gone = set(every) - set(jobs(tmp_path, *lines))
    assert gone == {
        *(f"{kind}.{run}" for kind in ("finetune", "evaluate") for run in ("random.p1.en-de.2000.s1", "no-stop.p1.en-de.2000.s1",
                                                                          "mbart.p3.en-de.2000.s1", "mbart.p3.en-de.29000.s1")),
        *(f"grid.random.en-de.2000.{what}" for what in ("lr1e-3", "lr2e-3", "lr4e-3", "dropout0.3")),  # its line tells the best
        "train.mbart.s3",  # which nothing else is fine-tuned from
    }  # fmt: skip


def test_the_settings_come_from_the_line_with_the_grid(tmp_path):
    file = tmp_path / "results.jsonl"
    grid = {"lr1e-3.dropout0.3": 4.5, "lr4e-3.dropout0.3": 4.25}
    lines = [
        translation("veco", "en-de.2000", "2", lr="9e-3", dropout="0.9"),  # without a grid, whatever it used
        translation("xlm", "en-de.2000", "1", lr="1e-3", dropout="0.2", grid=grid),
        translation("veco", "en-de.2000", "1", lr="4e-3", dropout="0.3", grid=grid),
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    best = results.preferred(tmp_path, "veco", "en-de.2000", file)
    assert (best["lr"], best["dropout"]) == ("4e-3", "0.3")
    for arm, data, given in (
        ("veco", "en-de.29000", file),
        ("veco", "en-de.2000", None),
        ("nmt", "en-de.2000", tmp_path / "none"),
    ):
        with pytest.raises(UserError, match=f"{arm}, {data}: no fine-tuning to choose from has ended"):
            results.preferred(tmp_path, arm, data, given)
