# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""An XLM-R of Hugging Face or fairseq where a pre-trained model is asked for: its states are those of their own programs."""

import json
import shutil
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import error_line, save_with_vocabulary
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import roberta_base_architecture as roberta_base
from safetensors.torch import load_file, save_file
from support.models import all_random
from support.xlmr import DIM, HEADS, LAYERS, folder, hugging_face, needs_transformers, symbols, vocabulary  # noqa: F401  fixtures

from veco_fairseq.checkpoints.huggingface import export_hf
from veco_fairseq.checkpoints.xlmr_files import read_xlmr
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.inference.pretrained import load_pretrained
from veco_fairseq.inference.states import layer_states

LINES = ["abcd efgh", "hgfe"]


@needs_transformers
@pytest.mark.parametrize("name", ["", "model.safetensors"])
def test_the_states_are_those_of_transformers(folder, symbols, name):  # noqa: F811
    pretrained = load_pretrained(folder / name, cpu=True)
    assert pretrained.dictionary.symbols == symbols and pretrained.model.encoder.max_positions() == 64
    rows = pretrained.sequences(LINES)
    assert "".join(pretrained.tokens(torch.tensor(rows[0]))) == "<s>\u2581abcd\u2581efgh</s>"
    tokens = pretrained.batch(rows)
    with torch.no_grad():
        theirs = hugging_face(folder)(tokens, attention_mask=tokens.ne(1), output_hidden_states=True).hidden_states
        ours = layer_states(pretrained.model, tokens)
    assert len(ours) == len(theirs) == LAYERS + 1
    for state, expected in zip(ours, theirs):
        assert state.shape == (2, len(rows[0]), DIM)
        assert torch.allclose(state[tokens.ne(1)], expected[tokens.ne(1)], atol=1e-5)
    with pytest.raises(UserError, match="the model has no cross-attention: give --attention self"):
        pretrained.cross_attention(tokens[:1], tokens[1:])


@pytest.mark.parametrize("name", ["", "model.pt"])
def test_the_states_are_those_of_fairseqs_roberta(vocabulary, symbols, tmp_path, name):  # noqa: F811
    shutil.copytree(vocabulary, tmp_path / "xlmr")
    args = Namespace(arch="roberta_base", encoder_layers=LAYERS, encoder_embed_dim=DIM, encoder_ffn_embed_dim=2 * DIM,
                     encoder_attention_heads=HEADS, max_positions=64)  # fmt: skip
    roberta_base(args)
    theirs = all_random(RobertaModel.build_model(args, SimpleNamespace(source_dictionary=dictionary_of(symbols)))).eval()
    torch.save({"args": args, "model": theirs.state_dict()}, tmp_path / "xlmr/model.pt")
    pretrained = load_pretrained(tmp_path / "xlmr" / name, cpu=True)
    tokens = pretrained.encode("abcd efgh")
    with torch.no_grad():
        assert torch.allclose(pretrained.model.unplugged(tokens), theirs(tokens, features_only=True)[0], atol=1e-5)


def test_an_exported_model_retrieves_as_the_one_that_it_was_made_of(run, tmp_path, make_model):
    lines = [f"{a}{b}n {b}d{a}" for a in "bdg" for b in "aeiou"]
    saved = save_with_vocabulary(tmp_path / "pretrained", make_model, lines, 16, activation_fn="gelu")
    export_hf(saved, tmp_path / "hf")
    (tmp_path / "x").write_text("\n".join(lines))
    (tmp_path / "y").write_text("\n".join(reversed(lines)))
    found = [
        run("scripts/retrieve.py", "tatoeba", model, "--pairs", f"p={tmp_path / 'x'},{tmp_path / 'y'}", "--cpu").stdout
        for model in (saved, tmp_path / "hf")
    ]
    assert found[0] == found[1] and found[0].startswith("accuracy (%) by layer")
    (tmp_path / "hf/sentencepiece.bpe.model").unlink()
    command = ("scripts/align.py", tmp_path / "hf", "--source", tmp_path / "x", "--target", tmp_path / "y", "--cpu")
    expected = "sentencepiece.bpe.model: no such file: fetch it with the model; where veco export-hf has left it out, give the"
    assert expected in error_line(run(*command))


def test_a_folder_that_does_not_fit_together_is_told(run, tmp_path, make_model):
    lines = [f"{a}{b}n {b}d{a}" for a in "bdg" for b in "aeiou"]
    export_hf(save_with_vocabulary(tmp_path / "pretrained", make_model, lines, 16), tmp_path / "hf")
    config, file = tmp_path / "hf/config.json", tmp_path / "hf/model.safetensors"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_attention_heads": 3}))
    with pytest.raises(UserError, match="model.safetensors: is 16 wide, and said to have 3 attention heads"):
        load_pretrained(tmp_path / "hf")
    tensors = load_file(file)
    for without, lacks in (("position", "embed_positions.weight"), ("layer.2.", "layers.2.self_attn.q_proj.weight")):  # the last
        save_file({name: tensor for name, tensor in tensors.items() if without not in name}, file)
        with pytest.raises(UserError, match=f"model.safetensors: lacks sentence_encoder.{lacks}: fetch it again"):
            load_pretrained(tmp_path / "hf")
    file.unlink()
    with pytest.raises(UserError, match=f"^{file}: no such checkpoint: check the path"):
        load_pretrained(file)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_without_their_configuration_are_told_to_need_it(tmp_path, make_model, name):
    """Their folder had been called one in which a checkpoint must be chosen."""
    folder = tmp_path / "hf"
    export_hf(save_with_vocabulary(tmp_path / "pretrained", make_model, ["a b c", "b d", "c d a"] * 9, 9), folder)
    if name.endswith(".bin"):
        torch.save(load_file(folder / "model.safetensors"), folder / name)
        (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    for read in (load_pretrained, read_xlmr):
        for given in (folder, folder / name):
            with pytest.raises(UserError) as refused:
                read(given)
            told = "no such file: it belongs beside the weights: fetch it with them"
            assert str(refused.value) == f"{folder / 'config.json'}: {told}"


def test_a_checkpoint_of_fairseq_is_known_by_what_it_holds(tmp_path, make_model):
    """Whatever its name ends in, also in a folder where it has the name of Hugging Face's."""
    saved = save_with_vocabulary(tmp_path / "pretrained", make_model, ["a b c", "b d", "c d a"] * 9, 9, activation_fn="gelu")
    expected = load_pretrained(saved, cpu=True).model.state_dict()
    assert any(".encoder_attn." in name for name in expected)
    renamed = saved.rename(saved.with_name("pytorch_model.bin"))
    for given in (renamed, renamed.parent):
        found = load_pretrained(given, cpu=True).model.state_dict()
        assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
        assert torch.equal(read_xlmr(given).weights["lm_head.bias"], expected["encoder.lm_head.bias"])
