# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The demo's report, from made-up scores, logs and seconds: each number in its own place, of the end and not the beginning."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY
from support.modules import load_script


def validation(metrics: dict[str, float], updates: int) -> str:
    figures = " | ".join(f"{name} {value}" for name, value in metrics.items())
    return f"2026-11-25 20:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | {figures} | num_updates {updates}\n"


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """What the stages leave; the pictures' data are caught, and the model looks at its sentences as they are encoded."""
    for folder in ("scores", "logs", "raw", "checkpoints/camlm"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkpoints/camlm/checkpoint_last.pt").touch()
    for arm, score, ppl in (("veco", 31.2583, 2.5), ("random", 8.14, 9.5)):
        found = {"sacrebleu": {"score": score, "signature": f"signature of {arm}"}}
        (tmp_path / f"scores/finetune.{arm}.s1.json").write_text(json.dumps(found))
        lines = validation({"ppl": 40.5}, 10) + validation({"ppl": ppl}, 120)
        (tmp_path / f"logs/finetuning-{arm}.log").write_text(lines)
    of = [{"bitext_h_loss": 5.75, "bitext_s_loss": 5.5}, {"bitext_h_loss": 4.75, "bitext_s_loss": 3.25}]
    (tmp_path / "logs/pretraining.log").write_text(validation(of[0], 100) + validation(of[1], 200))
    (tmp_path / "seconds.tsv").write_text("data\t7.4\npre-training\t90.6\ndata\t0.2\n")  # made again in a moment
    (tmp_path / "raw/test.aa").write_text("eins zwei\ndrei\n")
    (tmp_path / "raw/test.bb").write_text("one two three\nfour\n")
    calls = SimpleNamespace(curves=None, attention=None, looked=None, loaded=None)
    script = load_script(REPOSITORY / "scripts/demo_report.py")

    def cross_attention(queries, keys, layer):
        calls.looked = (queries.shape[1], keys.shape[1], layer)
        return torch.rand(queries.shape[1], keys.shape[1])

    pretrained = SimpleNamespace(
        model=SimpleNamespace(parameters=lambda: [torch.zeros(30, 50), torch.zeros(7)]),
        depth=3,
        encode=lambda line: torch.arange(len(line.split())).unsqueeze(0),
        tokens=lambda ids: [f"piece {number} of {len(ids)}" for number in ids.tolist()],
        cross_attention=cross_attention,
    )
    monkeypatch.setattr(script, "load_pretrained", lambda path, cpu: setattr(calls, "loaded", path) or pretrained)
    monkeypatch.setattr(script, "plot_curves", lambda curves, **options: setattr(calls, "curves", (curves, options)))
    monkeypatch.setattr(script, "plot_attention", lambda *data, **options: setattr(calls, "attention", (data, options)))
    monkeypatch.setattr(sys, "argv", ["demo_report.py", str(tmp_path)])
    script.main()
    return calls


def test_the_numbers_are_those_of_the_end(demo, tmp_path):
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "bleu": {"veco": 31.26, "random": 8.14}, "signature": "signature of veco", "bits": {"h": 4.75, "s": 3.25},
        "seconds": {"data": 7.4, "pre-training": 90.6}, "parameters": 1507, "finetuning_updates": 120,
    }  # fmt: skip


def test_each_number_stands_in_its_row(demo, tmp_path):
    text = (tmp_path / "report.md").read_text()
    assert "| start of fine-tuning (120 updates, aa to bb) | sacreBLEU |" in text
    assert "| converted VECO, pre-trained with CA-MLM and TLM | 31.3 |\n| random weights | 8.1 |\n" in text
    assert "Signature: `signature of veco`. The pre-trained model has 1,507 parameters." in text
    assert "S is 1.50 bits below H" in text and "sentence, 4.75 bits, and S, which sees the translation too, 3.25;" in text
    assert "Seconds: data 7, pre-training 91.\n" in text


def test_the_pictures_are_of_both_arms_and_of_bb_that_looks_at_aa(demo, tmp_path):
    curves, options = demo.curves
    assert curves == {
        "from VECO (at the end 31.3 BLEU)": [(10, 40.5), (120, 2.5)], "from random weights (at the end 8.1 BLEU)": [(10, 40.5), (120, 9.5)],
    }  # fmt: skip
    assert options == {
        "output": tmp_path / "learning_curve.png", "log": True, "title": "Fine-tuning on the translation from aa to bb",
        "xlabel": "updates of fine-tuning", "ylabel": "perplexity of a token of the validation set",
    }  # fmt: skip
    (weights, rows, columns), options = demo.attention
    assert demo.looked == (3, 2, 2) and weights.shape == (3, 2)
    assert rows == [f"piece {number} of 3" for number in range(3)] and columns == ["piece 0 of 2", "piece 1 of 2"]
    assert options["output"] == tmp_path / "attention.png" and options["names"] == ("x, in bb", "y, in aa")
    assert options["title"] == "Cross-attention of the last layer (2)\nafter pre-training: bb looks at aa"
    assert demo.loaded == f"{tmp_path}/checkpoints/camlm/checkpoint_last.pt"  # the pre-trained model's
