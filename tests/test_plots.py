# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The curves that plot_curves.py finds in what fairseq-train printed."""

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.plots import read_curve

START = "2026-11-21 10:00:00 | INFO |"
SIMPLE = [
    f"{START} train_inner | epoch 001:     20 / 227 loss=11.9, nll_loss=11.763, ppl=3475.83, num_updates=20, lr=1e-05",
    f"{START} train_inner | epoch 001:     40 / 227 loss=8, nll_loss=7.763, ppl=nan, num_updates=40, lr=1e-05",
    f"{START} valid | epoch 001 | valid on 'valid' subset | loss 5.5 | ppl 9 | num_updates 40 | best_loss 5.5",
]
JSON = [
    f'{START} train_inner | {{"epoch": 1, "update": 0.1, "loss": "11.9", "num_updates": "20"}}',
    f'{START} train_inner | {{"epoch": 1, "update": 0.2, "loss": "8", "num_updates": "40"}}',
    f'{START} valid | {{"epoch": 1, "valid_loss": "5.5", "valid_ppl": "9", "valid_num_updates": "40"}}',
]


@pytest.mark.parametrize("lines", [SIMPLE, JSON], ids=["simple", "json"])
def test_read_curve(tmp_path, lines):
    log = tmp_path / "log"
    # killed and resumed: the lines after the checkpoint come twice
    log.write_text("\n".join([*lines, "noise", *lines[1:]]) + "\n")
    assert read_curve(log, "loss") == [(40, 5.5)]
    assert read_curve(log, "loss", training=True) == [(20, 11.9), (40, 8)]
    with pytest.raises(UserError, match="no validation of it has bleu .there is: "):
        read_curve(log, "bleu")
    with pytest.raises(UserError, match="no line on training of it has bleu .there is: "):
        read_curve(log, "bleu", training=True)
