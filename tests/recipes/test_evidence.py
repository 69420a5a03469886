# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the evidence rests on: which run is chosen, what a line of results says, and what is averaged with what."""

import json
import shlex
import sys
from types import SimpleNamespace

import pytest
import torch
from support.modules import load_script

from recipes import RECIPES, TABLE
from recipes.lines import validated
from veco_fairseq.cost import flops
from veco_fairseq.errors import UserError

sys.path.insert(0, str(RECIPES / "evidence"))  # the scripts import each other
EXPECTED = {part.split("\n", 1)[0].removeprefix("$ "): part.splitlines()[1:] for part in TABLE.read_text().split("\n\n")}
results, table, mbart, plots = (load_script(RECIPES / f"evidence/{name}.py") for name in ("results", "table", "mbart", "plots"))


@pytest.fixture
def finetuned(tmp_path):
    """Leaves a fine-tuning with these validation losses, of every 50 updates."""

    def leave(name, *losses, done=True):
        folder = tmp_path / f"finetuned/{name}"
        folder.mkdir(parents=True)
        (folder / "train.log").write_text(validated(losses))
        command = (
            "fairseq-train {0}/captions --user-dir {1}/veco_fairseq --adam-betas \\(0.9\\,\\ 0.98\\) --seed 1 --save-dir x y "
        )
        (tmp_path / f"finetuned/{name}.begun").write_text("logged l " + command.format(tmp_path, results.REPOSITORY))
        if done:
            (tmp_path / f"finetuned/{name}.done").write_text("")
        return tmp_path

    return leave


def test_validation_chooses_among_the_first_seeds_that_have_ended(finetuned):
    finetuned("veco.p1.en-de.2000.lr1e-3.dropout0.1.s1", 5.0, 4.5, 4.7)
    finetuned("veco.p1.en-de.2000.lr2e-3.dropout0.3.s1", 5.2, 4.6, 4.4)
    finetuned("veco.p1.en-de.2000.lr9e-3.dropout0.1.s2", 1.0)  # of another seed,
    finetuned("veco.p2.en-de.2000.lr8e-3.dropout0.1.s1", 1.0)  # of another pre-training,
    finetuned("veco-mono.p1.en-de.2000.lr7e-3.dropout0.1.s1", 1.0)  # of another arm,
    finetuned("veco.p1.en-de.29000.lr6e-3.dropout0.1.s1", 1.0)  # of other data,
    out = finetuned("veco.p1.en-de.2000.lr5e-3.dropout0.1.s1", 1.0, done=False)  # and one that has not ended
    best = results.chosen(results.finished(out), "veco", "en-de.2000")
    assert (best.settings["lr"], best.settings["dropout"], best.best) == ("2e-3", "0.3", (4.4, 150))
    with pytest.raises(UserError, match="xlm, en-de.2000: no fine-tuning to choose from has ended"):
        results.chosen(results.finished(out), "xlm", "en-de.2000")
    grid = results.grid_of(results.finished(out), "veco", "en-de.2000")
    assert {run.settings["lr"]: run.best[0] for run in grid} == {"1e-3": 4.5, "2e-3": 4.4}


def test_a_line_has_what_somebody_needs_to_repeat_it(finetuned, monkeypatch):
    monkeypatch.setattr(flops, "count_operations", lambda checkpoint, most: SimpleNamespace(total=9e12))
    name = "xlm-updates.p3.en-fr.29000.lr4e-3.dropout0.3.s2"
    out = finetuned(name, 5.0, 4.25, 4.5)
    torch.save({"model": {}, "extra_state": {"previous_training_time": 71.6}}, out / f"finetuned/{name}/checkpoint_best.pt")
    (out / "scores").mkdir()
    scores = {
        "sacrebleu": {"score": 31.5, "signature": "tok:13a", "details": "BP = 0.875"},
        "chrf": {"score": 55.25, "signature": "nc:6"},
    }
    (out / f"scores/{name}.json").write_text(json.dumps(scores))
    speed = "Translated 1,000 sentences (30,123 tokens) in 12.3s (81.30 sentences/s, 2449.02 tokens/s)"
    (out / f"scores/{name}.log").write_text(f"INFO:fairseq_cli.generate:{speed}\n")
    line = results.translation(out, name)
    assert line.pop("commit")
    assert line == {
        "kind": "translation", "arm": "xlm-updates", "pretraining": "3", "data": "en-fr.29000", "lr": "4e-3", "dropout": "0.3", "seed": "2",
        "updates": 100, "valid_loss": 4.25, "operations": 9e12, "sacrebleu": 31.5, "chrf": 55.25, "details": "BP = 0.875",
        "signatures": ["tok:13a", "nc:6"], "seconds": 72,
        "sentences_per_second": 81.3,
        "curve": [(50, 5.0), (100, 4.25), (150, 4.5)],
        "command": "fairseq-train OUT/captions --user-dir veco_fairseq --adam-betas '(0.9, 0.98)' --seed 1",
    }  # fmt: skip


def test_the_table_has_the_mean_over_seeds_of_the_same_arm_and_data(tmp_path):
    def run(arm, data, pretraining, seed, score):
        return json.dumps({"arm": arm, "data": data, "pretraining": pretraining, "seed": seed, "sacrebleu": score}) + "\n"

    file = tmp_path / "results.jsonl"
    file.write_text(
        run("veco", "en-de.2000", "1", "1", 99.0) + run("veco", "en-de.2000", "1", "1", 20.0)  # run again: the last counts
        + run("veco", "en-de.2000", "2", "1", 23.0) + run("random", "en-de.2000", "1", "1", 7.0)
        + run("veco", "en-de.500", "1", "1", 12.0) + run("xlm", "en-cs.2000", "1", "1", 5.0)
    )  # fmt: skip
    found = table.scores(table.read_results(file), "sacrebleu")
    assert table.table(found["en-de"], "en-de") == [
        "| en-de | 500 pairs | 2,000 pairs |",
        "| --- | --- | --- |",
        "| random |  | 7.0 (1) |",
        "| VECO | 12.0 (1) | 21.5 ± 2.1 (2) |",
    ]
    assert table.table(found["en-cs"], "en-cs")[-1] == "| XLM | 5.0 (1) |"
    assert table.understood(table.read_results(file)) == []
    file.write_text("{}\n")
    with pytest.raises(UserError, match="line 1: is not a line of results"):
        table.read_results(file)
    file.write_text(json.dumps({"arm": "bert", "data": "en-de.500", "pretraining": "1", "seed": "1"}) + "\n")
    with pytest.raises(UserError, match=r"line 1: is not a line of results: remove it .no arm is called bert"):
        table.read_results(file)
    file.write_text("{}\n", encoding="utf-16")
    with pytest.raises(UserError, match="is UTF-16"):
        table.read_results(file)


def test_mbart_keeps_the_rows_of_the_translation_data():
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "a", "<2en>", "<2de>"]
    rows = torch.arange(20.0).reshape(10, 2)  # seven symbols, [en], [de], <mask>
    state = {"model": {name: rows.clone() for name in mbart.TABLES} | {"other": torch.ones(3)}, "cfg": 1}
    model = mbart.translation_model(state, symbols, ["en", "de"])["model"]
    expected = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [14, 15], [16, 17.0]])
    assert all(torch.equal(model[name], expected) for name in mbart.TABLES) and torch.equal(model["other"], torch.ones(3))
    with pytest.raises(UserError, match="has 10 rows, not 7 \\+ 1 languages \\+ <mask>"):
        mbart.translation_model(state, symbols, ["en"])


def understood(task, arm, plug):
    """The fine-tuning's command in words."""
    case = f"evidence/understand --out OUT --task {task} --arm {arm} --plug {plug} --pretraining 3 --seed 2 --results RESULTS"
    return shlex.split(EXPECTED[f"{case} -- --cpu --autocast bf16"][0])


def test_tasks_of_understanding_differ_in_the_model_alone():
    """... and plugged in, in nothing but that: a pair is two examples, so that an update has as many of them."""

    def rest(words, *options):
        words = list(words)
        for option in options:
            place = words.index(option)
            del words[place : place + 2]
        return words

    veco, xlm, random, plugged_in = (
        understood("xnli", *model) for model in (("veco", "out"), ("xlm", "out"), ("random", "out"), ("veco", "in"))
    )
    model = "OUT/checkpoints/{}.s3/checkpoint_last.pt".format
    of = [words[words.index("--pretrained") + 1] for words in (veco, xlm, random, plugged_in)]
    assert of == [model("camlm.veco"), model("mlm.xlm"), "OUT/pretrain/dict.txt", model("camlm.veco")]
    assert rest(veco, "--pretrained", "--name") == rest(xlm, "--pretrained", "--name")
    assert rest(veco, "--pretrained", "--name", "--arm") == rest(random, "--pretrained", "--name", "--arm")
    assert rest(veco, "--plug", "--name", "--batches") == rest(plugged_in, "--plug", "--name", "--batches")
    batches = [int(words[words.index("--batches") + 1]) for words in (veco, plugged_in)]
    assert batches[0] == 2 * batches[1] and {words[words.index("--seeds") + 1] for words in (veco, plugged_in)} == {"2"}
    assert len({words[words.index("--name") + 1] for words in (veco, xlm, random, plugged_in)}) == 4


def test_a_line_of_understanding_and_of_retrieval(tmp_path):
    def leave(name, content):
        (tmp_path / f"understanding/{name}").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"understanding/{name}").write_text(content if isinstance(content, str) else json.dumps(content))

    figures = {"de": {"f1": 40.0, "accuracy": 50.0}, "en": {"f1": 60.0, "accuracy": 80.0}}
    leave("udpos/scores/xlm-updates.out.p2.s3.json", {"split": "test", "seeds": [figures]})
    leave("udpos/checkpoints/xlm-updates.out.p2.s3.s3/grid.json", {"lr5e-4": 61.5})
    leave("udpos/checkpoints/xlm-updates.out.p2.s3.s3.begun", f"fairseq-train {tmp_path}/d --seed 1 ")
    line = results.judged(tmp_path, "udpos/xlm-updates.out.p2.s3")
    assert line.pop("commit")
    assert line == {
        "kind": "understanding", "task": "udpos", "arm": "xlm-updates", "plug": "out", "pretraining": "2", "seed": "3", "score": 50.0,
        "figures": figures, "grid": {"lr5e-4": 61.5}, "command": "fairseq-train OUT/d --seed 1",
    }  # fmt: skip
    layers = {"de": {"0": [0.1, 0.2], "3": [0.5, 0.25]}, "fr": {"0": [0.1, 0.2], "3": [0.7, 0.75]}}
    leave("tatoeba/scores/veco.out.p3.s1.json", {"score": "csls", "neighbours": 10, "accuracy": {**layers, "mean": layers["de"]}})
    line = results.judged(tmp_path, "tatoeba/veco.out.p3.s1")
    assert (line["kind"], line["score"], line["layers"]["de"]["3"]) == ("retrieval", 50.0, [0.5, 0.25])
    assert "csls" in line["note"] and "grid" not in line and "command" not in line
    with pytest.raises(UserError, match="is not there: run understand.sh first"):
        results.judged(tmp_path, "tatoeba/veco.out.p2.s1")


def test_the_table_of_understanding_keeps_tasks_and_plugs_apart(tmp_path):
    def run(kind, task, arm, plug, pretraining, score):
        return {"kind": kind, "task": task, "arm": arm, "plug": plug, "pretraining": pretraining, "seed": "1", "score": score}

    runs = [
        run("understanding", "xnli", "veco", "in", "1", 51.0), run("understanding", "xnli", "veco", "in", "2", 53.0),
        run("understanding", "xnli", "veco", "out", "1", 48.0), run("retrieval", "tatoeba", "veco", "out", "1", 16.0),
        run("retrieval", "tatoeba", "xlm", "out", "1", 9.0), run("retrieval", "tatoeba", "xlm", "out", "1", 20.0),
    ]  # fmt: skip
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in runs))
    assert table.understood(table.read_results(file)) == [
        "| | XNLI | Tatoeba |",
        "| --- | --- | --- |",
        "| XLM |  | 20.0 (1) |",
        "| VECO | 48.0 (1) | 16.0 (1) |",
        "| VECO, plugged in | 52.0 ± 1.4 (2) |  |",
    ]


def test_arms_without_an_ingredient_differ_from_veco_in_that_alone():
    """Options that are given twice count as they are given last; all have as many updates, and VECO's learning rate."""

    def options(arm):
        words = shlex.split(EXPECTED[f"evidence/train --out OUT --arm {arm} --seed 2 -- --cpu"][0])
        found = {}
        for word, value in zip(words, [*words[1:], "--"]):
            if word.startswith("--"):
                found[word] = None if value.startswith("--") else value
        assert found.pop("--save-dir") == f"OUT/checkpoints/camlm.{arm}.s2"
        return found

    veco = options("veco")
    assert veco["--bitext-mask-prob"] == veco["--bitext-mask-spread"] == "0.5"
    for arm, changed in {
        "no-stop": {"--no-stop-gradient": None}, "no-tlm": {"--no-tlm": None},
        "no-bitext-s": {"--s-terms": "mono"}, "no-mono-s": {"--s-terms": "bitext"},
        "mask-0.15": {"--bitext-mask-prob": "0.15", "--bitext-mask-spread": "0"},
        "mask-0.25": {"--bitext-mask-prob": "0.25", "--bitext-mask-spread": "0"}, "mask-0.5": {"--bitext-mask-spread": "0"},
    }.items():  # fmt: skip
        assert options(arm) == {**veco, **changed}, arm
    large = {"--mono-batch-size": "64", "--bitext-batch-size": "256", "--max-tokens": "131072"}  # not 8, 32 and 16,384
    assert options("veco-8") == {**veco, **large, "--total-num-update": "1900", "--max-update": "1900"}
    conversion, training = [
        line for line in EXPECTED["evidence/finetune --out OUT --arm no-tlm --data en-de.2000 --pretraining 3 -- --cpu"]
        if "results.py" not in line
    ]  # fmt: skip
    assert "OUT/checkpoints/camlm.no-tlm.s3/checkpoint_last.pt" in conversion and "OUT/converted/no-tlm.p3.pt" in training
    (choice,) = (line for line in EXPECTED["evidence/finetune --out OUT --arm no-tlm --data en-de.2000 --pretraining 3 -- --cpu"]
                 if "results.py" in line)  # fmt: skip
    assert choice.strip().endswith("OUT best veco en-de.2000")


def test_the_beginning_of_veco_is_cut_off_and_nothing_else():
    """Its updates are then the first ones of veco, whose learning rate goes by all of them."""
    veco, begun = (EXPECTED[f"evidence/train --out OUT --arm {arm} --seed 2 -- --cpu"][0] for arm in ("veco", "veco-begun"))
    assert begun.replace("veco-begun", "veco").replace("--max-update 200 ", "") == veco


def test_decoders_of_one_pretraining_differ_in_their_layers_alone():
    def conversion(arm):
        *_, line, _ = EXPECTED[f"evidence/finetune --out OUT --arm {arm} --data en-de.2000 --pretraining 3 --seed 2 -- --cpu"]
        words = shlex.split(line)
        assert words[words.index("--checkpoint") + 1] == "OUT/checkpoints/camlm.deep.s3/checkpoint_last.pt"
        return [words[words.index(option) + 1] for option in ("--decoder-layers", "--layer-selection", "--output")]

    def training(arm):
        line = EXPECTED[f"evidence/finetune --out OUT --arm {arm} --data en-de.2000 --pretraining 3 --seed 2 -- --cpu"][-1]
        layers = conversion(arm)[0]
        assert f" --encoder-layers 6 --decoder-layers {layers} --finetune-from-model {conversion(arm)[2]} " in line
        return line.replace(conversion(arm)[2], "").replace(arm, "").replace(f"--decoder-layers {layers}", "")

    chosen = {arm: conversion(arm) for arm in ("deep-last-3", "deep-first-1", "deep-spread-2", "deep-all-6", "deep-random-3")}
    assert [decoder[:2] for decoder in chosen.values()] == [
        ["3", "last"], ["1", "first"], ["2", "2,5"], ["6", "last"], ["3", "0,1,3"],
    ]  # fmt: skip
    assert len({decoder[2] for decoder in chosen.values()}) == 5 and chosen["deep-random-3"][2].endswith(".s2.pt")
    assert len({training(arm) for arm in chosen}) == 1
    for arm in chosen:
        choice = EXPECTED[f"evidence/finetune --out OUT --arm {arm} --data en-de.2000 --pretraining 3 --seed 2 -- --cpu"][0]
        assert choice.strip().endswith("OUT best deep-last-3 en-de.2000")


def test_languages_with_little_text_have_a_folder_and_texts_of_their_own():
    """No test book is in a training text, and no checkpoint, grid or reference of the captions gets into it."""
    made = EXPECTED["evidence/prepare_bible --out OUT --local LOCAL"]
    texts = dict(line.removeprefix("> OUT/bible/raw/").split(": ", 1) for line in made if line.startswith("> OUT/bible/raw/"))
    for name, text in texts.items():
        split, _, rest = name.partition(".")
        lang = rest.rsplit(".", 1)[-1]
        pair = {lang, *rest.split(".")[0].split("-")}
        source = "new testament" if pair & {"sw", "eu"} else "bible"
        assert f"{'train' if split == 'verses' else split}.{lang} one" in text, name
        assert text.startswith(source), name
        assert ("|  |" in text) == ("-" not in name), name  # documents keep the blank lines between chapters
    mine = [words for case, lines in EXPECTED.items() if "--set bible" in case for words in map(shlex.split, lines)]
    paths = [word for words in mine for word in words if word.startswith("OUT")]
    assert len(paths) > 20 and all(path.startswith("OUT/bible") for path in paths)


def test_the_curves_have_h_minus_s_of_trainings_that_have_s(tmp_path):
    def log(name, *updates):
        lines = [
            "2026-11-23 20:00:00 | INFO | train_inner | epoch 001: 1 / 9 bitext_h_loss={}, bitext_s_loss={}, num_updates={}\n".format(
                *update
            )
            for update in updates
        ]
        (tmp_path / "jobs").mkdir(exist_ok=True)
        (tmp_path / f"jobs/{name}.log").write_text("".join(lines).replace("bitext_s_loss=None, ", ""))

    log("train.veco.s1", (9, 9.5, 20), (8, 7.5, 40), (7, 6, 60), (6, 4.5, 80))
    log("train.veco.s2", (9, 1, 20))
    log("train.no-stop.s1", (9, 8, 20), (8, 6, 40))
    log("train.xlm.s1", (9, None, 20))
    log("grid.veco.en-de.2000.lr1e-3", (9, 1, 20))
    assert plots.curves(tmp_path, "bitext", 2) == {"veco": [(40, 0.0), (80, 1.25)], "no-stop": [(40, 1.5)]}
    assert plots.curves(tmp_path, "mono", 2) == {}
