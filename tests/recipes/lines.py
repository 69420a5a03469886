# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Made-up lines of results and of logs."""


def translated(arm, data, pretraining, seed, bleu, **more):
    settings = {"arm": arm, "data": data, "pretraining": str(pretraining), "seed": str(seed)}
    return {"kind": "translation", **settings, "sacrebleu": bleu, "updates": 300, "seconds": 600, **more}


def validated(losses) -> str:
    """The log of a training with these validation losses, of every 50 updates."""
    line = "2026-11-23 20:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss {} | num_updates {}\n"
    return "".join(line.format(loss, 50 * number) for number, loss in enumerate(losses, 1))
