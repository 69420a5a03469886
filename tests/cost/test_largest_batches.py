# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Of many batches an inspection tells the largest, of both kinds the one that needs more memory, and whose pass is longer."""

import re
from itertools import takewhile

import pytest
from conftest import write_tokens

from veco_fairseq.cost import inspection
from veco_fairseq.cost.memory import Memory
from veco_fairseq.models.base import architecture
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig


@pytest.fixture
def lines(make_root, monkeypatch):
    """The lines of a report; the memory of a batch is its tokens in GiB, and seven times as much of the LM head."""
    root = make_root(mono=("aa",), bitext=("aa-bb",), lines=10)
    write_tokens(root / "mono/aa/train", [[5] * 4, [6] * 8, *[[], [7] * 30, [8] * 30] * 3])
    for lang in ("aa", "bb"):
        write_tokens(root / f"bitext/aa-bb/train.aa-bb.{lang}", [[5] * 2] * 40 + [[6] * 6] * 20 + [[7] * 30])
    asked = []

    def memory(args, dictionary, batch, *, device):
        asked.append((batch.share, batch.tlm, device))
        tokens = 2 * batch.pairs * batch.length
        return Memory(16 * 1234567, tokens * 2**30, 7 * tokens * 2**30)

    monkeypatch.setattr(inspection, "training_memory", memory)

    def lines(device="cpu", examples=0, max_tokens=96, **options):
        cfg = CamlmTaskConfig(data=str(root), seed=1, **options)
        model = architecture("veco_tiny")
        return "\n".join(inspection.inspect_root(root, cfg, max_tokens, model=model, device=device, examples=examples)), asked

    return lines


def test_the_longer_pass_is_an_epoch(lines):
    """Of 40 pairs of 4 tokens a side, twelve a batch of 96 tokens; 20 of 8, six a batch, and one of 32; and four of one language."""
    found, _ = lines(bitext_mask_prob=0.3, mono_mask_prob=0.2)
    passes = {kind: int(count) for kind, count in re.findall(r"(\w+): a pass is [\d,]+ pairs in ([\d,]+) batches", found)}
    assert 8 <= passes["bitext"] <= 10 and passes["mono"] == 4
    assert f"an epoch on one worker is {passes['bitext']} updates of mono + bitext" in found
    assert "an epoch on one worker is 3 updates of mono + bitext" in lines(updates_per_epoch=3)[0]


def test_each_language_has_its_own_share(make_root):
    """Of 10 and 30 sentences, in proportion to them."""
    root = make_root(mono=("aa", "bb"), bitext=())
    for lang, documents in (("aa", 5), ("bb", 15)):
        write_tokens(root / "mono" / lang / "train", [[5, 6], [7, 8, 9], []] * documents)
    cfg = CamlmTaskConfig(data=str(root), seed=1, mono_alpha=1.0)
    report = inspection.inspect_root(root, cfg, 96, model=architecture("veco_tiny"))
    of_training = "\n".join(takewhile(lambda line: "a pass is" not in line, report))
    found = re.findall(r"mono +(\w+) +(\d+) .* (\S+)$", of_training, re.MULTILINE)
    assert found == [("aa", "10", "0.2500"), ("bb", "30", "0.7500")]


@pytest.mark.parametrize("device, name", [("cpu", "CPU"), ("cuda", "GPU")])
def test_the_largest_batch_tells_the_memory(lines, device, name):
    found, asked = lines(device, bitext_mask_prob=0.3, mono_mask_prob=0.2)
    assert asked == [(0.2, False, device), (0.3, True, device)]
    assert "veco_tiny: 1,234,567 parameters; with gradients and Adam 0.02 GiB" in found
    assert (
        f"memory of a worker on a {name}, about: 768.02 GiB, of it 96.00 GiB of activations and 672.00 GiB of the LM head "
        "(a bitext batch of "
    ) in found
    assert re.search(r"\(a mono batch of 1 pairs, 32 tokens a side\)", lines(bitext_batch_size=1)[0])


def test_the_batch_with_most_tokens_is_not_that_with_most_pairs(lines):
    """Eight pairs of 4 tokens a side, six of 8, and one of 32."""
    assert "(a bitext batch of 6 pairs, 8 tokens a side)" in lines(bitext_batch_size=8)[0]


@pytest.mark.parametrize("mono, bitext, larger", [((90, 5), (10, 100), "bitext"), ((100, 5), (10, 90), "mono")])
def test_of_two_kinds_the_sum_of_layers_and_loss_counts(lines, monkeypatch, mono, bitext, larger):
    def memory(args, dictionary, batch, *, device):
        layers, loss = bitext if batch.tlm else mono
        return Memory(16, layers * 2**30, loss * 2**30)

    monkeypatch.setattr(inspection, "training_memory", memory)
    assert re.search(rf"about: 1[01][05].00 GiB, .* \(a {larger} batch of ", lines()[0])


def test_as_many_examples_as_asked_for(lines):
    for count, expected in ((0, [0, 0]), (3, [3, 3]), (99, [4, 61])):
        found, _ = lines(examples=count)
        assert [len(re.findall(f"  {name} y: <s>", found)) for name in ("aa", "aa-bb")] == expected
