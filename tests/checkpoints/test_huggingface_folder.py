# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The folder of an exported encoder: its configuration, card, tokenizer and notes, and the difference that is told of it."""

import datetime
import json
import os
from contextlib import nullcontext

import pytest
import torch
from conftest import changed, make_dictionary, save_pretrained, save_with_vocabulary
from support.nlu import make_nlu, save_finetuned
from support.xlme import make_xlme
from support.xlmr import needs_transformers

from veco_fairseq.checkpoints.card import scores_list
from veco_fairseq.checkpoints.huggingface import export_hf, largest_difference
from veco_fairseq.checkpoints.release import back_to_pretraining, import_release
from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.checkpoints.translation import read_translation
from veco_fairseq.errors import UserError


@pytest.fixture
def checkpoint(make_model, tmp_path):
    model = make_model(layers=2, arch="veco_tiny")
    model.args.dropout, model.args.attention_dropout = 0.3, 0.2
    return save_pretrained(tmp_path / "pretrained.pt", model, make_dictionary().symbols)


def change(path, make):
    with changed(path) as state:
        make(state)
    return path


def test_the_configuration_is_that_of_training(checkpoint, tmp_path):
    export_hf(checkpoint, tmp_path / "hf")
    found = json.loads((tmp_path / "hf/config.json").read_text())
    assert found == {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"], "vocab_size": 45, "hidden_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "max_position_embeddings": 66,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "tie_word_embeddings": True, "dtype": "float32",
    }  # fmt: skip


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_who_may_read_the_configuration_may_read_the_weights(checkpoint, tmp_path, umask, mode):
    """safetensors lets the owner alone read them."""
    before = os.umask(umask)
    try:
        export_hf(checkpoint, tmp_path / "hf")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "hf").iterdir()} == {mode}


@pytest.mark.parametrize("activation, theirs", [("relu", "relu"), ("gelu_accurate", "gelu_new"), ("gelu_fast", "gelu_new")])
def test_the_head_of_another_activation_is_left_out(make_model, tmp_path, activation, theirs):
    """XLM-RoBERTa's LM head has gelu, whatever the layers have."""
    model = make_model(layers=2, arch="veco_tiny", activation_fn=activation)
    path = save_pretrained(tmp_path / "pretrained.pt", model, make_dictionary().symbols)
    found = export_hf(path, tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert (config["architectures"], config["hidden_act"]) == (["XLMRobertaModel"], theirs)
    assert f"--activation-fn {activation}: the LM head is left out, since XLM-RoBERTa's always has gelu" in found.notes
    assert found.dropped == sum(t.numel() for name, t in model.state_dict().items() if ".encoder_attn" in name)
    assert largest_difference(path, tmp_path / "hf") < 1e-5


def test_the_projection_of_quantization_noise_has_no_place(make_model, tmp_path):
    model = make_model(layers=2, arch="veco_tiny", quant_noise_pq=0.1, quant_noise_pq_block_size=8)
    path = save_pretrained(tmp_path / "pretrained.pt", model, make_dictionary().symbols)
    message = "was pre-trained with --quant-noise-pq, and {} would lack its projection of the embeddings"
    with pytest.raises(UserError, match=message.format("Hugging Face's XLM-RoBERTa")):
        export_hf(path, tmp_path / "hf")
    with pytest.raises(UserError, match=message.format("fairseq's transformer")):
        convert_to_seq2seq(path, tmp_path / "mt.pt", 2)


def test_the_configuration_of_a_head(tmp_path):
    path = save_finetuned(tmp_path / "nlu.pt", make_nlu(head_dropout=0.25), "classification", ["no", "perhaps", "yes"])
    export_hf(path, tmp_path / "hf")
    found = json.loads((tmp_path / "hf/config.json").read_text())
    assert found["classifier_dropout"] == 0.25 and found["label2id"] == {"no": 0, "perhaps": 1, "yes": 2}
    assert "pipeline_tag: text-classification\n" in (tmp_path / "hf/README.md").read_text()


@pytest.mark.parametrize("pooling, count", [("first", 0), ("mean", 1)])
def test_how_the_tokens_of_a_word_make_its_tag(tmp_path, pooling, count):
    path = save_finetuned(tmp_path / "nlu.pt", make_nlu("tagging"), "tagging", ["a", "b", "c"])
    change(path, lambda state: state["cfg"]["task"].update(word_pooling=pooling))
    notes = export_hf(path, tmp_path / "hf").notes
    assert len([note for note in notes if note.startswith("--word-pooling mean: ")]) == count


def test_the_card_names_the_languages_and_the_scores(checkpoint, tmp_path):
    """Of the single languages and of the pairs, each once and in order; without scores they are to be filled in."""

    def trained(state):
        state["cfg"]["task"].update(mono_langs="fr, de", bitext_pairs="de-en, cs-en,en-pt-BR,zh-Hans-en")
        state["optimizer_history"][0]["num_updates"] = 1234
        state["extra_state"]["best"] = 2.5

    change(checkpoint, trained)
    export_hf(checkpoint, tmp_path / "one", scores="- of a test set")
    text = (tmp_path / "one/README.md").read_text()
    assert (
        'language:\n- "cs"\n- "de"\n- "en"\n- "fr"\n- "pt-BR"\n- "zh-Hans"\nlicense' in text
        and "## Scores\n\n- of a test set\n" in text
    )
    assert "| updates | 1,234 |" in text and "held-out text | 2.500 |" in text and "| vocabulary | 45 tokens |" in text
    export_hf(checkpoint, tmp_path / "two")
    assert f"## Scores\n\n{scores_list()}\n" in (tmp_path / "two/README.md").read_text()


def test_a_sentencepiece_model_is_named_or_beside_the_checkpoint(make_model, tmp_path):
    path = save_with_vocabulary(tmp_path / "pre", make_model, ["a dog", "the cat"] * 9, 13, layers=1, max_positions=50)
    assert export_hf(path, tmp_path / "one").notes == []
    pieces = (tmp_path / "pre/sentencepiece.bpe.model").rename(tmp_path / "other.model")
    (note,) = export_hf(path, tmp_path / "two").notes
    assert note == f"no tokenizer: {tmp_path / 'pre/sentencepiece.bpe.model'} is not there: name it with --sentencepiece"
    assert not (tmp_path / "two/tokenizer_config.json").exists()
    assert export_hf(path, tmp_path / "three", sentencepiece=pieces).notes == []
    assert (tmp_path / "three/sentencepiece.bpe.model").read_bytes() == pieces.read_bytes()
    with pytest.raises(UserError, match="none.model"):
        export_hf(path, tmp_path / "four", sentencepiece=tmp_path / "none.model")
    save_with_vocabulary(tmp_path / "another", make_model, ["zu wem", "wozu"] * 9, 11, layers=1)
    with pytest.raises(UserError, match="another/sentencepiece.bpe.model: does not belong to the dictionary: only "):
        export_hf(path, tmp_path / "four", sentencepiece=tmp_path / "another/sentencepiece.bpe.model")
    assert not (tmp_path / "four").exists()


LAYER = "encoder.sentence_encoder.layers.1"


@pytest.mark.parametrize("make, message", [
    (lambda weights: weights.update({"decoder.x": torch.ones(1)}), "has a tensor decoder.x, which Hugging Face's XLM-RoBERTa has no place for"),
    (lambda weights: weights.update({f"{LAYER}.adapter.weight": torch.ones(1)}), f"has a tensor {LAYER}.adapter.weight, which Hugging"),
    (lambda weights: weights.update({"encoder.lm_head.scale": torch.ones(1)}), "has a tensor encoder.lm_head.scale, which Hugging"),
    (lambda weights: weights.update({"encoder.lm_head.weight": torch.ones(45, 16)}), "encoder.lm_head.weight is not the token embeddings"),
    (lambda weights: weights.pop("encoder.sentence_encoder.layers.1.fc2.bias"), r"layers.1.fc2.bias is missing"),
])  # fmt: skip
def test_other_tensors_are_refused(checkpoint, tmp_path, make, message):
    change(checkpoint, lambda state: make(state["model"]))
    with pytest.raises(UserError, match=f"^{checkpoint}: .*{message}"):
        export_hf(checkpoint, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


@needs_transformers
@pytest.mark.parametrize("kind, name", [
    ("veco", "encoder.lm_head.bias"),
    ("xlme", "encoder.sentence_encoder.layers.1.final_layer_norm.bias"),
    ("classification", "head.out_proj.bias"),
    ("tagging", "head.out_proj.bias"),
    ("span", "head.out_proj.bias"),
])  # fmt: skip
def test_the_difference_is_the_largest(make_model, tmp_path, kind, name):
    """One bias is another, and all other numbers are the same; also of a model of few positions."""
    symbols = make_dictionary().symbols
    if kind in ("veco", "xlme"):
        model = make_model(layers=2, arch="veco_tiny", max_positions=20) if kind == "veco" else make_xlme(arch="xlme_tiny")
        path = save_pretrained(tmp_path / "a.pt", model, symbols)
    else:
        labels = [] if kind == "span" else ["a", "b", "c"]
        path = save_finetuned(tmp_path / "a.pt", make_nlu(kind, len(labels) or 2), kind, labels)
    export_hf(path, tmp_path / "hf")
    change(path, lambda state: state["model"][name].__setitem__(1, state["model"][name][1] + 0.5))
    assert largest_difference(path, tmp_path / "hf") == pytest.approx(0.5, abs=1e-4)


@needs_transformers
def test_the_difference_is_that_of_inference(checkpoint, tmp_path):
    """The model was trained with dropout, which would be told as a difference of the exported one."""
    export_hf(checkpoint, tmp_path / "hf")
    assert largest_difference(checkpoint, tmp_path / "hf") < 1e-5


def test_a_trusted_file_may_hold_anything(checkpoint, tmp_path):
    """A date is no tensor and no plain value: each reader is told whether the user trusts the file, and goes by it."""
    translation, words = tmp_path / "mt.pt", tmp_path / "dict.txt"
    convert_to_seq2seq(checkpoint, translation, 1)
    make_dictionary(mask=False).save(str(words))
    for path in (checkpoint, translation):
        change(path, lambda state: state.update(date=datetime.date(2021, 8, 1)))
    depth = {"decoder_layers": 99}  # refused once the file is read
    for read, other in (
        (lambda **trust: export_hf(checkpoint, tmp_path / "hf", **trust), None),
        (lambda **trust: largest_difference(checkpoint, tmp_path / "hf", **trust), None),
        (lambda **trust: read_translation(translation, **trust), None),
        (lambda **trust: convert_to_seq2seq(checkpoint, tmp_path / "x.pt", **depth, **trust), "choose from 1 to 2"),
        (lambda **trust: import_release(translation, words, tmp_path / "x.pt", **depth, **trust), "choose from 1 to 1"),
        (lambda **trust: back_to_pretraining(translation, words, tmp_path / "x.pt", **trust), "have 2 and 1 layers"),
    ):
        with pytest.raises(UserError, match=r"refused: it holds datetime\.date"):
            read()
        with pytest.raises(UserError, match=other) if other else nullcontext():
            read(trust=True)
