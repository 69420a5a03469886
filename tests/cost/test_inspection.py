# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""scripts/inspect_data.py: the numbers it shows, and that it refuses what training refuses."""

import re
import shutil
import tracemalloc
from pathlib import Path

import pytest
import torch
from conftest import error_line, write_tokens
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from veco_fairseq.arguments import Parser
from veco_fairseq.commands import inspect as command
from veco_fairseq.cost import inspection
from veco_fairseq.data import tokens
from veco_fairseq.data.pairs import BitextPairs
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import architecture
from veco_fairseq.tables import aligned
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig


def test_shows_what_training_would_do(run, make_root):
    root = make_root(mono=("aa",), bitext=("aa-bb",), lines=10)
    write_tokens(root / "mono/aa/train", [[9, 10], [], [5, 6, 3], [7, 8]])
    write_tokens(root / "bitext/aa-bb/train.aa-bb.aa", [[5, 6]] * 2 + [[7] * 200])
    write_tokens(root / "bitext/aa-bb/train.aa-bb.bb", [[3]] * 2 + [[9]])
    result = run("scripts/inspect_data.py", root, "--max-tokens", "2000", "--arch", "veco_tiny", "--examples", "1")
    assert result.returncode == 0, result.stderr
    train = result.stdout.split("valid:")[0]
    # kind, name, sentences, documents, pairs, dropped, tokens, unknown, longest, sampled
    assert re.search(r"\n  mono +aa +3 +2 +2 +0 +7 +1 \(14\.29%\) +5 +1\.0000", train), train
    assert re.search(r"bitext +aa-bb +2 +- +2 +1 +207 +2 \(0\.97%\) +4 +1\.0000", train), train
    assert re.search(r"aa-bb y: <s> \S+ </s>", train), train
    assert re.findall(r"  (\S+ [xy]): <s>", train) == ["aa x", "aa y", "aa-bb x", "aa-bb y"] and "<pad>" not in result.stdout
    assert "bitext: a pass is 2 pairs in 1 batches of 2 to 2 pairs (mean 2.0) of one worker" in train
    assert "an epoch on one worker is 1 updates of mono + bitext" in train
    assert (
        "bitext: validation is 12 pairs in 1 batches of 12 to 12 pairs (mean 12.0) of all workers"
        in result.stdout.split("valid:")[1]
    )
    assert re.search(r"veco_tiny: [\d,]+ parameters; with gradients and Adam \d\.\d\d GiB", train), train
    assert re.search(r"memory of a worker on a CPU, about: .* \(a bitext batch of 2 pairs, 4 tokens a side\)", train), train


def test_numbers_of_batches_and_bytes():
    assert inspection._batches([300, 1500, 6], 1806) == "1,806 pairs in 3 batches of 6 to 1,500 pairs (mean 602.0)"
    assert inspection._gib(1500 * 2**30 + 2**29) == "1,500.50 GiB"


def test_the_sides_of_a_table_are_words_on_the_left_and_numbers_on_the_right():
    rows = [("kind", "name", "pairs"), ("mono", "a", "10"), ("bitext", "aa-bb", "1,000")]
    assert aligned(rows, left=range(2)) == [
        "kind    name   pairs",
        "mono    a         10",
        "bitext  aa-bb  1,000",
    ]


def test_generator_of_its_own_embeddings_has_more_parameters(run, make_root):
    root, told = make_root(), []
    for options in ((), ("--generator-layers", 3), ("--generator-embeddings", "own")):
        result = run("scripts/inspect_data.py", root, "--arch", "xlme_tiny", *options)
        told.append(int(re.search(r"xlme_tiny: ([\d,]+) parameters", result.stdout)[1].replace(",", "")))
    one_layer = 12 * 192**2 + 13 * 192  # 4 + 8 matrices; their biases, and two LayerNorms
    assert told[1] - told[0] == 2 * one_layer and told[2] > told[0]


def test_each_option_of_the_model_changes_its_size_or_memory(make_root, capsys):
    root = make_root()
    parser = Parser()
    command.add_arguments(parser)

    def told(*options):
        """Parameters, and GiB of activations."""
        command.main(parser.parse_args([str(root), *"--arch veco_tiny --max-tokens 200000".split(), *map(str, options)]))
        numbers = re.search(
            r"veco_tiny: ([\d,]+) parameters.*, of it ([\d.]+) GiB of activations", capsys.readouterr().out, re.DOTALL
        )
        return int(numbers[1].replace(",", "")), float(numbers[2])

    parameters, activations = told()
    factorised, of_checkpoints = told("--embed-dim", 64, "--checkpoint-activations")
    assert factorised == parameters + 45 * (64 - 192) + 64 * 192  # of 45 tokens
    assert of_checkpoints < activations / 10
    one_layer = (4 * 192**2 + 4 * 192) * 2 + 8 * 192**2 + 5 * 192 + 3 * 2 * 192  # two attentions, the FFN, three LayerNorms
    assert told("--encoder-layers", 5)[0] == parameters + 2 * one_layer
    assert told("--device", "cuda")[1] != told("--device", "cpu")[1] == activations
    with_bias, in_bf16 = told("--relative-position-bias", "--autocast", "bf16")
    assert with_bias > parameters and in_bf16 == pytest.approx(0.6 * activations, abs=0.02)


def test_refuses_what_training_refuses(run, make_root):
    root = make_root()
    assert "there is veco_tiny" in error_line(run("scripts/inspect_data.py", root, "--arch", "veco_huge"))
    spread = run("scripts/inspect_data.py", root, "--bitext-mask-spread", "0.3")
    assert "--bitext-mask-spread 0.3: must be from 0 to 0.25" in error_line(spread)
    assert "--mono-langs zz" in error_line(run("scripts/inspect_data.py", root, "--mono-langs", "zz"))
    assert "--mono-alpha -1" in error_line(run("scripts/inspect_data.py", root, "--mono-alpha", "-1"))
    assert "--bitext-mask-prob 0" in error_line(run("scripts/inspect_data.py", root, "--bitext-mask-prob", "0"))
    write_tokens(root / "bitext/aa-bb/valid.aa-bb.aa", [[5, 6]] * 3)
    assert "aa-bb: 3 lines on one side" in error_line(run("scripts/inspect_data.py", root))
    assert "no such folder" in error_line(run("scripts/inspect_data.py", root / "nowhere"))


def test_a_shard_needs_no_dictionary_and_no_validation_set_and_has_no_other_dictionary(make_root, tmp_path):
    """As in training, which validates on the first root alone."""
    root, other = make_root(), tmp_path / "other"
    shutil.copytree(root, other, ignore=shutil.ignore_patterns("valid*", "dict.txt"))
    cfg = CamlmTaskConfig(data=f"{root}:{other}", seed=1)
    told = [list(inspection.inspect_root(path, cfg, 400, model=architecture("veco_tiny"))) for path in (root, other)]
    assert [("train:" in lines, "valid:" in lines) for lines in told] == [(True, True), (True, False)]
    (other / "dict.txt").write_text("a 1\n")
    with pytest.raises(UserError, match="other/dict.txt: differs from .*: shards need one dictionary"):
        list(inspection.inspect_root(other, cfg, 400, model=architecture("veco_tiny")))


@pytest.mark.parametrize("arch, all_masked", [("veco_tiny", False), ("xlme_tiny", True)])
def test_examples_are_masked_as_the_architecture_is_trained(make_root, arch, all_masked):
    """XLM-E hides every token that it predicts, and VECO leaves some, or puts others in their places."""
    cfg = CamlmTaskConfig(data=str(make_root(lines=9)), seed=1, mono_mask_prob=1.0, bitext_mask_prob=1.0)
    told = inspection.inspect_root(Path(cfg.data), cfg, 400, model=architecture(arch), examples=5)
    shown = [line.partition(": <s> ")[2].split() for line in told if ": <s> " in line]
    assert shown and {words.pop() for words in shown} == {"</s>"}
    assert all(set(words) <= {"<mask>"} for words in shown) == all_masked


def test_an_architecture_of_understanding_is_refused_at_once(make_root):
    cfg = CamlmTaskConfig(data=str(make_root()), seed=1)
    with pytest.raises(UserError, match="^--arch veco_nlu_tiny: is for understanding: give one of pre-training$"):
        next(inspection.inspect_root(Path(cfg.data), cfg, 400, model=architecture("veco_nlu_tiny")))


@pytest.mark.parametrize("words, gpu, device", [("", True, "cuda"), ("", False, "cpu"), ("--device cpu", True, "cpu")])
def test_what_an_inspection_is_asked_for(tmp_path, monkeypatch, capsys, words, gpu, device):
    """Each root with all options; for the GPU that there is, unless another device is named."""
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(inspection, "inspect_root", lambda *given, **more: asked.append((given, more)) or ["one", "two"])
    for root in ("a", "b"):
        (tmp_path / root).mkdir()
    parser = Parser()
    command.add_arguments(parser)
    roots = [tmp_path / "a", tmp_path / "b"]
    options = f"--arch xlme_tiny --max-tokens 77 --examples 3 --generator-layers 2 --embed-dim 64 {words}".split()
    command.main(parser.parse_args([":".join(map(str, roots)), *options]))
    assert capsys.readouterr().out == "".join(f"{root}:\none\ntwo\n" for root in roots)
    for root, ((path, args, max_tokens), more) in zip(roots, asked, strict=True):
        model = more.pop("model")
        assert (path, max_tokens, more) == (root, 77, {"device": device, "examples": 3})
        assert (args.mono_max_length, args.seed, args.update_freq) == (512, 1, [1])
        assert (model.arch, model.generator_layers, model.table_dim, model.encoder_layers) == ("xlme_tiny", 2, 64, 3)


def test_a_root_with_a_colon_in_its_name_is_one(tmp_path, monkeypatch, capsys):
    """As for training, and as of a time."""
    root = tmp_path / "2026-11-30T02:53"
    root.mkdir()
    monkeypatch.setattr(inspection, "inspect_root", lambda path, *given, **more: [path.name])
    parser = Parser()
    command.add_arguments(parser)
    command.main(parser.parse_args([str(root)]))
    assert capsys.readouterr().out == f"{root}:\n2026-11-30T02:53\n"


@pytest.mark.parametrize("option, value", [("--generator-layers", "3"), ("--generator-embeddings", "shared")])
def test_options_of_a_generator_are_refused_for_veco(tmp_path, option, value):
    parser = Parser()
    command.add_arguments(parser)
    with pytest.raises(UserError, match=rf"^{option}: is an option of --arch xlme_\*, not of veco_tiny$"):
        command.main(parser.parse_args([str(tmp_path), "--arch", "veco_tiny", option, value]))


def test_an_xlme_of_another_name_has_options_of_a_generator(tmp_path, monkeypatch, capsys):
    """It is told by its class."""
    for registry in (ARCH_MODEL_REGISTRY, ARCH_CONFIG_REGISTRY):
        monkeypatch.setitem(registry, "own_tiny", registry["xlme_tiny"])
    parser = Parser()
    command.add_arguments(parser)
    monkeypatch.setattr("veco_fairseq.cost.inspection.inspect_root", lambda *given, model, **more: [model.generator_layers])
    command.main(parser.parse_args([str(tmp_path), "--arch", "own_tiny", "--generator-layers", "2"]))
    assert capsys.readouterr().out == f"{tmp_path}:\n2\n"


def test_memory_does_not_hold_all_tokens(tmp_path, monkeypatch):
    """... of files that may be 100 GB: the unknown ones are counted part by part."""
    monkeypatch.setattr(tokens, "CHUNK", 1000)
    write_tokens(tmp_path / "aa", [[3, 5, 3] * 1000] * 240)
    write_tokens(tmp_path / "bb", [[6, 3]] * 240)
    source = BitextPairs("aa-bb", *(tokens.load_tokens(tmp_path / side) for side in ("aa", "bb")), max_length=4000)
    tracemalloc.start()
    try:
        row = inspection._row("bitext", source, 1.0, unk=3)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert row[6:8] == ("720,480", "480,240 (66.66%)")
    assert most < 300_000  # where a byte a token would be 720,000; NumPy's own buffers are 130,000
