# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is done with a pre-trained XLM-E: its discriminator through each tool, against the model's own states."""

import json
import logging
from argparse import Namespace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from conftest import error_line, make_dictionary, save_pretrained, save_with_vocabulary
from support.converted import encode, load, same
from support.converted import tokens as sequences
from support.nlu import TOKENS, make_nlu, options, save_finetuned, write_pairs
from support.xlme import make_xlme
from support.xlmr import needs_transformers
from torch.nn.functional import normalize

from veco_fairseq.benchmarks import comparison, training
from veco_fairseq.benchmarks.softmax import knn
from veco_fairseq.checkpoints.averaging import average_checkpoints
from veco_fairseq.checkpoints.huggingface import export_hf, import_transformers, largest_difference
from veco_fairseq.checkpoints.pretrained import read_pretrained
from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.cost.memory import Batch, kept_for_the_backward_pass, training_memory
from veco_fairseq.errors import UserError
from veco_fairseq.inference.pretrained import load_pretrained
from veco_fairseq.inference.states import layer_states
from veco_fairseq.models.base import architecture
from veco_fairseq.models.xlme import DetectionHead, XlmeModel
from veco_fairseq.retrieval.states import sentence_states

PAD = 1
LINES = ["the dog sees the cat", "who sees the cat", "a dog and a cat are here", "here is a dog"]
# With tables of their own, shared ones, and these of fewer dimensions.
TABLES = [{"generator_embeddings": "own"}, {}, {"table_dim": 8}]


def make(symbols=None, arch="xlme_tiny", **options):
    return make_xlme(symbols, arch="xlme_tiny", **options)


@pytest.fixture(params=TABLES, ids=["own", "shared", "embed-dim"])
def saved(request, tmp_path):
    """A checkpoint with its vocabulary beside it."""
    return save_with_vocabulary(tmp_path / "pretrained", make, LINES * 3, 22, **request.param)


def built(checkpoint) -> XlmeModel:
    """The model of a checkpoint, put together by hand."""
    state = torch.load(checkpoint, weights_only=False)
    dictionary = make_dictionary(len(state["task_state"]["symbols"]) - 5)
    model = XlmeModel.build_model(state["cfg"]["model"], SimpleNamespace(source_dictionary=dictionary))
    model.load_state_dict(state["model"], strict=True)
    return model.eval()


@torch.no_grad()
def test_discriminator_is_read_and_generator_left_out(saved):
    model, read = built(saved), read_pretrained(saved, plain=False)
    assert read.weights.keys() == model.state_dict().keys() and read.notes == []
    read = read_pretrained(saved)
    expected = {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    folded = model.args.table_dim is not None
    assert read.weights.keys() == {name for name in expected if ".project." not in name}
    for name, tensor in read.weights.items():
        if folded and name.endswith("embed_tokens.weight"):
            every_token = torch.arange(len(tensor))
            assert torch.allclose(tensor, model.encoder.sentence_encoder.embed_tokens(every_token), atol=1e-6)
        else:
            assert torch.equal(tensor, expected[name])
    left_out = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in model.encoder.parameters())
    assert f"generator and detection head are left out ({left_out:,} parameters)" in read.notes[0]
    assert len(read.notes) == 1 + folded and not read.has_lm_head and not read.has_cross_attention


@torch.no_grad()
def test_retrieval_and_alignment(saved, run, tmp_path):
    pretrained, model = load_pretrained(str(saved), cpu=True), built(saved)
    found = sentence_states(pretrained, LINES, layers=[2])[0]
    for line, state in zip(LINES, found, strict=True):
        assert torch.allclose(state, normalize(model.unplugged(pretrained.encode(line))[0].mean(0), dim=0), atol=1e-6)
    if pretrained.model.args.table_dim:
        return
    for lang in "ab":
        (tmp_path / lang).write_text("\n".join(LINES) + "\n")
    done = run("scripts/retrieve.py", "tatoeba", saved, "--pairs", f"x={tmp_path / 'a'},{tmp_path / 'b'}", "--cpu")
    assert done.returncode == 0 and "100.0" in done.stdout, done.stderr
    done = run("scripts/align.py", saved, "--source", tmp_path / "a", "--target", tmp_path / "b", "--cpu", "--apart")
    assert done.returncode == 0 and done.stdout.splitlines()[1].split()[0] == "0-0", done.stderr


@needs_transformers
@torch.no_grad()
def test_hidden_states_equal_transformers(saved, run, tmp_path):
    transformers, model = import_transformers(), built(saved)
    done = run("scripts/export_hf.py", "--checkpoint", saved, "--output", tmp_path / "hf")
    assert done.returncode == 0 and "note: no LM head: an XLMRobertaModel" in done.stdout, done.stderr
    assert "note: XLM-E: its discriminator" in done.stdout and "cross-attention" not in done.stdout
    assert float(done.stdout.split()[-1]) < 1e-5
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["architectures"] == ["XLMRobertaModel"]
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    assert isinstance(theirs, transformers.XLMRobertaModel)
    ids = sequences((9, 5), seed=1)
    ids[ids > 3] %= config["vocab_size"] - 5
    real = ids.ne(PAD)
    found = theirs(ids, attention_mask=real.long(), output_hidden_states=True).hidden_states
    for theirs_, ours in zip(found, layer_states(model, ids), strict=True):
        torch.testing.assert_close(theirs_[real], ours[real], atol=1e-5, rtol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer(LINES[0])["input_ids"] == load_pretrained(str(saved)).encode(LINES[0])[0].tolist()


# Understanding


@pytest.mark.parametrize("table", [{}, {"table_dim": 8}], ids=["shared", "embed-dim"])
def test_understanding_starts_from_it(table, caplog, tmp_path):
    xlme, model = make_xlme(**table), make_nlu(encoder_layers=2, arch="veco_nlu_tiny", **table)
    head = {name: tensor.clone() for name, tensor in model.head.state_dict().items()}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(xlme.state_dict(), strict=True)
    (told,) = caplog.messages
    assert told.startswith("left out of the checkpoint: its generator and detection head")
    assert all(torch.equal(tensor, model.encoder.state_dict()[n]) for n, tensor in xlme.encoder.state_dict().items())
    assert all(torch.equal(tensor, model.head.state_dict()[name]) for name, tensor in head.items())
    alone = torch.full((3,), -1)
    assert torch.equal(model.features(TOKENS, alone), xlme.unplugged(TOKENS))
    checkpoint = save_finetuned(tmp_path / "nlu.pt", model, "classification", ["a", "b", "c"])
    assert len(export_hf(checkpoint, tmp_path / "hf").notes) == len(table) + 1  # there is no tokenizer
    assert import_transformers() is None or largest_difference(checkpoint, tmp_path / "hf") < 1e-5
    with pytest.raises(UserError, match="--plug in: the checkpoint's model has no cross-attention"):
        make_nlu(plug_in=True, encoder_layers=2, **table).load_state_dict(xlme.state_dict())


def test_without_the_plug_there_is_no_cross_attention(make_model, caplog):
    """VECO's is left out, and the outputs stay the same."""
    veco, model = make_model(), make_nlu()
    assert not [name for name in model.state_dict() if "encoder_attn" in name]
    with caplog.at_level(logging.INFO):
        model.load_state_dict(veco.state_dict(), strict=True)
    left_out = ("LM head (6 tensors)", "cross-attention (30 tensors)")  # of three layers: four projections and a LayerNorm
    assert caplog.messages == [f"left out of the checkpoint: its {part}" for part in left_out]
    assert torch.equal(model.unplugged(TOKENS), veco.unplugged(TOKENS))


def test_fine_tuning_from_the_command_line(run, tmp_path):
    saved = save_with_vocabulary(tmp_path / "pretrained", make, LINES * 3, 22)
    data = write_pairs(tmp_path / "pairs", rows=8, languages=("en", "de"))
    sizes = ("--encoder-layers", "2", "--max-positions", "64", "--max-length", "32", "--max-update", "1")
    trained = run(*options(data, saved, tmp_path / "nlu", *sizes, "--lr", "1e-9"))
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert "left out of the checkpoint: its generator and detection head" in trained.stdout + trained.stderr
    best = tmp_path / "nlu/checkpoint_best.pt"
    tuned, ours = read_pretrained(best).weights, read_pretrained(saved).weights
    assert all(torch.allclose(tensor, tuned[name], atol=1e-6) for name, tensor in ours.items())
    done = run("scripts/evaluate_xtreme.py", "run", best, "--data", data, "--cpu")
    assert done.returncode == 0 and done.stderr == "", done.stderr


# Translation, attention, averages


def test_converted_with_a_new_cross_attention(run, tmp_path):
    model = make()
    saved = save_pretrained(tmp_path / "xlme.pt", model, make_dictionary().symbols, objective="")
    command = ("scripts/convert_to_seq2seq.py", "--checkpoint", saved, "--output", tmp_path / "mt.pt",
               "--decoder-layers", "1")  # fmt: skip
    assert "has no cross-attention to convert: --random-cross-attention" in error_line(run(*command))
    assert "--keep-lm-head: the model of" in error_line(run(*command, "--random-cross-attention", "--keep-lm-head"))
    report = convert_to_seq2seq(saved, tmp_path / "mt.pt", 1, random_cross_attention=True)
    assert report["arch"] == "veco_mt_tiny" and report["notes"][0].startswith("XLM-E: its discriminator")
    mt, _ = load(tmp_path / "mt.pt")
    left, right = (sequences((9, 5), seed=3, left=left) for left in (True, False))
    found = encode(mt, left)["encoder_out"][0].transpose(0, 1)
    same(found, left, model.unplugged(right), right)
    ours, theirs = model.encoder.sentence_encoder.layers[1], mt.decoder.layers[0]
    assert torch.equal(ours.fc1.weight, theirs.fc1.weight)
    assert torch.equal(ours.self_attn.q_proj.weight, theirs.self_attn.q_proj.weight)


def test_attention_is_of_a_sequence_to_itself_alone(run, tmp_path):
    saved = save_with_vocabulary(tmp_path / "pretrained", make, LINES * 3, 22)
    sentences = ("--source", "a dog", "--target", "a cat")
    command = ("scripts/plot_attention.py", saved, *sentences, "--output", tmp_path / "a.png")
    assert "--attention cross: the model has no cross-attention" in error_line(run(*command))
    done = run(*command, "--attention", "self")
    assert done.returncode == 0 and (tmp_path / "a.png").exists(), done.stderr


def test_average(tmp_path):
    models = [make(), make()]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.add_(1)
    paths = [save_pretrained(tmp_path / f"{n}.pt", model, make_dictionary().symbols) for n, model in enumerate(models)]
    average_checkpoints(paths, tmp_path / "mean.pt")
    first, mean = (read_pretrained(path) for path in (paths[0], tmp_path / "mean.pt"))
    assert first.notes == mean.notes
    for name, tensor in first.weights.items():
        assert name.endswith(".version") or torch.allclose(tensor + 0.5, mean.weights[name])


# Figures


def test_what_training_takes(make_root, train, run, tmp_path):  # noqa: F811
    root = make_root(lines=20, valid_lines=4)
    trained = train(root, "--criterion", "replaced_token", "--arch", "xlme_tiny", "--encoder-embed-dim", "16",
                    "--max-update", "1", "--disable-validation")  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    saved = tmp_path / "checkpoints/checkpoint_last.pt"
    counted = run("scripts/count_operations.py", saved, "--sample-updates", "1")
    assert counted.returncode == 0 and "1 updates x" in counted.stdout, counted.stderr
    shown = run("scripts/inspect_data.py", root, "--arch", "xlme_tiny")
    model = XlmeModel.build_model(architecture("xlme_tiny"), SimpleNamespace(source_dictionary=make_dictionary()))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert f"xlme_tiny: {parameters:,} parameters; with gradients and Adam" in shown.stdout, shown.stderr


@pytest.mark.parametrize("tlm", [True, False])
def test_memory_is_of_generator_and_discriminator(tlm):
    args = architecture("xlme_tiny")
    memory = training_memory(args, make_dictionary(), Batch(3, 8, 0.25, tlm))
    model = XlmeModel.build_model(args, SimpleNamespace(source_dictionary=make_dictionary())).train()
    tokens = torch.full((3, 16) if tlm else (6, 8), 5)

    def layers():
        return model.generator(tokens), model.detection_head(model.encoder(tokens).flatten(0, 1))

    assert memory.activations == kept_for_the_backward_pass(layers, model.parameters())
    assert memory.loss == 4 * (4 * 12 * 192 + 12 * 45 + 45 * 192)  # 3 x 2 x 8 / 4 masked tokens


def test_benchmark(monkeypatch):
    options = {"arch": "xlme_tiny", "vocabulary": 300, "tokens": 64, "length": 8, "updates": 1, "autocast": "none"}
    args = Namespace(command="pretrain", **options, rounds=1, device="cpu", job=None, json=None, profile=False)
    monkeypatch.setattr(training.patching, "undo", lambda patches: None)  # other tests need them
    monkeypatch.setattr(comparison, "matmul_rate", partial(comparison.matmul_rate, seconds=0.02))
    monkeypatch.setattr(comparison, "in_turn", lambda jobs, rounds, peers: {
        name: [training.train(training.pretraining(name, args))] for name in jobs
    })  # fmt: skip
    figures = training.pretrain(args)
    ours, peer = figures["replaced_token"], figures["fairseq masked_lm"]
    assert ours["tokens"] == 2 * peer["tokens"] == 128  # a monolingual and a bitext batch
    # Of 2 x 64 tokens, a generator's layer and the discriminator's three; of 64, fairseq's three.
    assert 2 * 4 / 3 * 0.9 < ours["operations"] / peer["operations"] < 2 * 4 / 3 * 1.2
    for figure in (ours, peer):
        assert figure["mfu"] == pytest.approx(figure["operations"] / figure["seconds"] / figures["matmul_rate"]["fp32"])
    assert figures["ratios"]["fairseq masked_lm"] == pytest.approx(ours["rate"] / peer["rate"])
    with pytest.raises(UserError, match="k-NN target sampling goes with --criterion camlm"):
        knn(args)


def test_the_detection_head_takes_states_of_any_shape():
    head = DetectionHead(4, "gelu")
    states = torch.randn(3, 1, 4)
    assert head(states).shape == (3, 1) and torch.allclose(head(states)[2, 0], head(states[2, 0]))
