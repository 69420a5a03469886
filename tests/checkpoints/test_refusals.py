# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checkpoints that lack a part, or have another one, are refused in a line; and what an export does without a package."""

import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from conftest import make_dictionary

from veco_fairseq.checkpoints import bart, huggingface
from veco_fairseq.checkpoints.embeddings import token_rows
from veco_fairseq.checkpoints.integrity import Records
from veco_fairseq.checkpoints.pretrained import Pretrained, read_pretrained
from veco_fairseq.checkpoints.reading import DamagedCheckpoint, _check_tensors
from veco_fairseq.checkpoints.translation import Translation
from veco_fairseq.checkpoints.xlmr_files import _refuse_unknown
from veco_fairseq.errors import UserError


def translation(state=None, langs=("de", "en"), **options):
    """A translation model without weights."""
    usual = {
        "encoder_normalize_before": False, "decoder_normalize_before": False, "encoder_learned_pos": True,
        "decoder_learned_pos": True, "layernorm_embedding": True, "activation_fn": "gelu", "no_scale_embedding": True,
        "max_source_positions": 9, "max_target_positions": 9,
    }  # fmt: skip
    symbols = make_dictionary(mask=False).symbols
    return Translation(Path("mt.pt"), {}, Namespace(**{**usual, **options}), symbols, symbols, langs, Path(), state or {})


def test_scaled_embeddings_and_an_lm_head_have_no_class():
    with pytest.raises(UserError, match="mt.pt: was trained without --no-scale-embedding and with an LM head, which XLM-RoB"):
        bart._check_options(translation(no_scale_embedding=False, keep_lm_head=True))
    for options in ({"no_scale_embedding": False}, {"keep_lm_head": True}):  # one of them alone is no reason
        with pytest.raises(UserError, match="without --share-all-embeddings"):
            bart._check_options(translation(**options))


@pytest.mark.parametrize("directions, langs, title, languages", [
    (["en-de", "cs-en"], ("de", "en"), "Translation in 2 directions: en-de, cs-en", ["cs", "de", "en"]),
    (["cs-en"], ("de", "en"), "Translation from cs to en", ["cs", "en"]),
    ([], ("no", "de"), "Translation from no to de", ["no", "de"]),
    ([], (None, "de"), "Translation", ["de"]),
])  # fmt: skip
def test_the_card_of_a_translation_model_names_its_directions(directions, langs, title, languages):
    shape = bart.Shape("BartForConditionalGeneration", {}, (), ("bias", 2), {})
    facts = bart._facts(translation({"task_state": {"lang_pairs": directions}}, langs), shape, {"a": torch.ones(3, 4)})
    assert (facts.title, facts.languages, facts.parameters) == (title, languages, 12)
    assert [token in facts.usage for token in ("<2de>", "<2en>")] == [
        any(f"-{lang}" in name for name in directions) for lang in ("de", "en")
    ]


def test_without_transformers_nothing_is_compared(monkeypatch):
    """... and a package that was hidden for its sake is there again."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "torchaudio", raising=False)
    assert huggingface.import_transformers() is None and "torchaudio" not in sys.modules
    assert bart.largest_translation_difference(translation(), "folder") is None
    assert huggingface.largest_difference("a.pt", "folder") is None


def test_a_model_of_another_kind_is_named(tmp_path):
    for weights, told in (
        ({"x.weight": 1}, "a model of --arch lstm"),
        ({"decoder.layers.0.fc1.weight": 1}, r"a translation model \(encoder and decoder, --arch lstm\)"),
        ({"encoder.sentence_encoder.x": 1}, r"an encoder without cross-attention \(RoBERTa or XLM-R, --arch lstm\)"),
    ):
        model = {name: torch.ones(size) for name, size in weights.items()}
        torch.save({"model": model, "cfg": {"model": Namespace(arch="lstm")}}, tmp_path / "a.pt")
        with pytest.raises(UserError, match=rf"a\.pt: this is {told}"):
            read_pretrained(tmp_path / "a.pt")
        # An export also takes translation models, but not of all kinds.
        with pytest.raises(
            UserError, match=rf"a\.pt: this is {told}.*, or a translation model of veco_mt_\*.*for veco translate$"
        ):
            huggingface.export_hf(tmp_path / "a.pt", tmp_path / "folder")


@pytest.mark.parametrize("name", [
    "roberta.encoder.layer.0.output.adapters.de.adapter_up.weight", "base_model.model.roberta.encoder.layer.0.query.lora_A.weight",
])  # fmt: skip
def test_adapters_are_named(name):
    with pytest.raises(
        UserError, match="^a: has adapters, which XLM-R has not: merge them into its weights, or give the model with"
    ):
        _refuse_unknown(Path("a"), ["another", name])


def test_a_model_without_embeddings_has_no_rows_to_give():
    symbols = make_dictionary().symbols
    without = Pretrained(Path("a.pt"), {}, Namespace(), symbols, "", Namespace(), [], [])
    with pytest.raises(UserError, match=r"a\.pt: encoder\.sentence_encoder\.embed_tokens\.weight is missing; expected a VECO"):
        token_rows(without, make_dictionary(), None, True)
    other = without._replace(weights={"encoder.sentence_encoder.embed_tokens.weight": torch.ones(44, 2)})
    with pytest.raises(UserError, match=r"a\.pt: has 44 rows of token embeddings, but 45 tokens in its dictionary"):
        token_rows(other, make_dictionary(), None, True)


def test_a_tensor_that_no_record_has_room_for_is_damage(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"model": {"a": torch.ones(7), "b": torch.ones(9)}}, path)
    records = Records(path)
    _check_tensors(path, records, torch.load(path), False)
    state = {"model": {"a": torch.ones(1007), "b": torch.ones(8)}}
    with pytest.raises(DamagedCheckpoint, match=r"a\.pt: is damaged: a tensor of 4,028 bytes has no record of this size; copy"):
        _check_tensors(path, records, state, False)
