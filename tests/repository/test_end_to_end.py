# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The whole way, as the demo goes it, at the smallest size: from text to BLEU and the pictures."""

import json

import torch
from conftest import error_line, lines_of
from support.starting import recipe

from veco_fairseq.curves import read_curve
from veco_fairseq.inference.pretrained import load_pretrained
from veco_fairseq.inference.scoring import read_generate_output


def test_toy_recipe_and_report(tmp_path, run, drawn):
    out = tmp_path / "out"
    recipe("toy/prepare", "--out", out, "--words", 20, "--pairs", 150, "--mono", 60, "--finetune-pairs", 100,
           "--valid", 20, "--test", 13, "--vocab-size", 120)  # fmt: skip
    pretraining = recipe("toy/train", "--out", out, "--updates", 3, "--", "--cpu")
    assert "bitext_tlm_loss" in pretraining
    (out / "logs").mkdir()
    (out / "logs/pretraining.log").write_text(pretraining)
    for arm in ("veco", "random"):
        log = recipe("toy/finetune", "--out", out, "--arm", arm, "--updates", 2, "--", "--cpu")
        (out / "logs" / f"finetuning-{arm}.log").write_text(log)

    (out / "seconds.tsv").write_text("pretraining\t2\npretraining\t1\n")
    result = run("scripts/demo_report.py", out)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    report = json.loads((out / "report.json").read_text())
    assert set(report["bleu"]) == {"veco", "random"} and report["signature"].startswith("nrefs:1|")
    for arm, score in report["bleu"].items():
        scores = json.loads((out / f"scores/finetune.{arm}.s1.json").read_text())
        assert score == round(scores["sacrebleu"]["score"], 2)
    assert report["seconds"] == {"pretraining": 2.0} and report["finetuning_updates"] == 2
    h, s = (read_curve(out / "logs/pretraining.log", f"bitext_{term}_loss")[-1][1] for term in "hs")
    assert report["bits"] == {"h": h, "s": s}
    assert (
        f"S is {abs(h - s):.2f} bits {'below' if h >= s else 'above'} H: the cross-attention has not yet learnt to look."
        in (out / "report.md").read_text()
    )  # after 3 updates
    assert report["parameters"] > 1_000_000 and "| random weights |" in (out / "report.md").read_text()
    curve, attention = drawn("scripts/demo_report.py", out)
    expected = [(f"{name} (at the end {report['bleu'][arm]:.1f} BLEU)", arm)
                for name, arm in (("from VECO", "veco"), ("from random weights", "random"))]  # fmt: skip
    assert lines_of(curve) == {name: read_curve(out / f"logs/finetuning-{arm}.log", "ppl") for name, arm in expected}
    first = [(out / f"raw/test.{lang}").read_text().splitlines()[0] for lang in ("aa", "bb")]
    columns, rows = (
        "".join(label.get_text() for label in ticks) for ticks in (attention.get_xticklabels(), attention.get_yticklabels())
    )
    assert curve.get_yscale() == "log" and "perplexity" in curve.get_ylabel() and "updates" in curve.get_xlabel()
    assert attention.get_ylabel() == "attends from (x, in bb)" and attention.get_xlabel() == "attends to (y, in aa)"
    pretrained = load_pretrained(str(out / "checkpoints/camlm/checkpoint_last.pt"), cpu=True)
    weights = pretrained.cross_attention(*(pretrained.encode(line) for line in reversed(first)), 1)  # bb looks at aa
    assert "last layer (1)" in attention.get_title()
    assert torch.allclose(torch.tensor(attention.images[0].get_array().tolist()), weights, atol=1e-5)
    assert [columns, rows] == [f"<s>\u2581{line.replace(' ', chr(0x2581))}</s>" for line in first]
    assert {"learning_curve.png", "attention.png"} <= {path.name for path in out.iterdir()}

    checkpoint = out / "checkpoints/camlm/checkpoint_last.pt"
    counted = run("scripts/count_operations.py", checkpoint, "--sample-updates", "1")
    assert "3 updates x " in counted.stdout and counted.stderr == ""
    picture = ("--source", "a b", "--target", "c", "--output", tmp_path / "x.png")
    assert "layers 0 to 1" in error_line(run("scripts/plot_attention.py", checkpoint, *picture, "--layer", "2"))
    finetuned = out / "checkpoints/finetune.veco.s1/checkpoint_last.pt"
    assert "not a pre-trained one: give a checkpoint of --task camlm" in error_line(
        run("scripts/plot_attention.py", finetuned, *picture)
    )
    # fairseq's limit of a length depends on the batch, unless it is a constant
    limits = ("--max-len-a", "0", "--max-len-b", "12", "--cpu")
    generated = run("fairseq-generate", out / "mt.aa-bb", "--user-dir", "veco_fairseq", "--path", finetuned,
                    "--remove-bpe", "sentencepiece", *limits)  # fmt: skip
    (tmp_path / "generated").write_text(generated.stdout)
    translate = ("scripts/translate.py", finetuned, "--sentencepiece", out / "pretrain/sentencepiece.bpe.model")
    with open(out / "raw/test.aa", "rb") as source:
        translated = run(*translate, *limits, stdin=source)
    assert translated.stdout.splitlines() == read_generate_output(tmp_path / "generated") and translated.stderr == ""
    assert not (tmp_path / "x.png").exists()
    log = out / "logs/finetuning-veco.log"
    assert "no validation in it has bleu" in error_line(
        run("scripts/plot_curves.py", f"a={log}", "--metric", "bleu", "--output", tmp_path / "x.png")
    )


def test_multilingual_recipe_starts_from_an_xlm_of_its_own(tmp_path, run):
    """Documents of two languages, captions of both on top; then MLM, export, and VECO frozen, then free."""
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    (tmp_path / "captions").mkdir()
    (tmp_path / "documents").mkdir()
    for number, lang in enumerate(("en", "de")):
        verses = ["" if line % 5 == 4 else " ".join(words[(line * 7 + k * 3 + number) % 25] for k in range(6))
                  for line in range(60)]  # fmt: skip
        for folder, split, lines in (("documents", "train", verses), ("documents", "valid", verses[:15]),
                                     ("captions", "train", words), ("captions", "val", words[:5])):  # fmt: skip
            (tmp_path / folder / f"{split}.{lang}").write_text("".join(f"{line}\n" for line in lines))
    out = tmp_path / "out"
    told = recipe("multilingual/prepare", "--out", out, "--documents", tmp_path / "documents",
                  "--captions", tmp_path / "captions", "--langs", "de", "--vocab-size", 35)  # fmt: skip
    assert "already there" not in told
    assert len((out / "raw/train.en-de.de").read_text().splitlines()) == 48 + 25
    recipe("multilingual/train", "--out", out, "--xlm-updates", 1, "--frozen-updates", 1, "--updates", 2, "--", "--cpu")  # fmt: skip
    log = (out / "camlm.log").read_text()
    assert "--init-from: " in log and "only cross-attention is trained" in log and "all parameters are trained" in log
    curve = ("VECO=" + str(out / "camlm.log"), "--metric", "bitext_h_loss", "bitext_s_loss", "--output", out / "x.png")
    assert run("scripts/plot_curves.py", *curve).returncode == 0
    recipe("multilingual/train", "--out", out, "--xlm-updates", 0, "--updates", 0, "--xlme-updates", 1, "--name", "apart", "--",
           "--cpu", "--no-tlm")  # fmt: skip
    assert (out / "checkpoints/xlme.apart/checkpoint_last.pt").is_file()
    curve = ("XLM-E=" + str(out / "xlme.apart.log"), "--metric", "bitext_mrtd_recall", "--output", out / "y.png")
    assert run("scripts/plot_curves.py", *curve).returncode == 0
