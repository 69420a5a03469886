#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Write the demo's report.json, report.md and two pictures from what its stages left."""

import json

from veco_fairseq.arguments import INPUT, Parser
from veco_fairseq.cli import run
from veco_fairseq.curves import read_curve
from veco_fairseq.files import read_lines, write_text
from veco_fairseq.inference.pretrained import load_pretrained
from veco_fairseq.plots import plot_attention, plot_curves

ARMS = ("veco", "random")
LEARNT = 0.3  # bits: so much below H, S is no chance


def verdict(bits: dict[str, float]) -> str:
    """What H and S, bits a hidden token, say of the cross-attention, which S has and H has not."""
    below = round(bits["h"] - bits["s"], 2)
    learnt = "has learnt" if below >= LEARNT else "has not yet learnt"
    return f"S is {abs(below):.2f} bits {'below' if below >= 0 else 'above'} H: the cross-attention {learnt} to look"


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("out", type=INPUT, help="the folder of demo.sh")
    out = parser.parse_args().out
    scores = {arm: json.loads((out / f"scores/finetune.{arm}.s1.json").read_text())["sacrebleu"] for arm in ARMS}
    seconds = {}
    for stage, took in (line.split("\t") for line in read_lines(out / "seconds.tsv")):
        seconds[stage] = max(float(took), seconds.get(stage, 0.0))

    curves = {arm: read_curve(out / f"logs/finetuning-{arm}.log", "ppl") for arm in ARMS}
    names = {"veco": "from VECO", "random": "from random weights"}
    named = {f"{names[arm]} (at the end {scores[arm]['score']:.1f} BLEU)": curves[arm] for arm in ARMS}
    curve, attention = out / "learning_curve.png", out / "attention.png"
    axes = {"xlabel": "updates of fine-tuning", "ylabel": "perplexity of a token of the validation set"}
    plot_curves(named, **axes, title="Fine-tuning on the translation from aa to bb", output=curve, log=True)

    pretrained = load_pretrained(str(out / "checkpoints/camlm/checkpoint_last.pt"), cpu=True)
    source, target = (pretrained.encode(next(read_lines(out / f"raw/test.{lang}"))) for lang in ("aa", "bb"))
    last = pretrained.depth - 1
    weights = pretrained.cross_attention(target, source, last)
    rows, columns = pretrained.tokens(target[0]), pretrained.tokens(source[0])
    title = f"Cross-attention of the last layer ({last})\nafter pre-training: bb looks at aa"
    plot_attention(weights, rows, columns, title=title, names=("x, in bb", "y, in aa"), output=attention)
    bits = {term: read_curve(out / "logs/pretraining.log", f"bitext_{term}_loss")[-1][1] for term in "hs"}

    report = {
        "bleu": {arm: round(scores[arm]["score"], 2) for arm in ARMS},
        "signature": scores["veco"]["signature"],
        "bits": bits,
        "seconds": seconds,
        "parameters": sum(parameter.numel() for parameter in pretrained.model.parameters()),
        "finetuning_updates": curves["veco"][-1][0],
    }
    markdown = f"""# VECO on the toy corpus

| start of fine-tuning ({report["finetuning_updates"]} updates, aa to bb) | sacreBLEU |
| --- | --- |
| converted VECO, pre-trained with CA-MLM and TLM | {report["bleu"]["veco"]:.1f} |
| random weights | {report["bleu"]["random"]:.1f} |

Signature: `{report["signature"]}`. The pre-trained model has {report["parameters"]:,} parameters.

At the end of pre-training {verdict(bits)}. (A token that is hidden costs H, which sees the rest of its own
sentence, {bits["h"]:.2f} bits, and S, which sees the translation too, {bits["s"]:.2f}; both are means over the validation
pairs aa-bb.)

Seconds: {", ".join(f"{stage} {took:.0f}" for stage, took in seconds.items())}.

![Learning curves](learning_curve.png) ![Cross-attention](attention.png)

The second picture shows the last layer's cross-attention, which is the mean over its heads, on the first sentence of the
test set. A row is a token of the sentence in bb, and the darker a square is, the more the token looks at the token of
aa below it.
"""
    for name, text in (("report.json", json.dumps(report, indent=1) + "\n"), ("report.md", markdown)):
        write_text(out / name, text)


if __name__ == "__main__":
    run(main)
