# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The lines of results that the comparisons leave, and the commands that add and read them."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from conftest import error_line, lines_of
from support.modules import load_script

from recipes import RECIPES
from recipes.lines import validated
from veco_fairseq.cost import flops
from veco_fairseq.errors import UserError

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
figures, mbart, page, plots, results, table = (
    load_script(RECIPES / f"evidence/{name}.py") for name in ("figures", "mbart", "page", "plots", "results", "table")
)


def finetuned(out, name, *losses, seconds=60.4, speeds=()):
    """A fine-tuning that has ended and was scored, with these validation losses of every 50 updates."""
    folder = out / f"finetuned/{name}"
    folder.mkdir(parents=True)
    (folder / "train.log").write_text(validated(losses))
    torch.save({"model": {}, "extra_state": {"previous_training_time": seconds}}, folder / "checkpoint_best.pt")
    for ending, text in (("begun", f"logged l fairseq-train {out}/d "), ("done", "")):
        folder.with_name(f"{name}.{ending}").write_text(text)
    (out / "scores").mkdir(exist_ok=True)
    score = {"sacrebleu": {"score": 31.5, "signature": "a", "details": "BP = 1"}, "chrf": {"score": 55.25, "signature": "b"}}
    (out / f"scores/{name}.json").write_text(json.dumps(score))
    (out / f"scores/{name}.log").write_text("".join(f"in 12.3s ({speed} sentences/s, 2.0 tokens/s)\n" for speed in speeds))


def called(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["a script", *map(str, arguments)])
    script.main()


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """What a fine-tuning's operations are, which has no model here: 700 million for each batch that is looked at."""
    monkeypatch.setattr(flops, "count_operations", lambda checkpoint, most: SimpleNamespace(total=7e8 * most))


RUNS = (
    "veco.p1.en-de.2000.lr1e-3.dropout0.1.s1",
    "veco.p1.en-de.2000.lr2e-3.dropout0.1.s1",
    "veco.p1.en-de.2000.lr2e-3.dropout0.1.s2",
)


def test_a_line_that_cannot_be_made_leaves_no_empty_file(tmp_path, monkeypatch):
    """... which compare.sh would take for results."""
    with pytest.raises((UserError, OSError)):
        called(results, monkeypatch, tmp_path, "record", RUNS[0], tmp_path / "new/results.jsonl")
    assert not (tmp_path / "new/results.jsonl").exists()


def test_the_first_seeds_run_has_the_grid_and_the_others_have_none(tmp_path):
    finetuned(tmp_path, RUNS[0], 5.0, 4.5, 4.5, speeds=(70.5, 81.25))
    finetuned(tmp_path, RUNS[2], 5.0, 3.5)
    assert "grid" not in results.translation(tmp_path, RUNS[0])  # which one alone is not
    finetuned(tmp_path, RUNS[1], 4.75, seconds=60.6)
    line = results.translation(tmp_path, RUNS[0])
    assert line["grid"] == {"lr1e-3.dropout0.1": 4.5, "lr2e-3.dropout0.1": 4.75}
    # the last of equal losses, whose checkpoint is kept, and the last of several translations
    assert (line["updates"], line["seconds"], line["sentences_per_second"], line["operations"]) == (150, 60, 81.25, 1.4e11)
    other = results.translation(tmp_path, RUNS[2])
    assert "grid" not in other and (other["valid_loss"], other["updates"], other["sentences_per_second"]) == (3.5, 100, None)
    assert results.translation(tmp_path, RUNS[1])["seconds"] == 61
    with pytest.raises(UserError, match="is not there, or has not ended: run finetune.sh first"):
        results.translation(tmp_path, RUNS[2].replace(".s2", ".s3"))
    with pytest.raises(UserError, match="finetuned/mbart.p1.en-de.500.lr1e-3.dropout0.1.s1: is not there"):
        results.translation(tmp_path, "mbart.p1.en-de.500.lr1e-3.dropout0.1.s1")  # before the others by name


def test_a_command_is_told_without_the_folder_that_it_writes(tmp_path):
    """Of a training with a file .command, also the words behind it; in .begun, checksums stand there."""
    words = f"logged l fairseq-train {tmp_path}/d --lr 1 --save-dir {tmp_path}/s --seed 2"
    for ending, told in (("begun", "fairseq-train OUT/d --lr 1"), ("command", "fairseq-train OUT/d --lr 1 --seed 2")):
        (tmp_path / f"a.{ending}").write_text(words)
        assert results.command(tmp_path, "a") == told


def test_of_equal_losses_the_one_with_fewer_updates_is_chosen(tmp_path):
    finetuned(tmp_path, RUNS[0], 5.0, 4.5)
    finetuned(tmp_path, RUNS[1], 4.5, 4.75)
    assert results.chosen(results.finished(tmp_path), "veco", "en-de.2000").name == RUNS[1]


def test_the_commands_that_add_and_read_lines(tmp_path, monkeypatch, capsys):
    finetuned(tmp_path, RUNS[0], 5.0, 4.5)
    finetuned(tmp_path, RUNS[1], 4.0)
    file = tmp_path / "new folder/results.jsonl"
    monkeypatch.chdir(tmp_path)  # which is in no repository
    called(results, monkeypatch, tmp_path, "best", "veco", "en-de.2000")
    called(results, monkeypatch, tmp_path, "best", "veco", "en-de.2000", "--results", file)  # which is not there yet
    for name, more in ((RUNS[0], ()), (RUNS[1], ("--set", "bible"))):
        called(results, monkeypatch, tmp_path, "record", name, file, *more)
    called(results, monkeypatch, tmp_path, "best", "veco", "en-de.2000", "--results", file)
    called(results, monkeypatch, tmp_path, "ended", file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=RECIPES).stdout
    assert all(head.startswith(line["commit"]) and 6 < len(line["commit"]) < 20 for line in lines)
    assert [(line["lr"], line.get("set"), line["kind"]) for line in lines] == [
        ("1e-3", None, "translation"), ("2e-3", "bible", "translation"),
    ]  # fmt: skip
    # the same run of two sets is two runs
    names = ["finetune.veco.p1.en-de.2000.s1", "evaluate.veco.p1.en-de.2000.s1", "grid.veco.en-de.2000"]
    names += [f"bible.{name}" for name in names]
    assert capsys.readouterr().out.splitlines() == ["2e-3 0.1", "2e-3 0.1", "1e-3 0.1", *names]


def test_only_a_line_with_a_grid_tells_what_validation_preferred(tmp_path):
    """... of this arm and data: other seeds have what another grid preferred."""
    file, grid = tmp_path / "results.jsonl", {"lr1e-3.dropout0.1": 4.5, "lr4e-3.dropout0.1": 4.25}
    lines = [translated("veco", "en-de.2000", 20.0, "2", lr="1e-3"), translated("veco", "en-de.500", 20.0, lr="2e-3", grid=grid),
             translated("xlm", "en-de.2000", 20.0, lr="3e-3", grid=grid), translated("veco", "en-de.2000", 20.0, lr="4e-3", grid=grid)]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert results.preferred(tmp_path, "veco", "en-de.2000", file)["lr"] == "4e-3"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines[:3]))
    with pytest.raises(UserError, match="veco, en-de.2000: no fine-tuning to choose from has ended"):
        results.preferred(tmp_path, "veco", "en-de.2000", file)


@pytest.mark.parametrize("folder, arm, seed", [
    ("camlm.veco-mono.s2", "veco-mono", "2"), ("mlm.xlm.s1", "xlm", "1"), ("nmt.s3", "nmt", "3"),
    ("nmt-more.s2", "nmt-more", "2"), ("xlme.s1", "xlme", "1"),
])  # fmt: skip
def test_a_line_of_cost(tmp_path, monkeypatch, folder, arm, seed):
    checkpoint = tmp_path / f"checkpoints/{folder}/checkpoint_last.pt"
    checkpoint.parent.mkdir(parents=True)
    torch.save({"model": {}, "extra_state": {"previous_training_time": 71.6}}, checkpoint)
    counted = {(str(checkpoint), 200): SimpleNamespace(updates=30, total=4e12)}
    monkeypatch.setattr(flops, "count_operations", lambda *asked: counted[asked])
    called(results, monkeypatch, tmp_path, "record", f"cost/{folder}", tmp_path / "results.jsonl")
    line = json.loads((tmp_path / "results.jsonl").read_text())
    assert line.pop("commit")
    assert line == {"kind": "cost", "arm": arm, "seed": seed, "updates": 30, "operations": 4e12, "seconds": 72}


def translated(arm, data, bleu, seed="1", **more):
    run = {"kind": "translation", "arm": arm, "data": data, "pretraining": "1", "seed": seed, "sacrebleu": bleu}
    return {**run, "updates": 300, "seconds": 600, **more}


RESULTS = [
    translated("veco", "en-de.500", 10.0), translated("veco", "en-de.2000", 24.0), translated("veco", "en-de.2000", 27.0, "2"),
    translated("random", "en-de.500", 4.0), translated("random", "en-de.2000", 15.0), translated("xlm", "en-de.500", 9.0),
    translated("veco", "en-cs.500", 1.0), translated("random", "en-cs.500", 0.5),
]  # fmt: skip


def test_the_picture_has_the_means_over_the_pairs(tmp_path, drawn):
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in RESULTS))
    (axes,) = drawn("data-bin-recipes/evidence/table.py", file, "--plot", tmp_path / "made.png")
    assert lines_of(axes) == {"random": [(500, 4.0), (2000, 15.0)], "VECO": [(500, 10.0), (2000, 25.5)]}
    assert (axes.get_title(), axes.get_ylabel(), axes.get_xscale()) == ("en-de", "sacrebleu", "log")
    (axes,) = drawn("data-bin-recipes/evidence/table.py", file, "--page", tmp_path / "made.md", "--measured", "a machine")
    assert lines_of(axes) == {"en-de: over random weights": [(500, 6.0), (2000, 10.5)]}
    assert axes.get_ylabel() == "BLEU more" and axes.get_xscale() == "log"


def test_the_tables_are_of_all_directions_and_tasks(tmp_path, monkeypatch, capsys):
    """... in the order of the lines, and a figure of 0 is one."""
    task = {"kind": "retrieval", "arm": "xlm", "plug": "out", "pretraining": "1", "seed": "1"}
    lines = [
        translated("xlm", "en-fr.500", 0.0),
        *RESULTS,
        {**task, "task": "flores", "score": 4.0},
        {**task, "task": "pud", "score": 70.0},
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    called(table, monkeypatch, tmp_path / "results.jsonl")
    assert (
        capsys.readouterr().out
        == """\
| en-fr | 500 pairs |
| --- | --- |
| XLM | 0.0 (1) |

| en-de | 500 pairs | 2,000 pairs |
| --- | --- | --- |
| random | 4.0 (1) | 15.0 (1) |
| XLM | 9.0 (1) |  |
| VECO | 10.0 (1) | 25.5 ± 2.1 (2) |

| en-cs | 500 pairs |
| --- | --- |
| random | 0.5 (1) |
| VECO | 1.0 (1) |

| | parts of speech | FLORES |
| --- | --- | --- |
| XLM | 70.0 (1) | 4.0 (1) |
"""
    )


def test_updates_and_operations_of_fine_tuning_are_medians_of_one_direction():
    spent = [(100, 3e13), (200, 2e13), (900, 1e13)]  # of an update 3e11, 1e11 and 1.1e10
    runs = [translated("veco", "en-de.500", 1.0, str(seed), updates=updates, operations=operations)
            for seed, (updates, operations) in enumerate(spent)] + [translated("veco", "en-de.500", 1.0, "4", updates=300)]  # fmt: skip
    before = {"kind": "cost", "arm": "veco", "seed": "1", "updates": 3000, "operations": 1.26e15, "seconds": 5430}
    others = [translated("veco", "en-fr.500", 1.0, updates=7, seconds=7), {**before, "arm": "xlm"}]
    assert page.cost([*runs, before, *others])[2:] == ["| VECO | 3,000, 1.3e15 | 90 | 250, 2.5e13 |"]


def test_the_curves_of_the_arms_that_were_asked_for(tmp_path, drawn, capsys, run):
    (tmp_path / "jobs").mkdir()
    line = "2026-11-23 20:00:00 | INFO | train_inner | epoch 001: 1 / 9 bitext_h_loss={}, bitext_s_loss={}, num_updates={}\n"
    for arm, s in (("veco", 1), ("no-tlm", 2)):
        log = "".join(line.format(9, 9 - s * update / 20, update) for update in range(20, 260, 20))
        (tmp_path / f"jobs/train.{arm}.s1.log").write_text(log)
    script = "data-bin-recipes/evidence/plots.py"
    (axes,) = drawn(script, tmp_path, "--arms", "veco", "xlm", "--output", tmp_path / "made/here")
    assert lines_of(axes) == {"veco": [(240, 6.5)]}  # the mean of 1 to 12: two lines alone are no point
    picture = tmp_path / "made/here/gain-bitext.png"
    assert capsys.readouterr().out.splitlines() == [
        "xlm: no S on bitext in jobs/train.xlm.sN.log",
        f"wrote {picture}; at the end: veco 6.50",
        "veco: no S on adjacent monolingual segments in jobs/train.veco.sN.log",
        "xlm: no S on adjacent monolingual segments in jobs/train.xlm.sN.log",
    ]
    assert [path.name for path in picture.parent.iterdir()] == [picture.name]
    assert (axes.get_ylabel(), axes.get_title()) == ("H minus S (bits)", "What S knows more than H: bitext")
    (axes,) = drawn(script, tmp_path, "--lines", 6, "--output", tmp_path)
    assert lines_of(axes) == {"no-tlm": [(120, 7.0), (240, 19.0)], "veco": [(120, 3.5), (240, 9.5)]}  # all, by name
    error = error_line(run(script, tmp_path / "none", "--output", tmp_path))
    assert error.endswith("none/jobs: has no train.ARM.sN.log with S and H: run compare.sh first")


def test_mbart_is_written_without_its_optimizer(tmp_path, monkeypatch):
    rows = torch.arange(20.0).reshape(10, 2)  # of <s>, <pad>, </s>, <unk>, <2de>, <2en>, [en], [de], <mask>; the last is of none
    state = {"model": {name: rows[:9] for name in mbart.TABLES}, "last_optimizer_state": {"a": 1}, "cfg": {"kept": 1}}
    torch.save(state, tmp_path / "mbart.pt")
    (tmp_path / "dict.txt").write_text("<2de> 1\n<2en> 1\n")
    words = (tmp_path / "mbart.pt", tmp_path / "dict.txt", "--langs", "en,de", "--output", tmp_path / "made.pt")
    called(mbart, monkeypatch, *words)
    made = torch.load(tmp_path / "made.pt")
    assert (made["last_optimizer_state"], made["cfg"]) == (None, {"kept": 1})
    assert torch.equal(made["model"][mbart.TABLES[0]], rows[[0, 1, 2, 3, 7, 6]])
    assert torch.equal(state["model"][mbart.TABLES[0]], rows[:9])  # what was read is as it was
    for missing in ("--langs", "--output"):  # a message, and no traceback
        place = words.index(missing)
        with pytest.raises(SystemExit):
            called(mbart, monkeypatch, *words[:place], *words[place + 2 :])


@pytest.mark.parametrize("script, message", [
    ("evidence/plots.py out", "the following arguments are required: --output"),
    ("evidence/results.py out", "the following arguments are required: command"),
    ("xtreme/examples.py file", "one of the arguments --last --but-last --first --text --ids is required"),
])  # fmt: skip
def test_what_a_script_cannot_do_without_is_told(script, message, monkeypatch, capsys):
    name, *arguments = script.split()
    with pytest.raises(SystemExit):
        called(load_script(RECIPES / name), monkeypatch, *arguments)
    assert message in capsys.readouterr().err
