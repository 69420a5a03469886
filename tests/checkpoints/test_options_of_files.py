# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The options that a checkpoint holds, in each form that fairseq has saved them in."""

import argparse

from fairseq.models.transformer import TransformerConfig

from veco_fairseq.checkpoints.reading import options_of


def test_where_the_options_are():
    """In a group of their own, as a dict or a Namespace, or, in an old checkpoint, all in one."""
    old, new = argparse.Namespace(a=1), {"model": {"a": 2}, "task": argparse.Namespace(b=3), "criterion": None}
    for state, group, expected in (
        ({"args": old, "cfg": new}, "model", argparse.Namespace(a=2)),
        ({"args": None, "cfg": new}, "task", argparse.Namespace(b=3)),
        ({"args": old, "cfg": new}, "criterion", old),
        ({"args": {"a": 1}, "cfg": None}, "model", old),
        ({"args": None, "cfg": new}, "criterion", None),
        ({}, "model", None),
    ):
        assert options_of(state, group) == expected


def test_the_options_of_fairseq_hydra_train():
    """... are in groups; those below ``decoder:`` win over the defaults beside them, as in fairseq."""
    saved = {"_name": "transformer", "decoder_layers": 6, "decoder_output_dim": 512, "dropout": 0.3, "encoder": {"layers": 2}}
    saved |= {"decoder": {"embed_dim": 64, "layers": 3, "input_dim": 32}, "quant_noise": {"pq": 0.5}}
    found = options_of({"cfg": {"model": saved, "task": {"_name": "translation"}}}, "model")
    assert (found.arch, found._name, found.dropout) == ("transformer", "transformer", 0.3)
    assert (found.encoder_layers, found.decoder_layers, found.quant_noise_pq) == (2, 3, 0.5)
    assert (found.decoder_embed_dim, found.decoder_input_dim, found.decoder_output_dim) == (64, 32, 64)
    other = {"_name": "transformer", "arch": "veco_mt_tiny", "decoder_output_dim": 512, "decoder": {"layers": 1}}
    found = options_of({"cfg": {"model": other}}, "model")
    assert (found.arch, found.decoder_layers, found.decoder_output_dim) == ("veco_mt_tiny", 1, 512)


def test_flat_options_are_what_fairseq_reads_in_groups():
    saved = {"dropout": 0.3, "share_decoder_input_output_embed": True}
    saved["encoder"] = {"embed_dim": 64, "ffn_embed_dim": 128, "layers": 2, "attention_heads": 4, "learned_pos": True}
    saved["decoder"] = {"embed_dim": 96, "layers": 3, "input_dim": 48, "output_dim": 32}
    flat = vars(options_of({"cfg": {"model": saved}}, "model"))
    del flat["encoder"], flat["decoder"]
    found, expected = (TransformerConfig.from_namespace(argparse.Namespace(**options)) for options in (flat, saved))
    assert found == expected and (found.encoder.layers, found.decoder.output_dim) == (2, 32)
