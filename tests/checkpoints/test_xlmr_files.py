# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Files of XLM-R, made by hand: what is taken, left out and refused, and what the report says of sizes."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from conftest import changed, make_dictionary, save_pretrained
from safetensors.torch import load_file, save_file
from support.malicious import Malicious
from support.xlme import make_xlme

from veco_fairseq.checkpoints.huggingface import export_hf
from veco_fairseq.checkpoints.xlmr import init_from
from veco_fairseq.checkpoints.xlmr_files import _refuse_unknown, read_xlmr
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError

HEADS, DIM = 4, 16
SYMBOLS = make_dictionary(types=9).symbols
CROSS = 4 * (DIM * DIM + DIM) + 2 * DIM


@pytest.fixture
def ours(make_model):
    return make_model(make_dictionary(types=9), layers=2, arch="veco_tiny")


@pytest.fixture
def folder(ours, tmp_path):
    """A folder of Hugging Face's with the encoder of a VECO, whose tokens are in tokenizer.json."""
    export_hf(save_pretrained(tmp_path / "ours.pt", ours, SYMBOLS), tmp_path / "hf")
    write_tokens(tmp_path / "hf", [[symbol, 0.0] for symbol in SYMBOLS])
    return tmp_path / "hf"


def write_tokens(folder, vocabulary):
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))


def change_tensors(folder, **changes):
    """By name, with dots as two underscores; None takes one away."""
    tensors = load_file(folder / "model.safetensors")
    tensors.update({name.replace("__", "."): tensor for name, tensor in changes.items()})
    save_file({name: t.contiguous() for name, t in tensors.items() if t is not None}, folder / "model.safetensors")


def start(model, path, heads=HEADS):
    return init_from(model.encoder, model.encoder.dictionary, heads, path)


def test_what_other_heads_left_behind_is_dropped(folder, make_model):
    """... and counted; the token type is added to every position but padding's."""
    more = {"roberta__pooler__dense__weight": torch.ones(DIM, DIM), "classifier__dense__bias": torch.ones(5),
            "qa_outputs__bias": torch.ones(2), "roberta__embeddings__position_ids": torch.arange(7.0)[None]}  # fmt: skip
    position = load_file(folder / "model.safetensors")["roberta.embeddings.position_embeddings.weight"]
    change_tensors(folder, **more, roberta__embeddings__token_type_embeddings__weight=torch.full((1, DIM), 0.5))
    model = make_model(make_dictionary(types=9), layers=2, seed=2)
    (line,) = [group for group in start(model, folder) if group.source == "no place in pre-training"]
    assert (line.action, line.tensors, line.parameters) == ("dropped", 4, DIM * DIM + 5 + 2 + 7) and line.what.endswith(", ...")
    found = model.encoder.sentence_encoder.embed_positions.weight
    assert torch.allclose(found[2:], position[2:] + 0.5) and torch.equal(found[1], torch.zeros(DIM))


def test_the_names_of_what_is_dropped(folder, make_model):
    names = ["classifier.a", "classifier.b", "classifier.c"]
    for count, ends in ((1, ""), (2, ""), (3, ", ...")):
        change_tensors(folder, **{name: torch.ones(1) for name in names[:count]})
        (line,) = [group for group in start(make_model(make_dictionary(9), layers=2), folder) if group.action == "dropped"]
        assert line.what == ", ".join(names[:2][:count]) + ends


@pytest.mark.parametrize(("key", "value", "usual"), [("pad_token_id", 0, 1), ("is_decoder", True, False)])
def test_what_no_tensor_shows(folder, make_model, key, value, usual):
    """Positions had been counted from another place, and a decoder's attention had looked ahead."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UserError, match=rf"config\.json: has {key} {value}, and XLM-R {usual}: this is another model"):
        start(make_model(make_dictionary(types=9), layers=2), folder)


def test_which_file_of_a_folder(folder, ours):
    """safetensors before a pickle, and Hugging Face's before fairseq's."""
    tensors = load_file(folder / "model.safetensors")
    expected = ours.encoder.lm_head.dense.bias
    for name in ("pytorch_model.bin", "model.pt"):
        torch.save({"lm_head.dense.bias": torch.zeros(DIM)}, folder / name)
    assert torch.equal(read_xlmr(folder).weights["lm_head.dense.bias"], expected)
    (folder / "model.safetensors").unlink()
    torch.save({name: tensor.half() for name, tensor in tensors.items()}, folder / "pytorch_model.bin")
    found = read_xlmr(folder)
    assert {tensor.dtype for tensor in found.weights.values()} == {torch.float32} and found.path.name == "pytorch_model.bin"
    assert (found.symbols, found.heads, found.left_out) == (SYMBOLS, HEADS, {})


def config(**values):
    def change(folder):
        found = json.loads((folder / "config.json").read_text())
        found.update(values)
        (folder / "config.json").write_text(json.dumps({name: value for name, value in found.items() if value is not None}))

    return change


def tensors(**values):
    return lambda folder: change_tensors(folder, **values)


def pickled(value):
    def change(folder):
        (folder / "model.safetensors").unlink()
        torch.save(value, folder / "pytorch_model.bin")

    return change


SPOILT = (
    (config(hidden_act="relu"), r"config.json: describes a model of type xlm-roberta, with relu; expected xlm-roberta"),
    (config(layer_norm_eps=1e-6), r"config.json: its LayerNorm adds 1e-06 to the variance, and XLM-R's 1e-05: this is another"),
    (config(layer_norm_eps=None), r"config.json: its LayerNorm adds 1e-12"),
    *((config(num_hidden_layers=n), r"config.json: has no num_hidden_layers from 1 to 1,000: fetch it") for n in (None, 10**12)),
    *((config(num_attention_heads=heads), r"config.json: has no num_attention_heads from 1 to 1,000") for heads in ("4", 0, 1_001)),
    (lambda folder: (folder / "config.json").write_text("[]"), r"config.json: is damaged \("),
    (tensors(lm_head__decoder__bias=torch.ones(14)), "lm_head.decoder.bias is not tied to the embeddings"),
    (tensors(lm_head__decoder__weight=torch.ones(14, DIM)), "lm_head.decoder.weight is not tied to the embeddings"),
    (tensors(lm_head__bias=None, lm_head__decoder__bias=torch.ones(14)), "lm_head.decoder.bias is not tied"),
    (tensors(bert__weight=torch.ones(1)), "model.safetensors: is no XLM-R and no model of --task camlm, one of which is needed: it has bert.weight$"),
    (tensors(lm_head__dense__bias=torch.full((DIM,), float("nan"))), "model.safetensors: .*lm_head.dense.bias"),
    *((lambda folder, v=v: write_tokens(folder, v), "tokenizer.json: is damaged or no unigram tokenizer") for v in ({"abc": 1}, [[1, 0.0]])),
    (lambda folder: (folder / "tokenizer.json").write_text('{"model": {}}'), "tokenizer.json: is damaged or no unigram"),
    (tensors(lm_head__dense__bias=torch.ones(DIM).to(torch.int8)), "its model, lm_head.dense.bias, is a tensor of int8, and must"),
    (tensors(lm_head__dense__bias=torch.ones(DIM).to(torch.float8_e4m3fn)), "is a tensor of float8_e4m3fn, .* in 16 or 32 bits$"),
    (pickled({"lm_head.bias": torch.ones(9).to_sparse()}), "pytorch_model.bin: .* is a tensor of torch.sparse_coo"),
    (pickled({"a": 1}), "pytorch_model.bin: holds more than tensors with names: expected the pytorch_model.bin of"),
    *((pickled(other), "pytorch_model.bin: holds more than tensors with names") for other in ([torch.ones(1)], {7: torch.ones(1)})),
    (pickled({"a": torch.tensor([float("inf")])}), "pytorch_model.bin: .* a "),
)  # fmt: skip


def test_files_that_are_refused(folder, tmp_path):
    """Without running what one of them holds."""
    malicious = pickled({"a": Malicious(tmp_path / "it ran")}), "pytorch_model.bin: refused: it holds posix.mkdir"
    for number, (spoil, message) in enumerate((*SPOILT, malicious)):
        spoil(shutil.copytree(folder, tmp_path / str(number)))
        with pytest.raises(UserError, match=message):
            read_xlmr(tmp_path / str(number))
    assert not (tmp_path / "it ran").exists()


def test_a_configuration_without_an_activation_has_gelu(folder):
    config(hidden_act=None)(folder)
    change_tensors(folder, lm_head__decoder__bias=load_file(folder / "model.safetensors")["lm_head.bias"])
    assert len(read_xlmr(folder).weights) == 4 + 2 * 16 + 5


def test_a_pretraining_of_ones_own_is_a_start(ours, make_model, tmp_path):
    """With the tokens that it knows itself; its cross-attention is left out, and a head of classes, too."""
    path = save_pretrained(tmp_path / "ours.pt", ours, SYMBOLS)
    with changed(path) as state:
        state["model"]["classification_heads.x.dense.bias"] = torch.ones(3)
        state["model"]["encoder.sentence_encoder.embed_positions._float_tensor"] = torch.ones(1)
    model = make_model(make_dictionary(9), layers=2, seed=2)
    report = start(model, path)
    (line,) = [group for group in report if group.action == "dropped"]
    assert (line.tensors, line.parameters) == (2 * 10 + 1 + 1 + 1, 2 * CROSS + 3 + 1 + 1)
    expected = ours.state_dict()
    differing = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, expected[name])}
    assert differing == {name for name in expected if ".encoder_attn" in name}
    state["model"]["encoder.lm_head.weight"] = state["model"]["encoder.lm_head.weight"] + 1
    torch.save(state, path)
    with pytest.raises(UserError, match="its lm_head.weight is not tied to the embeddings"):
        start(model, path)
    torch.save({**state, "cfg": None, "args": Namespace(arch="roberta")}, path)
    with pytest.raises(UserError, match="its options lack --encoder-attention-heads"):
        start(model, path)


def test_a_model_with_fewer_positions_takes_the_first(folder, ours, make_model):
    model = make_model(make_dictionary(9), layers=2, seed=2, max_positions=20)
    start(model, folder)
    found = model.encoder.sentence_encoder.embed_positions.weight
    assert torch.equal(found, ours.encoder.sentence_encoder.embed_positions.weight[:22])


def test_one_token_in_common_is_enough(folder, make_model):
    """Beside the special ones, which all have; what is new is counted."""
    with pytest.raises(UserError, match="shares no token with the data's dict.txt"):
        start(make_model(dictionary_of(["x", "y", "<mask>"]), layers=2), folder)
    report = start(make_model(dictionary_of(["x", "w3", "<mask>"]), layers=2), folder)
    found = [(group.action, group.source, group.parameters) for group in report if group.tensors == 0]
    assert found == [
        ("copied", "6 of 7 tokens, matched by token", 6 * DIM),
        ("dropped", "tokens that the data's dict.txt lacks", (14 - 6) * DIM),
        ("new", "tokens that XLM-R lacks", DIM),
    ]


def test_an_xlm_r_without_a_head(folder, make_model):
    change_tensors(folder, **{f"lm_head__{name}": None for name in (
        "bias", "dense__weight", "dense__bias", "layer_norm__weight", "layer_norm__bias")})  # fmt: skip
    report = start(make_model(make_dictionary(9), layers=2), folder)
    assert [group.what for group in report] == [
        "token embeddings",
        "position table and embedding LayerNorm",
        "self-attention, FFN and their LayerNorms",
        "cross-attention and LM head",
    ]
    assert (report[-1].tensors, report[-1].parameters) == (2 * 10 + 5, 2 * CROSS + DIM * DIM + 3 * DIM + 14)


HERE = "sentence_encoder.layers.2."


@pytest.mark.parametrize("options, heads, change, told", [
    ({}, 2, {}, "4 attention heads, here 2"),
    ({"layers": 3}, 4, {}, f"{HERE}fc1.bias is here alone; {HERE}fc1.weight is here alone; {HERE}fc2.bias is here alone; "
     "and 13 more differences"),
    ({}, 4, {"lm_head__dense__bias": torch.ones(3)}, "lm_head.dense.bias (3,), here (16,)"),
    ({}, 4, {"lm_head__dense__bias": torch.ones(16, 1)}, "lm_head.dense.bias (16, 1), here (16,)"),
    ({"max_positions": 65}, 4, {}, "66 positions, here 67 (lower --max-positions)"),
    ({"max_positions": 65}, 2, {"lm_head__dense__bias": torch.ones(3)},
     "4 attention heads, here 2; lm_head.dense.bias (3,), here (16,); 66 positions, here 67 (lower --max-positions)"),
])  # fmt: skip
def test_every_other_size_is_told(folder, make_model, options, heads, change, told):
    change_tensors(folder, **change)
    with pytest.raises(UserError) as refused:
        start(make_model(make_dictionary(9), **{"layers": 2, **options}), folder, heads)
    assert f"model.safetensors: has another size: {told}: choose the --arch of its size" in str(refused.value)


@pytest.mark.parametrize("count, words", [(1, "it has t0"), (3, "it has t0, t1, t2"), (4, "it has t0, t1, t2 and 1 more")])
def test_tensors_of_another_model_are_named(count, words):
    with pytest.raises(UserError) as refused:
        _refuse_unknown(Path("a.pt"), [f"t{number}" for number in range(count)])
    assert str(refused.value) == f"a.pt: is no XLM-R and no model of --task camlm, one of which is needed: {words}"


def test_a_tensor_that_no_encoder_has_is_named_as_it_is(ours, tmp_path):
    path = save_pretrained(tmp_path / "a.pt", ours, SYMBOLS)
    with changed(path) as state:
        state["model"]["head.dense.weight"] = torch.ones(1)
    with pytest.raises(UserError, match=r"a\.pt: is no XLM-R .*: it has head\.dense\.weight$"):
        read_xlmr(path)


@pytest.mark.parametrize("options, told", [
    ({"table_dim": 6}, "was trained with --embed-dim, which XLM-R has not: give the folder that veco export-hf makes of it"),
    ({"relative_position_bias": True},
     "was trained with --relative-position-bias, which XLM-R has not: give a model that was trained without"),
    ({"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 8},
     "was trained with --quant-noise-pq, whose projection XLM-R has not: give a model that was trained without"),
    ({"generator_layers": 1}, "is an XLM-E, which has a generator beside an XLM-R: give the folder that veco export-hf makes of it"),
])  # fmt: skip
def test_a_model_of_pretraining_that_is_more_than_an_xlmr_is_told_the_way(options, told, make_model, tmp_path):
    make = make_xlme if "generator_layers" in options else make_model
    options = {name: value for name, value in options.items() if name != "generator_layers"}
    path = save_pretrained(tmp_path / "a.pt", make(make_dictionary(types=9), arch="veco_tiny", **options), SYMBOLS)
    with pytest.raises(UserError) as refused:
        read_xlmr(path)
    assert str(refused.value) == f"{path}: {told}"


def split(folder, kind):
    """Put a folder's weights into two files, the second with others for the first's names, too, and an index, as transformers does."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem, suffix, save = {"safetensors": ("model", "safetensors", save_file), "bin": ("pytorch_model", "bin", torch.save)}[kind]
    names = [f"{stem}-0000{number}-of-00002.{suffix}" for number in (1, 2)]
    place = {name: names[number >= 17] for number, name in enumerate(tensors)}
    for file in names:
        save({n: t + (place[n] != file) for n, t in tensors.items() if file in (place[n], names[1])}, folder / file)
    index = folder / f"{stem}.{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 9}, "weight_map": place}))
    return index, names


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_weights_in_several_files(folder, kind):
    expected = read_xlmr(folder).weights
    index, names = split(folder, kind)
    for path in (folder, index):
        found = read_xlmr(path)
        assert found.path == index and found.weights.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in found.weights.items())
    files = json.loads(index.read_text())["weight_map"]
    for content, told in (({**files, "lm_head.more": names[0]}, "its files lack lm_head.more: fetch them again"),
                          ({**files, "lm_head.bias": 3}, "is damaged, or no index of a model's files: fetch it again"),
                          ([], "is damaged, or no index of a model's files")):  # fmt: skip
        index.write_text(json.dumps({"weight_map": content}))
        with pytest.raises(UserError, match=rf"{index.name}: {told}"):
            read_xlmr(folder)
    index.write_text(json.dumps({"weight_map": files}))
    (folder / names[1]).unlink()
    with pytest.raises(UserError, match=rf"{names[1]}: (cannot be read|no such)"):
        read_xlmr(folder)
