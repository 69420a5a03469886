# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Made-up lines of results."""


def translated(arm, data, pretraining, seed, bleu, **more):
    settings = {"arm": arm, "data": data, "pretraining": str(pretraining), "seed": str(seed)}
    return {"kind": "translation", **settings, "sacrebleu": bleu, "updates": 300, "seconds": 600, **more}
