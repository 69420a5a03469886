# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every option of pre-training's task, criteria and models, at another value: what two updates with it look like.

The numbers that are expected come from the method: shares by their formula, parameters counted by hand.
"""

import json
import re
from dataclasses import fields

import numpy as np
import pytest
from conftest import make_dictionary, random_lines, write_tokens
from fairseq.models.roberta import RobertaModel
from support.training import options_of

from veco_fairseq.criterions.knn import KnnCamlmCriterionConfig
from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterionConfig
from veco_fairseq.models.veco import VecoModel
from veco_fairseq.models.xlme import XlmeModel
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig

COMMON = """--user-dir veco_fairseq --task camlm --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32
    --encoder-attention-heads 2 --max-positions 64 --max-tokens 400 --mono-max-length 16 --bitext-max-length 24 --max-update 2
    --updates-per-epoch 5 --optimizer adam --lr 1e-3 --cpu --log-format json --log-interval 1 --no-save --disable-validation
    --num-workers 0 --seed 3""".split()
VECO = ["--criterion", "camlm", "--arch", "veco_tiny"]
XLME = ["--criterion", "replaced_token", "--arch", "xlme_tiny", "--generator-layers", "1"]


def veco_parameters(layers=2, dim=16, ffn=32, positions=64, table=None) -> int:
    """Of 45 tokens: two attentions a layer, the FFN, three LayerNorms; embeddings; the LM head, whose table is theirs."""
    attention, norm = 4 * (dim * dim + dim), 2 * dim
    layer = 2 * attention + 3 * norm + dim * ffn + ffn + ffn * dim + dim
    embeddings = 45 * dim if table is None else 45 * table + table * dim
    head = dim * dim + dim + norm + 45
    return layers * layer + embeddings + (positions + 2) * dim + norm + head


class Log:
    """What a training said."""

    def __init__(self, result):
        assert result.returncode == 0, result.stderr[-2000:] + result.stdout[-2000:]
        self.text = result.stdout
        self.updates = [json.loads(line.split(" | ", 3)[3]) for line in self.text.splitlines() if "| train_inner |" in line]

    def of(self, key, update=0) -> float:
        return float(self.updates[update][key])

    @property
    def parameters(self) -> int:
        return int(re.search(r"num\. shared model params: ([\d,]+)", self.text)[1].replace(",", ""))


def says(*parts, never=()):
    def check(log, usual):
        for part in parts:
            assert part in log.text and part not in usual.text, part
        for part in never:
            assert part not in log.text and part in usual.text, part

    return check


def parameters(**sizes):
    def check(log, usual):
        assert usual.parameters == veco_parameters() and log.parameters == veco_parameters(**sizes)

    return check


def other_losses(log, usual):
    assert log.of("loss") != usual.of("loss")
    assert log.of("mono_pairs") == usual.of("mono_pairs") and log.of("bitext_pairs") == usual.of("bitext_pairs")


def other_gradients(log, usual):
    """The first forward pass is the same, the backward pass another."""
    assert log.of("loss") == usual.of("loss") and log.of("gnorm") != usual.of("gnorm")


def more_pairs(log, usual):
    """Of shorter segments."""
    count = [int(re.search(r"mono: (\d+) pairs", of.text)[1]) for of in (log, usual)]
    assert count[0] > 1.5 * count[1]


def rounded(log, usual):
    assert log.of("loss") == pytest.approx(usual.of("loss"), abs=0.05) and log.of("gnorm") != usual.of("gnorm")


def weighted(log, usual):
    """The discriminator's part, most of the loss with 50, counts for a seventh; what is predicted is the same."""
    assert log.of("bitext_trtd_loss") == usual.of("bitext_trtd_loss") and log.of("loss") < usual.of("loss") / 2


def fewer_logits(log, usual):
    assert log.of("knn_vocabulary") < 42 and log.of("loss") < usual.of("loss")


# By the model that they are tried with: the option, and what it must change.
ROWS = {
    "veco": {
        "--mono-langs en": says(never=["train mono de"]),
        "--bitext-pairs en-zh": says(never=["train bitext de-en"]),
        "--mono-alpha 1": says("sampled: de 0.7696, en 0.2304"),  # 167 and 50 sentences
        "--bitext-alpha 0": says("sampled: de-en 0.5000, en-zh 0.5000"),
        "--mono-mask-prob 0.5": other_losses,
        "--bitext-mask-prob 0.6": other_losses,
        "--bitext-mask-spread 0.2": other_losses,
        "--mono-max-length 8": more_pairs,
        "--bitext-max-length 6": lambda log, usual: log.text.count("(0 dropped)") < usual.text.count("(0 dropped)"),
        "--mono-batch-size 2": lambda log, usual: (
            log.of("mono_pairs") == 2 and log.of("bitext_pairs") == usual.of("bitext_pairs")
        ),
        "--bitext-batch-size 3": lambda log, usual: (
            log.of("bitext_pairs") == 3 and log.of("mono_pairs") == usual.of("mono_pairs")
        ),
        "--updates-per-epoch 3": says("an epoch is 3 updates of 1 x (mono + bitext)"),
        "--update-freq 2": says("an epoch is 5 updates of 2 x (mono + bitext)"),
        "--no-tlm": says(never=["bitext_tlm_loss"]),
        "--seed 4": lambda log, usual: log.of("loss") != usual.of("loss"),
        "--objective mlm": says(never=["mono_s_loss", "bitext_s_loss"]),
        "--s-terms mono": says(never=["bitext_s_loss"]),
        "--s-terms bitext": says(never=["mono_s_loss"]),
        "--no-stop-gradient": other_gradients,
        "--knn-targets 3 --knn-rest 1": fewer_logits,
        "--knn-targets 3 --knn-rest 7": lambda log, usual: log.of("knn_vocabulary") > 42,
        "--knn-targets 2 --knn-rest 1 --knn-refresh 1": lambda log, usual: log.of("knn_looked_up", 1) > 10,
        "--knn-targets 2 --knn-rest 1": lambda log, usual: log.of("knn_looked_up", 1) < 10,
        "--encoder-layers 3": parameters(layers=3),
        "--encoder-embed-dim 24": parameters(dim=24),
        "--encoder-ffn-embed-dim 40": parameters(ffn=40),
        "--encoder-attention-heads 4": other_losses,
        "--max-positions 50": parameters(positions=50),
        "--embed-dim 8": parameters(table=8),
        "--dropout 0.4": other_losses,
        "--attention-dropout 0.4": other_losses,
        "--activation-dropout 0.4": other_losses,
        "--activation-fn relu": other_losses,
        "--autocast bf16": rounded,
        "--relative-position-bias": lambda log, usual: log.parameters > usual.parameters,
    },
    "xlme": {
        "--discriminator-weight 7": weighted,
        "--no-trtd": says(never=["bitext_trtd_loss"]),
        "--generator-layers 2": lambda log, usual: log.parameters > usual.parameters,
        "--generator-embeddings own": lambda log, usual: log.parameters - usual.parameters == (45 + 66) * 16,
    },
}
# Tried elsewhere: those that need files (test_training.py, test_xlmr.py, test_camlm.py); fairseq's own; what changes the
# memory alone (test_model.py).
ELSEWHERE = {"--checkpoint-activations", "--init-from", "--freeze-backbone-updates", "--data", "--max-update", "--save-dir", "--fp16",
             "--memory-efficient-fp16", "--train-subset", "--restore-file", "--finetune-from-model", "--continue-once",
             "--checkpoint-suffix", "--no-save"}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two languages and two pairs, of unequal size."""
    root = tmp_path_factory.mktemp("root")
    make_dictionary(40, mask=False).save(str(root / "dict.txt"))
    rng = np.random.default_rng(7)
    for lang, lines in (("de", 200), ("en", 60)):
        text = random_lines(rng, lines)
        text[5::6] = [[]] * len(text[5::6])
        write_tokens(root / "mono" / lang / "train", text)
    for pair, lines in (("de-en", 150), ("en-zh", 50)):
        for lang in pair.split("-"):
            write_tokens(root / "bitext" / pair / f"train.{pair}.{lang}", random_lines(rng, lines))
    return root


@pytest.fixture(scope="module")
def usual():
    return {}


@pytest.mark.parametrize("model, words", [(model, words) for model, options in ROWS.items() for words in options])
def test_the_option_changes_training(root, run, usual, tmp_path, model, words):
    def train(*more):
        return Log(run("fairseq-train", root, *COMMON, *{"veco": VECO, "xlme": XLME}[model], "--save-dir", tmp_path, *more))

    if model not in usual:
        usual[model] = train()
    assert ROWS[model][words](train(*words.split()), usual[model]) in (None, True)


def test_no_option_is_missing():
    tried = {word for options in ROWS.values() for words in options for word in words.split() if word.startswith("--")}
    fairseqs = options_of(RobertaModel)
    for model in (VecoModel, XlmeModel):
        ours = options_of(model) - fairseqs
        assert {"--embed-dim"} < ours <= tried | ELSEWHERE, ours - tried - ELSEWHERE
    for config in (CamlmTaskConfig, KnnCamlmCriterionConfig, ReplacedTokenCriterionConfig):
        names = {f"--{field.name.replace('_', '-')}" for field in fields(config) if not field.name.startswith("_")}
        assert names <= tried | ELSEWHERE, names - tried - ELSEWHERE
