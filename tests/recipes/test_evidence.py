# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the evidence rests on: which run is chosen, what a line of results says, and what is averaged with what."""

import json

import pytest
import torch
from support.modules import load_script

from recipes import RECIPES
from veco_fairseq.errors import UserError

results, table, mbart = (load_script(RECIPES / f"evidence/{name}.py") for name in ("results", "table", "mbart"))


@pytest.fixture
def finetuned(tmp_path):
    """Leaves a fine-tuning with these validation losses, of every 50 updates."""

    def leave(name, *losses, done=True):
        folder = tmp_path / f"finetuned/{name}"
        folder.mkdir(parents=True)
        lines = [
            f"2026-11-23 20:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss {loss} | num_updates {50 * number}\n"
            for number, loss in enumerate(losses, 1)
        ]
        (folder / "train.log").write_text("".join(lines))
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


def test_a_line_has_what_somebody_needs_to_repeat_it(finetuned):
    name = "xlm-updates.p3.en-fr.29000.lr4e-3.dropout0.3.s2"
    out = finetuned(name, 5.0, 4.25, 4.5)
    torch.save({"model": {}, "extra_state": {"previous_training_time": 71.6}}, out / f"finetuned/{name}/checkpoint_best.pt")
    (out / "scores").mkdir()
    scores = {"sacrebleu": {"score": 31.5, "signature": "tok:13a"}, "chrf": {"score": 55.25, "signature": "nc:6"}}
    (out / f"scores/{name}.json").write_text(json.dumps(scores))
    line = results.line(out, name)
    assert line.pop("commit")
    assert line == {
        "arm": "xlm-updates", "pretraining": "3", "data": "en-fr.29000", "lr": "4e-3", "dropout": "0.3", "seed": "2",
        "updates": 100, "valid_loss": 4.25, "sacrebleu": 31.5, "chrf": 55.25, "signatures": ["tok:13a", "nc:6"], "seconds": 72,
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
    file.write_text("{}\n")
    with pytest.raises(UserError, match="line 1: is not a line of results"):
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
