# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Jobs that need each other, and texts that are translated part by part, with stand-ins for what they run."""

import re
import shlex

import pytest
from conftest import REPOSITORY
from support.sourced import sourced

LIB = REPOSITORY / "data-bin-recipes/lib"


def run_jobs(folder, out, script):
    """Two jobs: ``b`` needs ``a``; each is this script of bash, which gets the job's name."""
    folder.mkdir(exist_ok=True)
    (folder / "work.sh").write_text(script)
    jobs = "job a '' work.sh --name a; job b a work.sh --name b; run_jobs"
    return sourced(out, f"source {LIB}/jobs.sh; EXTRA=(); {jobs} {shlex.quote(str(folder))}")


def test_a_job_has_ended_when_it_has_run_and_not_before(tmp_path):
    out = tmp_path / "out"
    told = f'echo "$4: $(cd {out}/jobs && echo *.done)" >> {out}/told; '  # work.sh --out OUT --name NAME
    failed = run_jobs(tmp_path / "jobs", out, told + "exit 3")
    assert failed.returncode == 1 and f"a failed: see the end of {out}/jobs/a.log" in failed.stderr
    times = re.compile(r"\d\d:\d\d:\d\d (.*)")
    assert times.sub(r"\1", run_jobs(tmp_path / "jobs", out, told).stdout) == "a\nb\n"  # which one it is at, and since when
    assert run_jobs(tmp_path / "jobs", out, told).returncode == 0  # all have ended
    assert (out / "told").read_text().splitlines() == ["a: *.done", "a: *.done", "b: a.done"]


def test_other_options_than_those_of_jobs_that_have_ended_are_told(tmp_path):
    """A folder of an older version does not say with which options its jobs have ended."""
    for name in ("prepare", "train"):
        (tmp_path / f"{name}.sh").write_text("")
    jobs = f"source {LIB}/jobs.sh; job a '' prepare.sh --local 'some texts'; job b a train.sh; run_jobs {tmp_path}"
    given = [sourced(tmp_path / "out", f"EXTRA=({words}); {jobs}").stdout for words in ("", "", "--lr '1 2'", "--lr '1 2'")]
    told = "1 of the jobs that have ended had other options, such as b, and are not run again: for all with these options, give another --out\n"
    assert given[1:] == ["", told, told] and given[0].count("\n") == 2
    (tmp_path / "out/jobs/b.done").write_text("")
    assert sourced(tmp_path / "out", f"EXTRA=(--lr 5); {jobs}").stdout == ""


@pytest.mark.parametrize("code", [0, 3, 143])
def test_what_is_logged_keeps_its_exit_code(tmp_path, code):
    """A training that fails is no step that is done."""
    (tmp_path / "out").mkdir()
    (tmp_path / "log").write_text("before\n")  # of a training that goes on
    script = f"train() {{ echo said; echo told >&2; return {code}; }}; step training {tmp_path}/out logged {tmp_path}/log train"
    result = sourced(tmp_path / "other", script)
    assert (result.returncode, (tmp_path / "out.done").exists()) == ((0, True) if code == 0 else (1, False))
    assert sorted((tmp_path / "log").read_text().split()) == ["before", "said", "told"]
    assert ("training failed (exit code" in result.stderr) == (code != 0)


def test_all_is_logged_when_what_says_it_has_ended(tmp_path):
    """The next command may read the log: here of a slow tee."""
    (tmp_path / "tee").write_text('#!/bin/sh\nsleep 0.5\nexec cat >>"$3"\n')  # tee -a -- FILE
    (tmp_path / "tee").chmod(0o755)
    result = sourced(tmp_path / "out", f"PATH={tmp_path}:$PATH; logged {tmp_path}/log echo said; cat {tmp_path}/log")
    assert (result.returncode, result.stdout) == (0, "said\n"), result.stderr


def test_the_users_options_reach_what_trains(tmp_path):
    """... and what evaluates gets --cpu alone."""
    names = ["prepare", "train", "finetune", "understand", "evaluate"]
    for name in names:
        (tmp_path / f"{name}.sh").write_text(f'echo "$@" > {tmp_path}/{name}')
    jobs = "".join(f"job {name} '' {name}.sh --arm {name}; " for name in names)
    result = sourced(tmp_path / "out", f"source {LIB}/jobs.sh; EXTRA=(--cpu --autocast bf16); {jobs} run_jobs {tmp_path}")
    assert result.returncode == 0, result.stderr
    rest = {"prepare": "", "evaluate": " -- --cpu"}
    for name in names:
        expected = f"--out {tmp_path}/out --arm {name}{rest.get(name, ' -- --cpu --autocast bf16')}\n"
        assert (tmp_path / name).read_text() == expected


def test_the_parts_of_a_text_are_all_of_it(tmp_path):
    text = tmp_path / "text"
    text.write_text("".join(f"line {number}\n" for number in range(8)))
    (tmp_path / "python").write_text("#!/bin/sh\nexec sed 's/^/translated: /'\n")  # a program
    (tmp_path / "python").chmod(0o755)
    translate = f"PATH={tmp_path}:$PATH; PART=3; for start in 0 3 6; do translate_part $FILE $start any; done"
    result = sourced(tmp_path / "out", f"source {LIB}/synthetic.sh; FILE={shlex.quote(str(text))}; {translate}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-8:] == [f"translated: line {number}" for number in range(8)]


def test_a_job_of_another_process_is_left_to_it(tmp_path):
    """... and looked at again every 20 seconds; what does not need it is run meanwhile."""
    (tmp_path / "work.sh").write_text(f'echo "$4" >>{tmp_path}/told')
    jobs = "job a '' work.sh --name a; job b a work.sh --name b; job c '' work.sh --name c"
    other = "mkdir -p $OUT/jobs; exec 9>$OUT/jobs/a.lock; flock 9; sleep() { echo sleeps $1; exit 7; }"
    result = sourced(tmp_path / "out", f"source {LIB}/jobs.sh; EXTRA=(); {jobs}; {other}; run_jobs {tmp_path}")
    assert (result.returncode, result.stdout.splitlines()[-1]) == (7, "sleeps 20"), result.stderr
    assert (tmp_path / "told").read_text() == "c\n"


def test_a_job_that_another_process_has_just_ended_is_not_run_again(tmp_path):
    (tmp_path / "work.sh").write_text(f"touch {tmp_path}/ran")
    other = "flock() { touch $OUT/jobs/a.done; }; sleep() { :; }; job a '' work.sh"
    result = sourced(tmp_path / "out", f"source {LIB}/jobs.sh; EXTRA=(); {other}; run_jobs {tmp_path}")
    assert result.returncode == 0 and not (tmp_path / "ran").exists(), result.stderr


def test_a_job_that_goes_on_adds_to_its_log(tmp_path):
    for code in (3, 0):
        run_jobs(tmp_path / "jobs", tmp_path / "out", f'echo "$4 {code}"; exit {code}')
    assert (tmp_path / "out/jobs/a.log").read_text() == "a 3\na 0\n"


def test_a_text_is_translated_in_whole_parts(tmp_path):
    """... of which there is none without a line; an empty text is an error."""
    for name, text in (("text", "1\n2\n3\n4\n"), ("empty", "")):
        (tmp_path / name).write_text(text)
    script = f"source {LIB}/synthetic.sh; PART=2 EXTRA=() DEVICE=(); translate_part() {{ echo from $2; }}; translate it model {tmp_path}"
    assert sourced(tmp_path, f"{script}/text {tmp_path}/made").returncode == 0
    assert sorted(path.name for path in tmp_path.glob("made*") if path.suffix != ".done") == ["made", "made.0", "made.1"]
    assert (tmp_path / "made").read_text() == "from 0\nfrom 2\n"
    assert "empty: is empty\n" in sourced(tmp_path, f"{script}/empty {tmp_path}/other").stderr


def test_translations_that_a_model_was_trained_with_stay(tmp_path):
    """... where the options are others: that model's training would be refused after hours of another translation."""
    (tmp_path / "text").write_text("1\n2\n3\n")
    (tmp_path / "out/checkpoints/finetune.any.s7").mkdir(parents=True)
    script = (
        f"source {LIB}/synthetic.sh; OPTIONS[name]='' OPTIONS[seed]=7; synthetic_folder any; EXTRA=() DEVICE=() PART=2; "
        f'translate_part() {{ echo "$2 ${{@: -1}}"; }}; translate it model {tmp_path}/text {tmp_path}/made --beam'
    )
    assert sourced(tmp_path / "out", f"{script} 4").returncode == sourced(tmp_path / "out", f"{script} 5").returncode == 0
    assert (tmp_path / "made").read_text() == "0 5\n2 5\n"  # no model has been trained with them
    (tmp_path / "out/checkpoints/finetune.any.s7/checkpoint_last.pt").touch()
    refused = sourced(tmp_path / "out", f"{script} 6")
    told = "finetune.any.s7: was trained with other options or data: remove it, or choose another --out or --name\n"
    assert refused.returncode == 1 and refused.stderr.endswith(told)
    again = sourced(tmp_path / "out", f"{script} 5")
    assert (again.returncode, again.stdout.count("already there"), (tmp_path / "made").read_text()) == (0, 3, "0 5\n2 5\n")


def test_real_pairs_are_repeated_and_synthetic_ones_tagged(tmp_path):
    (tmp_path / "real").write_text("1\n2\n")
    (tmp_path / "synthetic").write_text("3\n")
    script = f"source {LIB}/synthetic.sh; cd {tmp_path}; joined 2 real synthetic 'a\\n'; joined 1 real synthetic"
    assert sourced(tmp_path, script).stdout == "1\n2\n1\n2\na\\n 3\n1\n2\n3\n"
