# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""scripts/demo.sh, with stand-ins for what it runs: its stages, their logs and times, and what becomes of one that fails."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import REPOSITORY

# Writes down its name and arguments; takes two seconds for the data and the trainings where there is a file "slow"; fails for
# what the file "fails" has a word of.
BASH = """#!/bin/bash
echo "${1##*/} ${*:2}" >>"$PLACE/calls"
echo "a line of ${1##*/}"
echo "x | INFO | train_inner | epoch 001: 3 / 9 loss=2.5, nll=1, num_updates=3, lr=1"
echo "x | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.25 | nll_loss 4 | ppl 9"
printf '%s\n' "sacreBLEU 12.3" "[aa] a part" "7 lines encoded" "x.py: error: none" "another line"
echo "skip $VECO_SKIP_SETUP, threads $OMP_NUM_THREADS" >>"$PLACE/environment of ${1##*/}"
[[ $1 != */prepare.sh || ! -e $PLACE/slow ]] || { sleep 2.2 & wait; echo x >>"$PLACE/prepared"; }
[[ ! -e $PLACE/fails || "$*" != *"$(<"$PLACE/fails")"* ]] || exit 1
[[ $1 != */finetune.sh || ! -e $PLACE/slow ]] || { sleep 2.2 & wait; echo x >>"$PLACE/trained"; }
"""
PYTHON = """#!/bin/bash
case "$*" in
*sched_getaffinity*) echo 3 ;;
*cuda*) [[ -e $PLACE/cuda ]] ;;
*demo_report.py*) echo "demo_report.py $2" >>"$PLACE/calls"; echo "the report" >"$2/report.md" ;;
esac
"""


@pytest.fixture
def demo(tmp_path):
    scripts, programs = tmp_path / "REPO/scripts", tmp_path / "REPO/.venv/bin"
    scripts.mkdir(parents=True)
    programs.mkdir(parents=True)
    shutil.copy(REPOSITORY / "scripts/demo.sh", scripts)
    for name, text in (("bash", BASH), ("python", PYTHON)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    options = {"env": {"PATH": f"{programs}:/usr/bin:/bin", "PLACE": str(tmp_path)}, "cwd": tmp_path}

    def demo(*arguments):
        (tmp_path / "calls").write_text("")
        command = ["/bin/bash", scripts / "demo.sh", *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
        return result, (tmp_path / "calls").read_text().splitlines()

    def begin(*arguments):
        command = ["/bin/bash", scripts / "demo.sh", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **options)

    demo.begin = begin
    return demo


def test_stages_logs_and_seconds(demo, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "slow").touch()
    result, calls = demo("--out", "out")
    (tmp_path / "slow").unlink()
    assert result.returncode == 0 and result.stderr == "" and result.stdout.endswith("the report\n")
    lines = result.stdout.splitlines()[8:]  # without the set-up's
    assert lines[:4] == ["== data", "   data, update 3: loss=2.5", "   data, validation: loss 5.25", "   data: sacreBLEU 12.3"]
    assert lines[4:7] == ["   data: [aa] a part", "   data: 7 lines encoded", "   data: x.py: error: none"]
    assert lines[7:9] == ["== pretraining", "   pretraining, update 3: loss=2.5"]
    environments = {path.name[15:]: path.read_text() for path in tmp_path.glob("environment of *")}
    assert environments["setup.sh"] == "skip , threads \n" and environments["train.sh"] == "skip 1, threads \n"
    assert environments["finetune.sh"] == "skip 1, threads 2\n" * 2  # both at once, on three processors
    processor = Path("/proc/cpuinfo").read_text()
    bf16 = "amx_bf16" in processor or ("AuthenticAMD" in processor and "avx512_bf16" in processor)
    pretraining, finetuning = (" --autocast bf16", " --amp") if bf16 else ("", "")
    arms = [f"finetune.sh --out {out} --arm {arm} -- --cpu{finetuning}" for arm in ("random", "veco")]
    assert calls[:3] == ["setup.sh ", f"prepare.sh --out {out}", f"train.sh --out {out} -- --cpu{pretraining}"]
    assert sorted(calls[3:5]) == arms and calls[5:] == [f"demo_report.py {out}"]
    stages = ("data", "pretraining", "finetuning-veco", "finetuning-random", "report")
    seconds = dict(line.split("\t") for line in (out / "seconds.tsv").read_text().splitlines())
    assert seconds.keys() == set(stages) and int(seconds["data"]) >= 2
    assert int(seconds["report"]) < sum(int(seconds[stage]) for stage in stages[:-1]), "each from the stage's own beginning"
    assert {path.stem for path in (out / "logs").iterdir()} == set(stages)
    assert (out / "logs/data.log").read_text().startswith("a line of prepare.sh\n")
    demo("--out", "out")  # started again: nothing of the first part is lost
    assert (out / "logs/data.log").read_text().count("a line of prepare.sh\n") == 2
    assert (out / "seconds.tsv").read_text().count("data\t") == 2


def test_a_gpu_is_used_where_there_is_one(demo, tmp_path):
    (tmp_path / "cuda").touch()
    _, calls = demo("--out", "out")
    calls = [call.replace(str(tmp_path), "") for call in calls]  # whose name has a number
    assert calls[2] == "train.sh --out /out --" and not [call for call in calls if "--cpu" in call or "16" in call]


def test_a_dash_is_a_folder_like_others(demo, tmp_path):
    """... and not the folder before, as it is for cd."""
    (tmp_path / "cuda").touch()
    result, calls = demo("--out", "-")
    assert result.returncode == 0 and calls[1] == f"prepare.sh --out {tmp_path}/-"


def test_a_folder_that_cannot_be_made_is_told(demo):
    result, calls = demo("--out", "calls/out")  # below a file
    assert result.returncode == 1 and calls == []
    assert result.stderr.endswith("demo.sh: error: calls/out: cannot be made (Not a directory): choose another --out\n")


@pytest.mark.parametrize(
    "fails, stage, after", [("train.sh", "pretraining", "finetune.sh"), ("--arm random", "finetuning-random", "demo_report.py")]
)
def test_a_stage_that_fails_ends_the_demo(demo, tmp_path, fails, stage, after):
    (tmp_path / "fails").write_text(fails)
    result, calls = demo("--out", "out")
    log = tmp_path / f"out/logs/{stage}.log"
    assert result.returncode == 1 and result.stderr == f"demo.sh: error: {stage} failed: its output is in {log}\n"
    assert calls and not [call for call in calls if call.startswith(after)]


def test_no_training_goes_on_when_the_demo_has_failed(demo, tmp_path):
    """One fails at once; the same command, given again, would find the other one's folder in use."""
    for file, text in (("slow", ""), ("fails", "--arm veco")):
        (tmp_path / file).write_text(text)
    assert demo.begin().wait(timeout=60) == 1 and (tmp_path / "trained").read_text() == "x\n"


# Where a busy machine holds the script up: between the start of a stage and the next line, and before a stage's start.
HELD_UP = [
    ("", ""),
    (r"(\(trap - INT && exec .*\n)", r"\1    sleep 1\n"),
    (r"(    teller=.*\n)", r"\1    echo wait >>$PLACE/calls; sleep 1\n"),
]


@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage, count, ended, held_up", [
    ("prepare.sh", 1, "prepared", 0), ("finetune.sh", 2, "trained", 0), ("prepare.sh", 1, "prepared", 1), ("wait", 1, "prepared", 2),
])  # fmt: skip
def test_a_signal_ends_what_runs(demo, tmp_path, stage, count, ended, held_up, number, to_all):
    """To the script alone, as by kill, or to all processes, as by Ctrl-C: none goes on, in the way of the same command."""
    script = tmp_path / "REPO/scripts/demo.sh"
    script.write_text(re.sub(*HELD_UP[held_up], script.read_text(), count=1))
    for name in ("slow", "calls"):
        (tmp_path / name).touch()
    process, deadline = demo.begin(), time.time() + 120
    while (tmp_path / "calls").read_text().count(stage) < count:
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.02)
    (os.killpg if to_all else os.kill)(process.pid, number)
    process.communicate(timeout=30)  # until nothing that it has started has its output open
    assert not (tmp_path / ended).exists(), "it went on"
    assert process.returncode == 128 + number


@pytest.mark.parametrize("arguments, message", [
    (["--out"], "usage: demo.sh [--out DIR]"), (["--out", ""], "usage: demo.sh [--out DIR]"),
    (["--out", "out", "more"], "usage: demo.sh [--out DIR]"), (["--ou", "out"], "--ou: no such option; usage: demo.sh [--out DIR]"),
    (["out"], "out: no such option; usage: demo.sh [--out DIR]"),
])  # fmt: skip
def test_bad_options(demo, tmp_path, arguments, message):
    result, calls = demo(*arguments)
    assert (result.returncode, result.stderr, calls) == (1, f"demo.sh: error: {message}\n", [])
    assert not (tmp_path / "out").exists()


def test_without_an_option_it_writes_into_demo_out(demo, tmp_path):
    assert demo()[1][-1] == f"demo_report.py {tmp_path / 'demo-out'}"
    result, calls = demo("--help")
    assert (
        result.stdout.startswith("The whole way on the embedded toy corpus")
        and "does nothing twice." in result.stdout
        and not calls
    )


@pytest.mark.parametrize("h, s, said", [
    (5.3, 4.9, "S is 0.40 bits below H: the cross-attention has learnt to look"),
    (5.2, 4.9, "S is 0.30 bits below H: the cross-attention has learnt to look"),
    (5.0, 4.9, "S is 0.10 bits below H: the cross-attention has not yet learnt to look"),
    (4.9, 5.9, "S is 1.00 bits above H: the cross-attention has not yet learnt to look"),
])  # fmt: skip
def test_the_verdict_on_the_cross_attention(h, s, said):
    """It has learnt only where S is clearly the better of the two."""
    verdict = runpy.run_path(str(REPOSITORY / "scripts/demo_report.py"))["verdict"]
    assert verdict({"h": h, "s": s}) == said
