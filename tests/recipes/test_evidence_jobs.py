# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The comparisons go on from lines of results that another machine wrote: what they tell is not run again."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from support.modules import load_script
from support.sourced import sourced

from recipes import RECIPES
from veco_fairseq.errors import UserError

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
results = load_script(RECIPES / "evidence/results.py")


def translation(arm, data, seed, pretraining="1", **more):
    return {"kind": "translation", "arm": arm, "data": data, "pretraining": pretraining, "seed": seed, **more}


def jobs(tmp_path, *lines, options=()):
    """The names of the jobs that are left to do, in their order."""
    file = tmp_path / "results.jsonl"
    if lines:
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["bash", RECIPES / "evidence/compare.sh", "--out", tmp_path / "out", "--list", "--results", file, *options]
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": path, "VECO_SKIP_SETUP": "1"}, check=True
    )
    states = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert set(states.values()) <= {"to do", "ended"}
    return [name for name, state in states.items() if state == "to do"]


def test_an_empty_file_of_results_tells_of_no_end(tmp_path):
    """... as a machine leaves it that was stopped before its first line: it was refused with the advice to run this script."""
    none = jobs(tmp_path)
    (tmp_path / "results.jsonl").touch()
    assert jobs(tmp_path) == none and "train.veco.s1" in none


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
    every = jobs(tmp_path)
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


def test_a_try_has_some_jobs_of_each_kind(tmp_path):
    """... and every arm that it needs; of the languages with little text without mBART, for which they have no data."""
    few = jobs(tmp_path, options=["--try"])

    def scored(arm, data, *trainings):
        grid = [f"grid.{arm}.{data}.lr2e-3", f"grid.{arm}.{data}.dropout0.3"]
        return [*trainings, *grid, f"finetune.{arm}.p1.{data}.s1", f"evaluate.{arm}.p1.{data}.s1"]

    assert few == [
        "prepare", *scored("random", "en-de.1000"), *scored("mbart", "en-de.1000", "train.mbart.s1"),
        *scored("veco", "en-de.1000", "train.veco.s1"), "prepare_understanding", "understand.pud.veco.in.p1.s1",
        "understand.tatoeba.veco.out.p1.s1", "cost.veco.s1", "attention.veco.s1", "bible.prepare",
        *(f"bible.{name}" for name in scored("veco", "en-sw.1000", "train.veco.s1")),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Each job of the comparisons: its name -> the jobs that it needs, and its command."""
    out = tmp_path_factory.mktemp("planned")
    show = 'printf "%s\\t%s\\t%s\\n" "$name" "${NEEDS[$name]}" "${COMMANDS[$name]}"'
    script = f"trap 'for name in \"${{NAMES[@]}}\"; do {show}; done >{out}/jobs' EXIT; source {RECIPES}/evidence/compare.sh"
    arguments = [RECIPES / "evidence/compare.sh", "--out", out, "--local", out, "--results", "/RESULTS", "--list"]
    environment = {**os.environ, "VECO_SKIP_SETUP": "1"}
    subprocess.run(["bash", "-c", script, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    rows = (line.split("\t") for line in (out / "jobs").read_text().splitlines())
    return {name: (needs.split(), command.strip().replace(str(out), "LOCAL")) for name, needs, command in rows}


def commands_of(planned, kind):
    """The commands of a kind of job, by what stands in their names after the kind."""
    of_kind = re.compile(rf"(bible\.)?{kind}\.(.+)")
    return {
        (found[1] or "", found[2]): (needs, command)
        for name, (needs, command) in planned.items()
        if (found := of_kind.fullmatch(name))
    }


def test_every_fine_tuning_is_the_one_that_its_name_says(planned):
    trained, scored = commands_of(planned, "finetune"), commands_of(planned, "evaluate")
    assert set(trained) == set(scored)
    for (texts, name), (needs, command) in trained.items():
        arm, pretraining, data, seed = re.fullmatch(r"(.+)\.p(\d)\.([a-z-]+\.\d+)\.s(\d)", name).groups()
        words = f"{'--set bible ' if texts else ''}--arm {arm} --data {data} --pretraining {pretraining} --seed {seed} --results /RESULTS"
        assert command == f"finetune.sh {words}"
        assert scored[texts, name] == ([f"{texts}finetune.{name}"], f"evaluate.sh {words}")
        origin = "deep" if arm.startswith("deep-") else arm
        assert needs[-1] == f"{texts}prepare" if arm == "random" else f"{texts}train.{origin}.s{pretraining}"


def test_every_pre_training_is_the_one_that_its_name_says(planned):
    for (texts, name), (needs, command) in commands_of(planned, "train").items():
        arm, seed = name.rsplit(".s", 1)
        before = {**dict.fromkeys(("veco-nmt", "veco-nmt-8"), "train.veco-8.s1"), "from-xlm": "train.xlm-8.s1"}.get(
            arm, f"{texts}prepare"
        )
        assert (needs, command) == (
            [before], f"train.sh {'--set bible ' if texts else ''}--arm {arm} --seed {seed}",
        )  # fmt: skip
    seeds = Counter((texts, name[-2:]) for texts, name in commands_of(planned, "train"))
    # 4 of the 5 arms, and with half the learning rate, 5 more, XLM-E, two for the pictures and depths, 6 ingredients, 8 with large
    # batches, 3 with few pairs, and two that begin with one of them; then 4, xlm-updates, 7 ingredients, and 4 with large batches and 3 with few pairs
    assert seeds == {
        ("", "s1"): 4 + 5 + 5 + 1 + 2 + 6 + 8 + 3 + 2, ("", "s2"): 4 + 1 + 7 + 7, ("", "s3"): 4 + 1 + 7, ("bible.", "s1"): 3,
    }  # fmt: skip


def test_understanding_costs_and_pictures_are_those_that_their_names_say(planned):
    for (_, name), (needs, command) in commands_of(planned, "understand").items():
        task, arm, plug, pretraining, seed = re.fullmatch(r"(\w+)\.(.+)\.(in|out)\.p(\d)\.s(\d)", name).groups()
        words = f"--task {task} --arm {arm} --plug {plug} --pretraining {pretraining} --seed {seed} --results /RESULTS"
        assert command == f"understand.sh {words}"
        assert needs == ["prepare" if arm == "random" else f"train.{arm}.s{pretraining}", "prepare_understanding"]
    told = {"cost": "veco xlm nmt nmt-more mbart xlm-updates", "attention": "veco-begun veco"}
    for kind, options in (("cost", " --results /RESULTS"), ("attention", "")):
        assert [name for _, name in commands_of(planned, kind)] == [f"{arm}.s1" for arm in told[kind].split()]
        for (_, name), (needs, command) in commands_of(planned, kind).items():
            arm = name.removesuffix(".s1")
            assert (needs, command) == ([f"train.{arm}.s1"], f"{kind}.sh --arm {arm}{options}")
    of_texts = {"prepare": "prepare.sh", "prepare_understanding": "prepare_understanding.sh", "bible.prepare": "prepare_bible.sh"}
    for name, script in of_texts.items():
        assert planned[name] == ([], f"{script} --local LOCAL")


def test_as_many_seeds_and_sizes_as_the_settings_say(planned):
    """8 sizes; 3 seeds of fine-tuning, and for the 4 arms that are pre-trained 2 more of pre-training with 2 sizes."""
    counts = Counter()
    for texts, name in commands_of(planned, "finetune"):
        counts[texts, *re.fullmatch(r".+\.p(\d)\..+\.s(\d)", name).groups()] += 1
    assert counts == {
        # arms, ablations, half the learning rate, depths, large batches with few pairs among them, more of them and what begins with one
        ("", "1", "1"): 5 * 8 + 5 * 2 + 6 + 5 + 12 + 7 * 6 + 6 * 4, ("", "1", "2"): 5 * 8 + 12 + 7 * 6, ("", "1", "3"): 5 * 8 + 12 + 7 * 6,
        ("", "2", "1"): 4 * 2 + 7 + 7 * 2, ("", "3", "1"): 4 * 2 + 7 * 2, **{("bible.", "1", seed): 4 * 4 for seed in "123"},
    }  # fmt: skip
    judged = Counter(
        re.fullmatch(r"(?:\w+)\.(.+)\.(?:in|out)\.(.+)", name).groups() for _, name in commands_of(planned, "understand")
    )
    assert [judged["veco", f"p{seed}.s1"] for seed in (1, 2, 3)] == [7, 7, 7] and judged["random", "p1.s3"] == 3
    assert judged["xlme", "p1.s1"] == 5 and judged["no-tlm", "p2.s1"] == 2 and judged["xlme", "p2.s1"] == 0
    assert judged["veco-8", "p1.s1"] == 6 and judged["xlm-8", "p1.s1"] == 4 and judged["veco-8", "p2.s1"] == 0


def test_a_first_job_that_nobody_needs_any_more_is_not_run(tmp_path):
    jobs = "job a '' work.sh; job b a work.sh; job c '' work.sh; ENDED[b]=1; leave_out_unneeded; list_jobs"
    result = sourced(tmp_path / "out", f"source {RECIPES}/lib/jobs.sh; {jobs}")
    assert result.stdout.splitlines()[-3:] == ["a: ended", "b: ended", "c: to do"], result.stderr
