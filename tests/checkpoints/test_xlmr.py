# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""XLM-R into VECO and back, against transformers' XLM-RoBERTa and fairseq's RoBERTa with random weights."""

import argparse
import json
import re
import shutil
import types

import pytest
import torch
from conftest import error_line
from fairseq.models.roberta import RobertaModel
from support.xlmr import DIM, HEADS, LAYERS, batch, folder, hugging_face, needs_transformers, symbols, vocabulary  # noqa: F401  fixtures

from veco_fairseq.checkpoints.huggingface import export_hf, import_transformers, largest_difference
from veco_fairseq.checkpoints.xlmr import init_from
from veco_fairseq.checkpoints.xlmr_files import _hugging_face_symbols
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError


@needs_transformers
@pytest.mark.parametrize("form", ["folder", "safetensors", "bin", "without head", "tokenizer.json"])
def test_hidden_states_equal_transformers(form, folder, symbols, make_model):
    reference = hugging_face(folder)
    path = folder
    if form == "safetensors":
        path = folder / "model.safetensors"
    elif form == "bin":
        torch.save(reference.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    elif form == "without head":
        reference.roberta.save_pretrained(folder)
    elif form == "tokenizer.json":
        (folder / "sentencepiece.bpe.model").unlink()
        vocabulary = [[symbol, 0.0] for symbol in symbols]
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": vocabulary}}))
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    report = [str(group) for group in init_from(model.encoder, model.encoder.dictionary, HEADS, path)]
    tokens = batch(symbols)
    real = tokens.ne(1)
    states = model.unplugged(tokens)
    expected = reference.roberta(tokens, attention_mask=real.long()).last_hidden_state
    assert (states - expected)[real].abs().max() < 1e-5
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    kept = {name for name in before if ".encoder_attn" in name or form == "without head" and "lm_head" in name}
    assert changed == set(before) - kept - {"encoder.lm_head.weight"}
    if form != "without head":
        logits = reference(tokens, attention_mask=real.long()).logits
        assert (model.encoder.lm_head(states) - logits)[real].abs().max() < 1e-5
    assert f"{len(symbols)} of {len(symbols)} tokens, matched by token" in report[0]
    assert any("new" in line and "cross-attention" in line for line in report)


@needs_transformers
def test_rows_are_matched_by_token(folder, symbols, make_model):
    """With a dictionary in another order, with tokens more and fewer."""
    reference = hugging_face(folder)
    ordinary = symbols[4:-1]
    ours = [*symbols[:4], "neu", *reversed(ordinary[5:]), "<mask>"]
    model = make_model(dictionary_of(ours), dim=DIM, layers=LAYERS)
    before = model.encoder.sentence_encoder.embed_tokens.weight.detach().clone()
    report = "\n".join(map(str, init_from(model.encoder, model.encoder.dictionary, HEADS, folder)))
    after, bias = model.encoder.sentence_encoder.embed_tokens.weight, model.encoder.lm_head.bias
    for row, symbol in enumerate(ours):
        if symbol == "neu":
            assert torch.equal(after[row], before[row])
        else:
            there = symbols.index(symbol)
            assert torch.equal(after[row], reference.roberta.embeddings.word_embeddings.weight[there])
            assert bias[row] == reference.lm_head.bias[there]
    assert f"{len(ours) - 1} of {len(ours)} tokens" in report
    assert re.search(r"dropped +rows of the token embeddings: .* \(80 parameters\)", report)
    assert re.search(r"new +rows of the token embeddings: .* \(16 parameters\)", report)


@pytest.fixture
def roberta(symbols):
    """fairseq's own RoBERTa with random weights."""
    args = argparse.Namespace(
        encoder_layers=LAYERS, encoder_embed_dim=DIM, encoder_ffn_embed_dim=2 * DIM, encoder_attention_heads=HEADS,
        max_positions=64, dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    torch.manual_seed(4)
    return RobertaModel.build_model(args, types.SimpleNamespace(source_dictionary=dictionary_of(symbols))).eval()


def old_names(weights):
    """The layout of fairseq in 2019: another prefix, one projection for query, key and value."""
    old = {}
    for name, tensor in weights.items():
        if re.search(r"self_attn\.[kv]_proj", name):
            continue
        if "self_attn.q_proj" in name:
            tensor = torch.cat([weights[name.replace("q_proj", f"{p}_proj")] for p in "qkv"])
            name = name.replace("q_proj.", "in_proj_")
        name = name.replace("layernorm_embedding", "emb_layer_norm")
        old["decoder" + name.removeprefix("encoder")] = tensor
    return old


@pytest.mark.parametrize("layout", ["today's", "2019's"])
def test_fairseqs_checkpoint(layout, roberta, symbols, vocabulary, make_model, tmp_path):
    weights = roberta.state_dict() if layout == "today's" else old_names(roberta.state_dict())
    args = argparse.Namespace(encoder_attention_heads=HEADS)
    torch.save({"args": args, "model": {name: t.half() for name, t in weights.items()}}, tmp_path / "model.pt")
    shutil.copy(vocabulary / "dict.txt", tmp_path)
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS)
    init_from(model.encoder, model.encoder.dictionary, HEADS, tmp_path)
    tokens = batch(symbols)
    roberta.half().float()
    expected = roberta.encoder(tokens, features_only=True)[0]
    assert (model.unplugged(tokens) - expected)[tokens.ne(1)].abs().max() < 1e-5


@pytest.mark.parametrize(("theirs", "ours"), [("relu", "gelu"), (None, "relu"), ("gelu_accurate", "gelu")])
def test_another_activation_is_another_model(theirs, ours, roberta, symbols, vocabulary, make_model, tmp_path):
    """No tensor shows it; the hidden states had been others."""
    args = argparse.Namespace(encoder_attention_heads=HEADS, **({"activation_fn": theirs} if theirs else {}))
    torch.save({"args": args, "model": roberta.state_dict()}, tmp_path / "model.pt")
    shutil.copy(vocabulary / "dict.txt", tmp_path)
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS, activation_fn=ours)
    with pytest.raises(UserError, match=f"model.pt: has --activation-fn {theirs or 'gelu'}, here {ours}: give"):
        init_from(model.encoder, model.encoder.dictionary, HEADS, tmp_path)


def save_pretraining(model, symbols, path):
    """As fairseq-train --task camlm leaves it."""
    model.args.arch = "veco_tiny"
    state = {"args": model.args, "cfg": None, "model": model.state_dict(), "task_state": {"symbols": symbols}}
    torch.save(state, path)
    return path


@needs_transformers
def test_export_round_trip_is_exact(make_model, symbols, vocabulary, tmp_path, run):
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS)
    checkpoint = save_pretraining(model, symbols, tmp_path / "checkpoint.pt")
    shutil.copy(vocabulary / "sentencepiece.bpe.model", tmp_path)
    result = run("scripts/export_hf.py", "--checkpoint", checkpoint, "--output", tmp_path / "hf")
    assert result.returncode == 0, result.stderr
    difference = float(re.search(r"largest difference .*: (\S+)", result.stdout)[1])
    assert difference < 1e-5 and "note" not in result.stdout
    cross = sum(p.numel() for n, p in model.named_parameters() if ".encoder_attn" in n)
    assert f"without the cross-attention's {cross:,} parameters" in result.stdout

    other = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS, seed=9)
    init_from(other.encoder, other.encoder.dictionary, HEADS, tmp_path / "hf")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]) or ".encoder_attn" in name

    transformers = import_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    pieces = load_sentencepiece(vocabulary / "sentencepiece.bpe.model").encode("abcd efgh", out_type=str)
    assert tokenizer("abcd efgh")["input_ids"] == [0, *(symbols.index(piece) for piece in pieces), 2]
    assert tokenizer.mask_token_id == symbols.index("<mask>")
    assert transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf").config.vocab_size == len(symbols)
    again = run("scripts/export_hf.py", "--checkpoint", checkpoint, "--output", tmp_path / "hf")
    assert "is there already" in error_line(again)


@needs_transformers
def test_a_tokenizer_needs_the_pieces_in_any_order(make_model, symbols, vocabulary, tmp_path):
    checkpoint = save_pretraining(make_model(dictionary_of(symbols)), symbols, tmp_path / "checkpoint.pt")
    assert "sentencepiece.bpe.model is not there" in export_hf(checkpoint, tmp_path / "one").notes[0]
    assert largest_difference(checkpoint, tmp_path / "one") < 1e-5
    shutil.copy(vocabulary / "sentencepiece.bpe.model", tmp_path)
    moved = [*symbols[:4], *reversed(symbols[4:-1]), "<mask>"]
    checkpoint = save_pretraining(make_model(dictionary_of(moved)), moved, tmp_path / "moved.pt")
    assert export_hf(checkpoint, tmp_path / "two").notes == []
    model = load_sentencepiece(vocabulary / "sentencepiece.bpe.model")
    tokenizer = import_transformers().AutoTokenizer.from_pretrained(tmp_path / "two")
    assert tokenizer("abcd")["input_ids"] == [0, *map(moved.index, model.encode("abcd", out_type=str)), 2]
    assert _hugging_face_symbols(tmp_path / "two") == moved
    fewer = [*symbols[:-3], "<mask>"]
    checkpoint = save_pretraining(make_model(dictionary_of(fewer)), fewer, tmp_path / "fewer.pt")
    (note,) = export_hf(checkpoint, tmp_path / "fewer").notes
    assert note.startswith("no tokenizer: 2 pieces of ") and not list((tmp_path / "fewer").glob("*token*"))

    cut = (tmp_path / "moved.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(cut[: len(cut) // 2])
    with pytest.raises(UserError, match="cut.pt: cannot be read"):
        export_hf(tmp_path / "cut.pt", tmp_path / "three")
    assert not (tmp_path / "three").exists()


def remove(name):
    return lambda folder: (folder / name).unlink()


def change_config(**values):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return change


def cut_off(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


@needs_transformers
@pytest.mark.parametrize(("spoil", "message"), [
    (remove("model.safetensors"), "holds no XLM-R: expected"),
    (remove("config.json"), r"config\.json: no such file"),
    (remove("sentencepiece.bpe.model"), "neither sentencepiece.bpe.model nor tokenizer.json"),
    (lambda folder: (folder / "config.json").write_text("{"), r"config\.json, line 1: is not JSON"),
    (change_config(model_type="bert"), "describes a model of type bert"),
    (change_config(num_attention_heads=2), "2 attention heads, here 4"),
    (cut_off, r"model\.safetensors: cannot be read"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b""), r"model\.safetensors: cannot be read"),
])  # fmt: skip
def test_bad_folders(spoil, message, folder, symbols, make_model):
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    spoil(folder)
    with pytest.raises(UserError, match=message) as caught:
        init_from(model.encoder, model.encoder.dictionary, HEADS, folder)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@needs_transformers
@pytest.mark.parametrize(("options", "message"), [
    ({"layers": 2}, "layers.2.fc1.bias is there alone"),
    ({"dim": 32}, r"has another size: lm_head.dense.bias \(16,\), here \(32,\)"),
    ({"max_positions": 128}, r"66 positions, here 130 \(lower --max-positions\)"),
])  # fmt: skip
def test_other_sizes(options, message, folder, symbols, make_model):
    model = make_model(dictionary_of(symbols), **{"dim": DIM, "layers": LAYERS, **options})
    with pytest.raises(UserError, match=message):
        init_from(model.encoder, model.encoder.dictionary, HEADS, folder)


@needs_transformers
def test_other_vocabularies(folder, make_model):
    model = make_model(dictionary_of([f"x{number}" for number in range(9)]), dim=DIM, layers=LAYERS)
    with pytest.raises(UserError, match="shares no token with the data's dict.txt"):
        init_from(model.encoder, model.encoder.dictionary, HEADS, folder)


@pytest.mark.parametrize("types", [-1, 1])
def test_a_vocabulary_of_another_size_than_the_embeddings(types, roberta, symbols, make_model, tmp_path):
    torch.save({"args": argparse.Namespace(encoder_attention_heads=HEADS), "model": roberta.state_dict()}, tmp_path / "model.pt")
    of_it = [*symbols[4:-1], "more"][: len(symbols) - 5 + types]
    (tmp_path / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in of_it), encoding="utf-8")
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS)
    told = f"has {len(symbols)} rows of embeddings, but the vocabulary beside it {len(symbols) + types} tokens: put"
    with pytest.raises(UserError, match=told):
        init_from(model.encoder, model.encoder.dictionary, HEADS, tmp_path)


@needs_transformers
def test_training_starts_from_it_once(make_root, train, folder, symbols, tmp_path):  # noqa: F811
    """A first run says what it copied, and a resumed one does not need the file any more."""
    root = make_root()
    options = "--encoder-layers 3 --encoder-attention-heads 4 --encoder-ffn-embed-dim 32 --max-positions 64".split()
    options += ["--bitext-max-length", "16", "--init-from", folder, "--freeze-backbone-updates", "2"]
    assert "shares no token with" in error_line(train(root, *options, "--max-update", "2"))

    types = len((root / "dict.txt").read_text().splitlines())
    (root / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols[4 : 4 + types]), encoding="utf-8")
    first = train(root, *options, "--max-update", "1")
    assert first.returncode == 0 and first.stderr == "", first.stderr
    assert f"--init-from: copied   token embeddings: {types + 5} of {types + 5} tokens" in first.stdout
    state = torch.load(tmp_path / "checkpoints/checkpoint_last.pt")["model"]
    reference = hugging_face(folder).state_dict()
    name = "encoder.layer.1.attention.self.query.weight"
    assert torch.equal(state["encoder.sentence_encoder.layers.1.self_attn.q_proj.weight"], reference[f"roberta.{name}"])

    shutil.rmtree(folder)
    second = train(root, *options, "--max-update", "2")
    assert second.returncode == 0 and "--init-from: " not in second.stdout, second.stderr
    assert "no such file or folder" in error_line(train(root, *options, save_dir="new"))


@needs_transformers
def test_the_report_counts_every_parameter_once(folder, symbols, make_model):
    model = make_model(dictionary_of(symbols), dim=DIM, layers=LAYERS)
    groups = init_from(model.encoder, model.encoder.dictionary, HEADS, folder)
    counted = {action: sum(group.parameters for group in groups if group.action == action) for action in ("copied", "new")}
    new = sum(p.numel() for name, p in model.encoder.named_parameters() if ".encoder_attn" in name)
    assert counted == {"copied": sum(p.numel() for p in model.encoder.parameters()) - new, "new": new}
    assert [group.what for group in groups if group.action == "new"] == ["cross-attention"]


@needs_transformers
def test_a_head_that_is_not_tied_starts_from_the_embeddings_too(folder, symbols, make_model):
    """... by token, as the bias does: here two tokens are in each other's place."""
    encoder = make_model(dictionary_of([*symbols[4:-3], symbols[-2], symbols[-3], symbols[-1]]), dim=DIM, layers=LAYERS).encoder
    encoder.lm_head.weight = torch.nn.Parameter(torch.zeros(len(symbols), DIM))
    init_from(encoder, encoder.dictionary, HEADS, folder)
    assert encoder.lm_head.weight.any() and torch.equal(encoder.lm_head.weight, encoder.sentence_encoder.embed_tokens.weight)
