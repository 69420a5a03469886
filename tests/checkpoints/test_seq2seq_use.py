# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Converted models in use: with an LM head or tied self-attention, fine-tuned, translating."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import LAYERS, make_dictionary
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, build_model
from support.converted import CHOICES, decode, encode, load, same, tokens

from veco_fairseq.checkpoints.averaging import UPDATE, average_checkpoints, last_checkpoints
from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.errors import UserError
from veco_fairseq.inference.scoring import read_generate_output


@torch.no_grad()
def test_kept_lm_head_predicts_as_in_pretraining(pretrained, checkpoint, tmp_path):
    """The decoder's logits, without its causal mask, are the LM head's over S; of a smaller dictionary, its rows."""
    sources, targets = tokens([4, 9, 6], seed=6), tokens([8, 3, 5], seed=7)
    state = pretrained.plugged(targets, pretrained.unplugged(sources), sources)
    expected = pretrained.encoder.lm_head(state)
    output, path = tmp_path / "out.pt", tmp_path / "dict.txt"
    report = convert_to_seq2seq(checkpoint, output, LAYERS, keep_lm_head=True)
    assert {"veco_transformer_tiny", "--keep-lm-head"} < set(report["finetune_options"].split())
    model = load(output)[0]
    logits = model.decoder(targets, encoder_out=encode(model, sources), full_context_alignment=True)[0]
    same(logits, targets, expected[..., :-1], targets)  # but <mask>'s, the last
    path.write_text("w30 1\nnew 1\nw7 1\n")
    convert_to_seq2seq(checkpoint, output, LAYERS, dictionary=path, keep_lm_head=True, allow_new_tokens=True)
    small = load(output, Dictionary.load(str(path)))[0]
    for name in ("weight", "bias"):
        found, expected = getattr(small.decoder.output_projection, name), getattr(pretrained.encoder.lm_head, name)
        torch.testing.assert_close(found[[0, 1, 2, 3, 4, 6]], expected[[0, 1, 2, 3, 34, 11]])


@pytest.mark.parametrize("selection", CHOICES)
def test_tied_self_attention_is_one_in_model_and_file(checkpoint, tmp_path, selection):
    paths = [tmp_path / "tied.pt", tmp_path / "untied.pt"]
    report = convert_to_seq2seq(checkpoint, paths[0], 5, layer_selection=selection, tie_self_attention=True)
    convert_to_seq2seq(checkpoint, paths[1], 5, layer_selection=selection)
    tied, untied = (load(path)[0] for path in paths)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        shared = [getattr(layer.self_attn, name) for layer in tied.encoder.layers]
        assert [shared.index(getattr(layer.self_attn, name)) for layer in tied.decoder.layers] == CHOICES[selection]
    saved = sum(p.numel() for layer in untied.decoder.layers for p in layer.self_attn.parameters())
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters()) == saved
    assert paths[1].stat().st_size - paths[0].stat().st_size > 4 * saved
    (group,) = [group for group in report["groups"] if group["action"] == "tied"]
    assert group["parameters"] == saved * len(set(CHOICES[selection])) // 5
    sources, targets = tokens([4, 9, 6], seed=8), tokens([8, 3, 5], seed=9)
    expected = decode(untied, targets, encode(untied, sources))
    same(decode(tied, targets, encode(tied, sources)), targets, expected, targets)

    # Token by token too, where every layer has to remember its own keys and values, also of a shared one.
    row, memory, so_far = targets[:1], encode(tied, sources[:1]), {}
    with torch.no_grad():
        whole = tied.decoder(row, encoder_out=memory)[0]
        steps = [tied.decoder(row[:, :end], encoder_out=memory, incremental_state=so_far)[0]
                 for end in range(1, row.size(1) + 1)]  # fmt: skip
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"tie_self_attention": "0,x"}, "0,x: give encoder layers such as 3,4,5"),
        ({"tie_self_attention": "0"}, "1 layers for --decoder-layers 2"),
        ({"tie_self_attention": "0,3"}, "0,3: the encoder has layers 0 to 2"),
        ({"tie_self_attention": "0,1", "decoder_attention_heads": 2}, "encoder and decoder differ"),
    ],
)
def test_layers_that_cannot_be_tied(options, message):
    args = Namespace(arch="veco_transformer_tiny", decoder_layers=2, **options)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    words = make_dictionary(mask=False)
    with pytest.raises(UserError, match=message):
        build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words))


@pytest.fixture
def translation_data(run, tmp_path):
    """Reversed sequences of the model's tokens, through fairseq-preprocess with the dictionary of pre-training."""
    words = make_dictionary(mask=False)
    words.save(str(tmp_path / "dict.txt"))
    generator = torch.Generator().manual_seed(1)
    for split, lines in (("train", 60), ("valid", 7), ("test", 7)):
        sources = [torch.randint(4, 44, (4,), generator=generator).tolist() for _ in range(lines)]
        for lang, texts in (("aa", sources), ("bb", [line[::-1] for line in sources])):
            text = "".join(" ".join(words[token] for token in line) + "\n" for line in texts)
            (tmp_path / f"{split}.{lang}").write_text(text)
    prefixes = [part for split in ("train", "valid", "test") for part in (f"--{split}pref", tmp_path / split)]
    done = run(
        "fairseq-preprocess", "-s", "aa", "-t", "bb", *prefixes, "--destdir", tmp_path / "data",
        "--srcdict", tmp_path / "dict.txt", "--joined-dictionary",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Dictionary.load(str(tmp_path / "data" / "dict.aa.txt")).symbols == words.symbols  # not rounded up
    return tmp_path / "data"


@pytest.mark.parametrize("extras", [{}, {"keep_lm_head": True, "tie_self_attention": True}], ids=["stock", "own"])
def test_fine_tuning_and_generating(run, checkpoint, translation_data, tmp_path, extras):
    """OUT.pt translates as it is, fairseq-train starts from it, and fairseq-generate takes the mean of what that writes."""
    output = tmp_path / "out.pt"
    report = convert_to_seq2seq(checkpoint, output, 2, dictionary=translation_data / "dict.aa.txt", **extras)
    # Without command-line options, as tools that only have the file do.
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(output)])
    assert len(task.target_dictionary) == len(make_dictionary(mask=False))
    converted = {name: tensor.clone() for name, tensor in models[0].state_dict().items()}
    # A learning rate of zero: what is saved after an update is what was loaded.
    done = run(
        "fairseq-train", translation_data, "--user-dir", "veco_fairseq", *report["finetune_options"].split(),
        "--finetune-from-model", output, "--optimizer", "adam", "--lr", "0", "--max-tokens", "100",
        "--max-update", "2", "--save-dir", tmp_path / "save", "--cpu", "--num-workers", "0", "--no-epoch-checkpoints",
        "--required-batch-size-multiple", "1", "--save-interval-updates", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "save" / "checkpoint_last.pt"))
    assert state["optimizer_history"][-1]["num_updates"] == 2
    assert state["model"].keys() == converted.keys()
    assert all(torch.equal(state["model"][name], tensor) for name, tensor in converted.items())
    if extras:
        shared = "encoder.layers.11.self_attn.q_proj.weight", "decoder.layers.1.self_attn.q_proj.weight"
        assert len({state["model"][name].data_ptr() for name in shared}) == 1
    hypotheses = []
    average_checkpoints(last_checkpoints(tmp_path / "save", 2, UPDATE), tmp_path / "averaged.pt")
    for path in (output, tmp_path / "averaged.pt"):
        done = run(
            "fairseq-generate", translation_data, "--user-dir", "veco_fairseq", "--path", path, "--beam", "2",
            "--max-len-b", "5", "--remove-bpe", "sentencepiece", "--scoring", "sacrebleu", "--cpu",
            "--num-workers", "0",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        (tmp_path / "generated.txt").write_text(done.stdout)
        hypotheses.append(read_generate_output(tmp_path / "generated.txt"))
    assert len(hypotheses[0]) == 7 and hypotheses[0] == hypotheses[1]
