# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translation models for transformers: the logits, the ids and the translations are fairseq's."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from conftest import changed, error_line
from fairseq import checkpoint_utils
from support.exported import LANGS, LINES, change, fairseqs_ids, fairseqs_translations, make_translation

from veco_fairseq.checkpoints.bart import (
    bart_shape,
    encoder_decoder_shape,
    export_translation,
    largest_translation_difference,
    search_options,
)
from veco_fairseq.checkpoints.huggingface import import_transformers
from veco_fairseq.checkpoints.pretrained import updates_of
from veco_fairseq.checkpoints.task_state import NOT_FINE_TUNED
from veco_fairseq.checkpoints.translation import find_sentencepiece, read_translation
from veco_fairseq.data.symbols import read_symbols
from veco_fairseq.errors import UserError

TOKENS = tuple(f"[{lang}]" for lang in LANGS)


def reversed_with_tokens(pieces):
    return [*pieces[::-1], TOKENS[0], "madeupword0000", TOKENS[1]]


KINDS = {
    "stock": {},
    "tied": {"tie_self_attention": True},
    "LM head": {"keep_lm_head": True, "tie_self_attention": True},
    "language tokens": {"words": reversed_with_tokens},
    "pieces missing": {"words": lambda pieces: pieces[:3] + pieces[5:]},
}


@pytest.fixture(params=KINDS)
def model(request, tmp_path, make_model):
    """The kind, the checkpoint, and transformers with the exported folder."""
    transformers = import_transformers() or pytest.skip("transformers is not installed")
    checkpoint = make_translation(tmp_path, make_model, updates=40, **KINDS[request.param])
    export_translation(read_translation(checkpoint), tmp_path / "hf")
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    return SimpleNamespace(
        kind=request.param,
        checkpoint=checkpoint,
        tokens=len(read_symbols(tmp_path / "dict.aa.txt")),
        loaded=loaded,
        tokenizer=transformers.AutoTokenizer.from_pretrained(tmp_path / "hf"),
        more=TOKENS[:1] if request.param == "language tokens" else (),
    )


def left_padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([[1] * (longest - len(row)) + row for row in rows])


@torch.no_grad()
def test_logits_ids_and_translations_are_fairseqs(model, tmp_path):
    lines = [*LINES, "", "bal  em ", "xyz bal", *LINES[:2]]
    ids = fairseqs_ids(tmp_path, lines, model.more)
    batch = model.tokenizer(lines, padding=True, return_tensors="pt")
    rows = [row[mask.bool()].tolist() for row, mask in zip(batch["input_ids"], batch["attention_mask"])]
    assert [[token if token < model.tokens else 3 for token in row] for row in rows] == ids

    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(model.checkpoint)])
    end = task.target_token if model.more else 2
    targets = torch.tensor([[end, 5 + row % 9, 4, *([7, 6] if row % 2 else [1, 1])] for row in range(len(lines))])
    sources = left_padded(ids)
    expected = models[0].eval()(sources, sources.ne(1).sum(1), targets)[0]
    found = model.loaded(**batch, decoder_input_ids=targets).logits
    tokens = expected.size(-1)
    assert tokens == model.tokens
    assert expected[targets.ne(1)].abs().max() > 3
    torch.testing.assert_close(found[..., :tokens][targets.ne(1)], expected[targets.ne(1)], atol=5e-5, rtol=0)
    assert found.size(-1) - tokens == (2 if model.kind == "pieces missing" else 0)
    assert (found[..., tokens:] == -1e9).all()

    texts = [line for line in lines if line]
    generated = model.loaded.generate(**model.tokenizer(texts, padding=True, return_tensors="pt"))
    translations = model.tokenizer.batch_decode(generated, skip_special_tokens=True)
    wanted = fairseqs_translations(model.checkpoint, texts)
    assert len(set(wanted)) > 15 and max(map(len, wanted)) < 20
    # transformers leaves out <unk> and the source's language token, where SentencePiece writes them.
    assert translations == [text.replace(" ⁇ ", "").replace(TOKENS[0], "") for text in wanted]


@pytest.fixture
def checkpoint(tmp_path, make_model):
    return make_translation(tmp_path, make_model)


def export(checkpoint, **options):
    return export_translation(read_translation(checkpoint), checkpoint.with_name("hf"), **options)


def test_the_folder_says_how_fairseq_searches(tmp_path, make_model):
    """Forty positions: 39 pieces and the end, and transformers counts what the decoder begins with, too."""
    checkpoint = make_translation(tmp_path, make_model, words=reversed_with_tokens)
    export(checkpoint)
    config, search = (json.loads((tmp_path / "hf" / name).read_text()) for name in ("config.json", "generation_config.json"))
    end = read_symbols(tmp_path / "dict.bb.txt").index("[bb]")
    wanted = {
        "num_beams": 5, "early_stopping": True, "length_penalty": 1.0, "min_length": 2, "max_length": 41,
        "suppress_tokens": [1], "forced_eos_token_id": end, "eos_token_id": end, "decoder_start_token_id": end,
        "pad_token_id": 1, "bos_token_id": 0,
    }  # fmt: skip
    assert search == wanted
    assert config["max_position_embeddings"] == 40 and not config["scale_embedding"]
    assert (config["encoder_layers"], config["decoder_layers"]) == (3, 2)
    tokenizer = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert tokenizer["model_max_length"] == 40 and "auto_map" not in tokenizer


def test_the_options_of_both_shapes_are_the_models(checkpoint):
    """The longest translation is 200 tokens, as in fairseq-generate, with the first and the last."""
    translation = read_translation(checkpoint)
    model = translation.model
    model.dropout, model.attention_dropout, model.activation_dropout, model.activation_fn = 0.1, 0.2, 0.3, "gelu_accurate"
    config = bart_shape(model, 30).config
    found = [config[name] for name in ("dropout", "attention_dropout", "activation_dropout", "activation_function")]
    assert found == [0.1, 0.2, 0.3, "gelu_new"]
    config = encoder_decoder_shape(model, 30).config
    for side in ("encoder", "decoder"):
        names = "hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act", "is_decoder", "vocab_size"
        assert [config[side][name] for name in names] == [0.1, 0.2, "gelu_new", side == "decoder", 30]
    for positions, longest in ((201, 202), (200, 201), (1024, 202)):
        model.max_target_positions = positions
        assert search_options(translation)["max_length"] == longest
    history = [{"num_updates": 3}, {"num_updates": 8}]  # of a start, and of a second one
    assert (updates_of({"optimizer_history": history}), updates_of({})) == (8, 0)


def test_the_command(run, checkpoint, tmp_path):
    done = run("scripts/export_hf.py", "--checkpoint", checkpoint, "--output", tmp_path / "hf")
    assert done.returncode == 0, done.stderr
    wrote, difference = done.stdout.splitlines()
    assert wrote == f"wrote {tmp_path / 'hf'}"
    assert 0 <= float(difference.removeprefix("largest difference between an output and that of transformers' model: ")) < 1e-4
    assert "is there already" in error_line(run("scripts/export_hf.py", "--checkpoint", checkpoint, "--output", tmp_path / "hf"))


def test_the_difference_is_that_of_the_folder(checkpoint, tmp_path):
    translation = read_translation(checkpoint)
    export(checkpoint)
    assert largest_translation_difference(translation, tmp_path / "hf") < 1e-4
    weights = dict(translation.weights)
    name = "decoder.layers.1.encoder_attn.v_proj.bias"
    changed = translation._replace(weights={**weights, name: weights[name] + 0.1})
    assert largest_translation_difference(changed, tmp_path / "hf") > 1e-3
    config = json.loads((tmp_path / "hf/config.json").read_text())
    (tmp_path / "hf/config.json").write_text(json.dumps({**config, "decoder_layers": 3}))
    with pytest.raises(UserError, match=r"transformers [\d.]+ has no or another model.decoder.layers.2"):
        largest_translation_difference(translation, tmp_path / "hf")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"encoder_normalize_before": True}, "do not fit its own options"),  # whose tensors are others
        (
            {"no_decoder_final_norm": True, "decoder_normalize_before": True},
            "with --decoder-normalize-before, which BART has no .*2$",
        ),
        (
            {"decoder_normalize_before": True, "no_decoder_final_norm": True, "cross_self_attention": True},
            "with --cross-self-attention, which BART has no option for: use veco translate$",
        ),
        ({"activation_fn": "relu_squared"}, "its --activation-fn relu_squared is none of transformers': gelu, relu"),
        ({"share_all_embeddings": False, "share_decoder_input_output_embed": True}, None),  # as long as they are the same
        ({"max_target_positions": 30}, r"decoder.embed_positions.weight is \(42, 16\), expected \(32, 16\)"),
        ({"no_scale_embedding": False}, None),
    ],
)
def test_other_shapes(checkpoint, tmp_path, options, message):
    """Refused in one line, or, where BART has the option, exported with the same outputs."""
    change(checkpoint, **options)
    if message is not None:
        with pytest.raises(UserError, match=message):
            export(checkpoint)
        assert not (tmp_path / "hf").exists()
    else:
        export(checkpoint)
        assert largest_translation_difference(read_translation(checkpoint), tmp_path / "hf") < 1e-4


def test_an_lm_head_of_another_activation_is_refused(tmp_path, make_model):
    checkpoint = make_translation(tmp_path, make_model, keep_lm_head=True)
    change(checkpoint, activation_fn="relu")
    with pytest.raises(UserError, match="its --activation-fn relu stands in its LM head, too, and XLM-RoBERTa's always has gelu"):
        export(checkpoint)


def test_tables_of_two_languages_and_positions_of_two_lengths_are_refused(checkpoint):
    translation = read_translation(checkpoint)
    weights = dict(translation.weights)
    weights["decoder.output_projection.weight"] = weights["decoder.output_projection.weight"] * 2
    with pytest.raises(UserError, match="without --share-all-embeddings: BART has one table"):
        export_translation(translation._replace(weights=weights), checkpoint.with_name("hf"))
    translation.model.max_target_positions = 30
    with pytest.raises(UserError, match="has 40 and 30 positions of sources and targets"):
        export_translation(translation, checkpoint.with_name("hf"))
    lacking = {name: t for name, t in translation.weights.items() if name != "decoder.layers.0.fc1.bias"}
    translation.model.max_target_positions = 40
    with pytest.raises(UserError, match="lacks decoder.layers.0.fc1.bias, and BartForConditionalGeneration"):
        export_translation(translation._replace(weights=lacking), checkpoint.with_name("hf"))


def test_a_model_that_was_only_converted_is_told(checkpoint):
    with changed(checkpoint) as state:
        del state["task_state"]["languages"]
    assert export(checkpoint).notes == [f"the checkpoint {NOT_FINE_TUNED}"]


def test_without_a_tokenizer(checkpoint, tmp_path, monkeypatch):
    """Without a SentencePiece model, and without the package: a note says so, and the rest is there."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "tokenizers is not installed" in export(checkpoint).notes[0]
    (tmp_path / "sentencepiece.bpe.model").unlink()
    export_ = export_translation(read_translation(checkpoint), tmp_path / "two")
    assert "name it with --sentencepiece" in export_.notes[0]
    names = {path.name for path in (tmp_path / "two").iterdir()}
    assert names == {"README.md", "config.json", "generation_config.json", "model.safetensors"}
    named = export_translation(
        read_translation(checkpoint), tmp_path / "three", sentencepiece=tmp_path / "pre/sentencepiece.bpe.model"
    )
    assert "tokenizers is not installed" in named.notes[0]


@pytest.mark.parametrize("of_other", ["source", "target"])
def test_a_tokenizer_of_another_dictionary_is_refused(checkpoint, tmp_path, of_other):
    translation = read_translation(checkpoint)
    symbols = [f"{symbol}," for symbol in translation._asdict()[of_other]]
    with pytest.raises(UserError, match=r"sentencepiece\.bpe\.model: does not belong to the dictionary: only 0 "):
        find_sentencepiece(translation._replace(**{of_other: symbols}), None)
    assert find_sentencepiece(translation, None) == tmp_path / "sentencepiece.bpe.model"
