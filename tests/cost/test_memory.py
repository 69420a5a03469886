# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The estimate of memory for a CPU and for a GPU, whose attention keeps no weights."""

import pytest
from conftest import make_dictionary

from veco_fairseq.cost.memory import Batch, training_memory
from veco_fairseq.models.base import architecture
from veco_fairseq.modules import masked_loss

BATCH = Batch(pairs=3, length=256, share=0.25, tlm=False)
WEIGHTS = 2 * 3 * 4 * 256 * 256  # of one attention: sequences, heads, queries, keys


def activations(device, **options):
    memory = training_memory(architecture("veco_tiny", dropout=0.0, **options), make_dictionary(), BATCH, device=device)
    return memory.activations


def test_a_gpu_keeps_no_weights_of_attention():
    """A CPU keeps three fp32 numbers for each: the softmax, dropout's factor, and what is left of them."""
    attentions = 3 + 3 + 3  # each layer's self-attention in H and in S, and its cross-attention
    more = activations("cpu", attention_dropout=0.1) - activations("cuda", attention_dropout=0.1)
    assert more / WEIGHTS == pytest.approx(attentions * 12, abs=1)


def test_dropout_of_attention_costs_a_gpu_nothing():
    assert activations("cuda", attention_dropout=0.1) == activations("cuda", attention_dropout=0.0)


def test_a_gpu_keeps_the_states_between_layers_in_fp32():
    """... under autocast, where a CPU has them in bf16, and keeps the weights of attention."""
    states = 2 * 3 * 256 * 192
    in_bf16 = {"autocast": "bf16", "attention_dropout": 0.0}
    weights = (3 + 3 + 3) * WEIGHTS * 2
    assert activations("cuda", **in_bf16) - (activations("cpu", **in_bf16) - weights) > 3 * 3 * states * 2


@pytest.mark.parametrize("device, autocast, rows_at_a_time, a_logit, a_weight", [
    ("cpu", "none", 96, 4, 4), ("cpu", "bf16", 256, 2, 4), ("cuda", "none", 384, 4 + 4, 4), ("cuda", "bf16", 384, 2 + 4, 4 + 2),
])  # fmt: skip
def test_memory_of_the_loss_by_device_and_type(monkeypatch, device, autocast, rows_at_a_time, a_logit, a_weight):
    """A logit is kept in its type, and on a GPU in fp32, too, where bf16 needs a copy of the table beside its gradient.

    With room for the logits of 100 rows, 768 are eight equal parts; in bf16 there is room for 300 rows, and on a GPU for 400.
    """
    monkeypatch.setattr(masked_loss, "LOGITS_A_CHUNK", 100 * 45)
    args = architecture("veco_tiny", autocast=autocast, encoder_layers=1)
    memory = training_memory(args, make_dictionary(), Batch(pairs=24, length=32, share=0.25, tlm=False), device=device)
    rows = 2 * (2 * 24 * 32) // 4  # of H and S: a quarter of both sides' tokens
    assert memory.loss == 4 * 4 * rows * 192 + a_logit * rows_at_a_time * 45 + a_weight * 45 * 192
    assert memory.total == memory.parameters + memory.activations + memory.loss
