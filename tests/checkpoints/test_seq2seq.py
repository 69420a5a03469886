# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The conversion in numbers: the encoder computes H and the decoder, without its causal mask, S."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from conftest import LAYERS, error_line, make_dictionary, save_pretrained
from fairseq.models import build_model
from fairseq.models.transformer import TransformerModel
from support.converted import CHOICES, PAD, convert, decode, encode, load, same, tokens

from veco_fairseq.checkpoints.mapping import TABLE
from veco_fairseq.checkpoints.seq2seq import choose_layers, convert_to_seq2seq, report_lines
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.errors import UserError


@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_encoder_computes_h(pretrained, checkpoint, left):
    lengths = [9, 4, 1, 7]
    sources, stock_sources = tokens(lengths, seed=1), tokens(lengths, seed=1, left=left)
    found = encode(convert(checkpoint, 2), stock_sources)["encoder_out"][0].transpose(0, 1)
    same(found, stock_sources, pretrained.unplugged(sources), sources)


@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_full_depth_decoder_computes_s(pretrained, checkpoint, left):
    lengths = [3, 8, 5, 6]
    sources, stock_sources = tokens(lengths, seed=2), tokens(lengths, seed=2, left=left)
    targets = tokens([9, 2, 7, 1], seed=3)
    model = convert(checkpoint, LAYERS)
    expected = pretrained.plugged(targets, pretrained.unplugged(sources), sources)
    same(decode(model, targets, encode(model, stock_sources)), targets, expected, targets)


@pytest.mark.parametrize("selection", CHOICES)
@torch.no_grad()
def test_decoder_is_made_of_the_chosen_layers(pretrained, checkpoint, selection):
    """Independent of the converter: VECO's own layers, the chosen ones only, over H of the full depth."""
    sources, targets = tokens([4, 9, 6], seed=4), tokens([8, 3, 5], seed=5)
    model = convert(checkpoint, 5, layer_selection=selection)
    encoder = pretrained.encoder.sentence_encoder
    x, _ = encoder.forward_embedding(targets)
    x, memory = x.transpose(0, 1), pretrained.unplugged(sources).transpose(0, 1)
    for number in CHOICES[selection]:
        x = encoder.layers[number](x, targets.eq(PAD), memory, sources.eq(PAD))
    same(decode(model, targets, encode(model, sources)), targets, x.transpose(0, 1), targets)


@torch.no_grad()
def test_output_is_the_embeddings_times_the_states(pretrained, checkpoint):
    model = convert(checkpoint, LAYERS)
    sources, targets = tokens([5, 4], seed=6), tokens([6, 6], seed=7)
    logits = model.decoder(targets, encoder_out=encode(model, sources), full_context_alignment=True)[0]
    states = pretrained.plugged(targets, pretrained.unplugged(sources), sources)
    weight = pretrained.encoder.sentence_encoder.embed_tokens.weight[:-1]  # without <mask>
    torch.testing.assert_close(logits, states @ weight.T, atol=1e-4, rtol=1e-5)


def test_weights_are_tied_by_identity(checkpoint, tmp_path):
    model = convert(checkpoint, 3)
    assert model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight
    assert model.encoder.embed_positions.weight is not model.decoder.embed_positions.weight
    weights = load(tmp_path / "converted.pt")[1]["model"]
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert len({weights[name].data_ptr() for name in names}) == 1
    # Copies that training changes apart must not share memory in the file either.
    rest = [tensor.data_ptr() for name, tensor in weights.items() if name not in names]
    assert len(set(rest)) == len(rest)


def write_dictionary(path, symbols):
    path.write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")
    return path


@torch.no_grad()
def test_trimmed_and_reordered_dictionary_keeps_the_outputs_of_kept_tokens(checkpoint, tmp_path):
    kept = [f"w{number}" for number in (31, 2, 30, 3, 29, 4, 5, 6, 7, 8)]
    words = read_dictionary(write_dictionary(tmp_path / "dict.txt", kept))
    full = convert(checkpoint, 4)
    output = tmp_path / "trimmed.pt"
    report = convert_to_seq2seq(checkpoint, output, 4, dictionary=tmp_path / "dict.txt")
    trimmed = load(output, words)[0]
    old = make_dictionary()
    rows = torch.tensor([old.index(symbol) for symbol in words.symbols])  # new number -> old number
    assert old.unk() not in rows[4:] and len(rows) == 14 == report["tokens"]
    generator = torch.Generator().manual_seed(1)
    sources, targets = (torch.randint(4, 14, (3, length), generator=generator) for length in (6, 5))
    expected = full(rows[sources], None, rows[targets])[0]
    found = trimmed(sources, None, targets)[0]
    torch.testing.assert_close(found, expected[:, :, rows], atol=1e-5, rtol=1e-5)
    assert "dropped  rows of the token embeddings: 31 of 45 tokens" in "\n".join(report_lines(report))


def test_mask_is_carried_over_only_if_the_dictionary_has_it(pretrained, checkpoint, tmp_path):
    old = pretrained.encoder.sentence_encoder.embed_tokens.weight
    assert torch.equal(convert(checkpoint, 1).encoder.embed_tokens.weight, old[:-1])
    path = write_dictionary(tmp_path / "dict.txt", ["<mask>", "w0"])
    output = tmp_path / "mask.pt"
    convert_to_seq2seq(checkpoint, output, 1, dictionary=path)
    model = load(output, read_dictionary(path))[0]
    assert torch.equal(model.encoder.embed_tokens.weight[4:], old[[44, 4]])


def test_new_tokens_are_counted_initialised_and_past_one_per_cent_refused(make_model, tmp_path):
    old = make_dictionary(types=290)
    checkpoint = save_pretrained(tmp_path / "p.pt", make_model(old, layers=1, dim=32, arch="veco_tiny"), old.symbols)
    symbols = [f"w{number}" for number in range(290)]

    def attempt(*new, **options):
        path = write_dictionary(tmp_path / "dict.txt", [*new, *symbols])
        report = convert_to_seq2seq(checkpoint, tmp_path / "out.pt", 1, dictionary=path, **options)
        return report, load(tmp_path / "out.pt", read_dictionary(path))[0].encoder.embed_tokens.weight

    padding = [f"madeupword{number:04d}" for number in range(7)]
    report, weight = attempt("neu", "ß", *padding)  # 2 of 303 are below 1%, padding does not count
    line = [line for line in report_lines(report) if line.startswith("new ")][0]
    assert "9 of 303 tokens were not in pre-training ('neu', 'ß', " in line and "7 of them only round" in line
    assert report["groups"][-1]["parameters"] == 9 * 32
    with pytest.raises(UserError) as refused:
        attempt("neu", "ß", "ör", "x", *padding)
    message = str(refused.value)
    assert "4 of its 305 tokens are not among the 295" in message and "'neu', 'ß', 'ör', 'x'" in message
    assert "--allow-new-tokens" in message and "madeupword" not in message
    _, weight = attempt(*(f"n{number}" for number in range(200)), allow_new_tokens=True)
    std = 32**-0.5  # as fairseq's transformer
    assert 0.97 * std < weight[4:204].std() < 1.03 * std and abs(weight[4:204].mean()) < 0.05 * std
    _, again = attempt(*(f"n{number}" for number in range(200)), allow_new_tokens=True)
    _, other = attempt(*(f"n{number}" for number in range(200)), allow_new_tokens=True, seed=2)
    assert torch.equal(weight, again) and not torch.equal(weight, other)


def test_random_cross_attention_is_fairseqs_and_the_rest_pretrainings(checkpoint, tmp_path):
    """fairseq's MultiheadAttention: Xavier with gain 1/sqrt(2) for q, k, v, gain 1 for the output, whose bias is 0."""
    before = convert(checkpoint, 6).state_dict()
    report = convert_to_seq2seq(checkpoint, tmp_path / "random.pt", 6, random_cross_attention=True)
    after = load(tmp_path / "random.pt")[0].state_dict()
    limit = (6 / (16 + 16)) ** 0.5
    for name, tensor in after.items():
        if "encoder_attn" not in name:
            assert torch.equal(tensor, before[name]), name
            continue
        if "layer_norm" in name:
            assert tensor.eq(1 if name.endswith("weight") else 0).all(), name
        elif name.endswith("weight"):
            bound = limit if "out_proj" in name else limit / 2**0.5
            assert 0.9 * bound < tensor.abs().max() <= bound, name
        elif "out_proj" in name:
            assert tensor.eq(0).all(), name
    keys = [tensor for name, tensor in after.items() if re.search(r"encoder_attn\.k_proj\.weight$", name)]
    assert len(keys) == 6 and not torch.equal(keys[0], keys[1])
    groups = {(group["action"], group["what"]): group for group in report["groups"]}
    assert ("copied", "decoder cross-attention and its LayerNorm") not in groups
    assert groups["dropped", "decoder cross-attention and its LayerNorm"]["tensors"] == 12 * 10
    assert groups["new", "decoder cross-attention and its LayerNorm"]["tensors"] == 6 * 10
    convert_to_seq2seq(checkpoint, tmp_path / "other.pt", 6, random_cross_attention=True, seed=2)
    other = load(tmp_path / "other.pt")[0].state_dict()
    assert not torch.equal(other["decoder.layers.0.encoder_attn.k_proj.weight"], keys[0])


def test_untrained_cross_attention_of_mlm_is_pointed_out(pretrained, tmp_path):
    checkpoint = save_pretrained(tmp_path / "mlm.pt", pretrained, make_dictionary().symbols, objective="mlm")
    assert "never trained" in convert_to_seq2seq(checkpoint, tmp_path / "a.pt", 2)["notes"][0]
    assert not convert_to_seq2seq(checkpoint, tmp_path / "b.pt", 2, random_cross_attention=True)["notes"]


def test_report_accounts_for_every_parameter(pretrained, checkpoint, tmp_path):
    output = tmp_path / "out.pt"
    report = convert_to_seq2seq(checkpoint, output, 5)
    assert json.loads(output.with_name("out.pt.json").read_text()) == report
    counts = {action: 0 for action in ("copied", "dropped", "new")}
    for group in report["groups"]:
        counts[group["action"]] += group["parameters"]
    model = load(output)[0]
    assert counts["copied"] == sum(p.numel() for p in model.parameters()) + 2  # the version marks are no parameters
    assert counts["new"] == 0
    layer = pretrained.encoder.sentence_encoder.layers[0]
    cross = sum(p.numel() for name, p in layer.named_parameters() if name.startswith("encoder_attn"))
    head = sum(p.numel() for p in pretrained.encoder.lm_head.parameters())
    assert counts["dropped"] == 7 * cross + head + 16  # 7 layers not chosen, the head, <mask>
    assert report["decoder_layers_from"] == [7, 8, 9, 10, 11]


def test_table_is_anchored():
    """Names are changed at their start alone: nothing else in a name can be taken for it."""
    for row in TABLE:
        assert row.pattern.pattern.startswith("^")
        assert not row.pattern.match("x.encoder.sentence_encoder.layers.1.fc1.weight")
    taken = [row for row in TABLE if row.pattern.match("encoder.sentence_encoder.layers.1.self_attn_x.weight")]
    assert not taken


def test_options_of_the_converted_model_make_it_again(checkpoint, tmp_path):
    """The options that the report names build, with the preset's defaults, a model of the same shapes."""
    from fairseq import options

    report = convert_to_seq2seq(checkpoint, tmp_path / "out.pt", 5)
    arguments = ["data", *report["finetune_options"].split()]
    args = options.parse_args_and_arch(options.get_training_parser("translation"), arguments)
    words = make_dictionary(mask=False)
    model = build_model(args, SimpleNamespace(source_dictionary=words, target_dictionary=words))
    model.load_state_dict(load(tmp_path / "out.pt")[1]["model"], strict=True)
    assert type(model) is TransformerModel and args.arch == "veco_mt_tiny"


# Bad input


def test_all_layers():
    assert choose_layers("last", None, 12) == list(range(12))


# Command lines


def test_command(run, checkpoint, tmp_path):
    output = tmp_path / "deep" / "out.pt"
    command = "scripts/convert_to_seq2seq.py", "--checkpoint", checkpoint, "--output", output, "--decoder-layers"
    done = run(*command, 2, "--layer-selection", "11,3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == report_lines(json.loads((tmp_path / "deep" / "out.pt.json").read_text()))
    assert "of layers 11, 3 (20 tensors, 2,240 parameters)" in done.stdout
    assert done.stderr == ""
    before = output.read_bytes()
    assert "the checkpoint has 12 layers" in error_line(run(*command, 13))
    assert output.read_bytes() == before
