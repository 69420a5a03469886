# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Loading a pre-trained model for the commands."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import save_with_vocabulary
from fairseq import utils
from fairseq.models import MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel

from veco_fairseq.data.sentencepiece import MODEL_NAME
from veco_fairseq.errors import UserError
from veco_fairseq.inference import finetuned, pretrained
from veco_fairseq.inference.pretrained import PretrainedModel, chosen_layers, load_pretrained


@pytest.mark.parametrize("cpu, there, device", [(False, True, "cuda"), (False, False, "cpu"), (True, True, "cpu")])
def test_the_device_is_the_one_asked_for_if_it_is_there(cpu, there, device, tmp_path, make_model, monkeypatch):
    checkpoint = save_with_vocabulary(tmp_path / "pretrained", make_model, ["a b c", "b d", "c d a"] * 9, 9)
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.nn.Module, "to", lambda model, where: chosen.append(where) or model)
    monkeypatch.setattr(pretrained, "default_workers", lambda: 7)
    assert load_pretrained(str(checkpoint), cpu=cpu).encoder.workers == 7
    assert chosen[-1] == device


def test_a_link_has_the_vocabulary_beside_the_file_to_which_it_leads(tmp_path, make_model):
    checkpoint = save_with_vocabulary(tmp_path / "pretrained", make_model, ["a b c", "b d", "c d a"] * 9, 9)
    link = tmp_path / "link.pt"
    link.symlink_to(checkpoint)
    expected = load_pretrained(str(checkpoint)).dictionary.symbols
    assert load_pretrained(str(link)).dictionary.symbols == expected
    (tmp_path / MODEL_NAME).write_text("another one, beside the link itself")
    with pytest.raises(UserError, match=f"^{tmp_path / 'dict.txt'}: no such file"):
        load_pretrained(str(link))


def test_a_loaded_model_is_no_longer_in_training(tmp_path, make_model):
    """Its dropout would give the same text other states, links and neighbours in each call."""
    checkpoint = save_with_vocabulary(tmp_path / "pretrained", make_model, ["a b c", "b d", "c d a"] * 9, 9)
    assert not any(module.training for module in load_pretrained(str(checkpoint)).model.modules())


def test_a_folder_may_have_a_colon_in_its_name(tmp_path, make_model):
    """Such as of the time when a training began; elsewhere it stands between several data roots or models."""
    checkpoint = save_with_vocabulary(tmp_path / "2026-11-29_03:00", make_model, ["a b c", "b d", "c d a"] * 9, 9)
    assert load_pretrained(str(checkpoint)).dictionary.symbols[-1] == "<mask>"
    folder = str(checkpoint.parent)
    assert utils.split_paths(folder) == [folder] and utils.split_paths(f"{folder}:b") == [f"{tmp_path}/2026-11-29_03", "00", "b"]


def test_another_kind_of_model_is_told(tmp_path, make_model, monkeypatch):
    checkpoint = save_with_vocabulary(tmp_path / "pretrained", make_model, ["a b c", "b d", "c d a"] * 9, 9)
    loaded = [torch.nn.Linear(1, 1)], None, None
    monkeypatch.setattr(pretrained.checkpoint_utils, "load_model_ensemble_and_task", lambda *given, **more: loaded)
    with pytest.raises(UserError, match=r"\.pt: is a Linear, not a pre-trained VECO or XLM-E"):
        load_pretrained(str(checkpoint))


@pytest.mark.parametrize(
    "options, arch",
    [
        ({"args": Namespace(arch="lstm")}, "lstm"),  # of fairseq before hydra
        ({"cfg": {"model": {"_name": "transformer_iwslt_de_en"}}}, "transformer_iwslt_de_en"),
        ({"cfg": {"model": Namespace(_name="veco_mt_tiny")}}, "veco_mt_tiny"),
        ({"cfg": {"model": Namespace(_name="own_roberta")}}, "own_roberta"),  # whose code may compute something else
    ],
)
def test_another_kind_of_model_is_told_before_its_other_files_are_missed(options, arch, tmp_path, monkeypatch):
    monkeypatch.setitem(MODEL_REGISTRY, "own_roberta", type("OwnRoberta", (RobertaModel,), {}))
    history = [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}]
    file = tmp_path / "model.pt"  # the name in fairseq's folders
    torch.save({"model": {"weight": torch.ones(2)}, "optimizer_history": history, "extra_state": {}, **options}, file)
    for given in (file, tmp_path):
        with pytest.raises(
            UserError, match=rf"model\.pt: has a model of --arch {arch}, not a pre-trained one: give a checkpoint of"
        ):
            load_pretrained(given)


def of_layers(count):
    encoder = SimpleNamespace(sentence_encoder=SimpleNamespace(layers=[None] * count, cross_attention=False))
    return PretrainedModel(SimpleNamespace(encoder=encoder), None, None)


def test_a_layer_is_one_that_is_there_and_the_middle_one_unless_it_is_named():
    assert [of_layers(count).layer_number(None) for count in (1, 4, 5)] == [0, 2, 2]
    assert [of_layers(5).layer_number(layer) for layer in (0, 4)] == [0, 4]
    for layer in (-1, 5):
        with pytest.raises(UserError, match=f"--layer {layer}: the model has layers 0 to 4"):
            of_layers(5).layer_number(layer)
    with pytest.raises(UserError, match="--attention cross: the model has no cross-attention: give --attention self"):
        of_layers(5).cross_attention(None, None)


def test_attention_of_a_text_that_is_too_long_is_refused(make_model):
    model = make_model(max_positions=8)
    loaded = PretrainedModel(model, model.encoder.dictionary, None)
    fits, longer = torch.full((1, 8), 5), torch.full((1, 9), 5)
    assert loaded.cross_attention(fits, fits).shape == loaded.self_attention(fits).shape == (8, 8)
    for attend in (
        lambda: loaded.cross_attention(longer, fits),
        lambda: loaded.cross_attention(fits, longer),
        lambda: loaded.self_attention(longer),
    ):
        with pytest.raises(UserError, match="^the text has 9 tokens, but the model has 8 positions: shorten it$"):
            attend()


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_self_attention_is_of_the_states_before_the_layer(make_model, layer):
    """The mean over the heads of softmax(q k / sqrt(d)), of the states that fairseq's RoBERTa has there."""
    model = make_model()
    roberta = RobertaModel.build_model(model.args, SimpleNamespace(source_dictionary=model.encoder.dictionary)).eval()
    roberta.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if ".encoder_attn" not in name})
    tokens = torch.tensor([[0, 5, 9, 7, 2]])
    with torch.no_grad():
        states = roberta(tokens, features_only=True, return_all_hiddens=True)[1]["inner_states"][layer][:, 0]
        module = roberta.encoder.sentence_encoder.layers[layer].self_attn
        q, k = (part(states).view(5, module.num_heads, -1).transpose(0, 1) for part in (module.q_proj, module.k_proj))
        expected = (q @ k.transpose(1, 2) / q.size(-1) ** 0.5).softmax(-1).mean(0)
    found = PretrainedModel(model, model.encoder.dictionary, None).self_attention(tokens, layer)
    assert torch.allclose(found, expected, atol=1e-5)


def test_layers_by_their_words_with_the_embeddings_as_0():
    assert chosen_layers(of_layers(3), None, "--layers") == [0, 1, 2, 3]
    assert chosen_layers(of_layers(3), ["3", "0"], "--layers") == [3, 0]
    for word in ("4", "-1", "x", "1.0"):
        with pytest.raises(UserError, match=f"--layers {word}: the model has layers 1 to 3, and 0 for the embeddings"):
            chosen_layers(of_layers(3), ["1", word], "--layers")


def test_two_texts_are_joined_with_two_ends_between():
    x, y = torch.tensor([[0, 5, 2]]), torch.tensor([[0, 6, 7, 2]])
    assert of_layers(1).join(x, y).tolist() == [[0, 5, 2, 2, 6, 7, 2]]


@pytest.mark.parametrize("cpu, there, device", [(False, True, "cuda"), (False, False, "cpu"), (True, True, "cpu")])
def test_a_finetuned_model_is_read_with_the_data_that_is_named(cpu, there, device, tmp_path, monkeypatch):
    """Its vocabulary lies beside it; the languages are those of the data, and not those of training."""
    (tmp_path / "m.pt").touch()
    state = {"cfg": SimpleNamespace(task=SimpleNamespace(_name="veco_nlu", nlu_task="tagging", plug="in"))}
    asked, chosen = [], []
    model = torch.nn.Linear(1, 1)
    monkeypatch.setattr(finetuned.checkpoint_utils, "load_checkpoint_to_cpu", lambda *words: asked.append(words) or state)
    monkeypatch.setattr(finetuned.checkpoint_utils, "load_model_ensemble_and_task", lambda paths, state: ([model], None, "task"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.nn.Module, "to", lambda model, where: chosen.append(where) or model)
    found = finetuned.load_finetuned(tmp_path / "m.pt", tmp_path / "data", cpu=cpu, pivot_lang="de")
    overrides = {"data": str(tmp_path / "data"), "vocabulary": str(tmp_path), "valid_langs": None, "pivot_lang": "de"}
    assert asked == [(str(tmp_path / "m.pt"), overrides)] and chosen == [device]
    assert found == (model, "task") and not model.training
    for cfg in (None, SimpleNamespace(task=SimpleNamespace(_name="camlm")), SimpleNamespace(task=None)):
        state["cfg"] = cfg
        with pytest.raises(UserError, match="m.pt: is no model of --task veco_nlu: fine-tune it first"):
            finetuned.load_finetuned(tmp_path / "m.pt", tmp_path)
    with pytest.raises(UserError, match="none.pt: no such checkpoint"):
        finetuned.load_finetuned(tmp_path / "none.pt", tmp_path)
    with pytest.raises(UserError, match=f"{tmp_path}: is a folder: give a checkpoint in it"):
        finetuned.load_finetuned(tmp_path, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        UserError, match=f"{tmp_path}: is of Hugging Face: give a checkpoint of fairseq; pre-training begins with"
    ):
        finetuned.load_finetuned(tmp_path, tmp_path)
