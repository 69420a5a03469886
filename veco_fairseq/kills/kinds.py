# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is killed: each kind of training that the project has, small, and the preparation of data."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import veco_fairseq
from veco_fairseq.kills.processes import PACKAGES, Command

PLUGIN = veco_fairseq.__path__[0]
SCRIPTS = Path(PACKAGES) / "scripts"

EVERY_TRAINING = f"""--user-dir {PLUGIN} --cpu --seed 1 --optimizer adam --adam-betas (0.9,0.98) --lr 2e-3 --clip-norm 1
    --log-format json --log-interval 1 --no-epoch-checkpoints --save-interval-updates 4 --keep-interval-updates 2"""
SIZES = """--encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2
    --max-positions 256"""
PRETRAINING = f"""{EVERY_TRAINING} {SIZES} --task camlm --max-tokens 300 --mono-max-length 24
    --lr-scheduler polynomial_decay --warmup-updates 5 --total-num-update 21 --max-update 21 --updates-per-epoch 6"""
CAMLM = f"{{data}}/root {PRETRAINING} --criterion camlm --arch veco_tiny"
TRANSLATION = f"""{{data}}/mt {EVERY_TRAINING} --task translation {{converted}} --finetune-from-model {{data}}/mt.pt
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0.1 --max-tokens 320
    --lr-scheduler inverse_sqrt --warmup-updates 5 --max-epoch 4"""
UNDERSTANDING = f"""{EVERY_TRAINING} {SIZES} --task veco_nlu --criterion veco_nlu --arch veco_nlu_tiny
    --finetune-from-model {{data}}/camlm/checkpoint_last.pt --lr-scheduler linear_by_epoch --batch-size 16 --max-epoch 4
    --best-checkpoint-metric score --maximize-best-checkpoint-metric"""
PREPARATION = """--mono de={data}/many/train.de en={data}/many/train.en
    --bitext de-en={data}/many/train.de,{data}/many/train.en --valid-lines 100 --vocab-size 150 --vocab-lines 2000 --workers 1"""


@dataclass(frozen=True)
class Kind:
    """A training (or preparation) to be killed.

    Attributes:
        title: what it is, for the table.
        options: of fairseq-train, with ``{data}`` for the corpus and ``{converted}`` for the converted model's options;
            or of prepare_root.py.
        share: how often it is killed, beside the others.
        workers: processes that train; more than one are started by scripts/launch.sh.
        loaders: ``--num-workers``, processes that load data.
        trains: whether it is a training.
    """

    title: str
    options: str
    share: int = 2
    workers: int = 1
    loaders: int = 0
    trains: bool = True

    def arguments(self, data: Path, output: Path) -> Command:
        """Those of fairseq-train, or of prepare_root.py."""
        converted = ""
        if "{converted}" in self.options:
            converted = json.loads((data / "mt.pt.json").read_text(encoding="utf-8"))["finetune_options"]
        words = []
        for word in self.options.split():
            words += converted.split() if word == "{converted}" else [word.format(data=data)]
        if not self.trains:
            return [*words, "--output", str(output)]
        return [*words, "--num-workers", str(self.loaders), "--save-dir", str(output)]

    def command(self, data: Path, output: Path) -> Command:
        """As a user starts it."""
        launcher = ["bash", str(SCRIPTS / "launch.sh"), "--workers", str(self.workers), "--"]
        alone = ["-m", "fairseq_cli.train"] if self.trains else [str(SCRIPTS / "prepare_root.py")]
        return [*(launcher if self.workers > 1 else [sys.executable, *alone]), *self.arguments(data, output)]


KINDS = {
    "camlm": Kind("CA-MLM", CAMLM),
    "camlm-loaders": Kind("CA-MLM, 2 loader processes", CAMLM, loaders=2),
    "camlm-bf16": Kind("CA-MLM, --autocast bf16", f"{CAMLM} --autocast bf16"),
    "xlm": Kind("XLM (--objective mlm), --update-freq 2", f"{CAMLM} --objective mlm --update-freq 2"),
    "knn": Kind(
        "CA-MLM, --knn-targets, 2 loader processes",
        f"{CAMLM} --knn-targets 3 --knn-refresh 5 --knn-rest 20", loaders=2
    ),
    "xlme": Kind(
        "XLM-E", f"{{data}}/root {PRETRAINING} --criterion replaced_token --arch xlme_tiny --generator-layers 1"
    ),
    "frozen": Kind(
        "from an XLM-R, --freeze-backbone-updates",
        f"{CAMLM} --init-from {{data}}/xlm/checkpoint_last.pt --freeze-backbone-updates 10"
    ),
    "translation": Kind("translation, from a converted model", TRANSLATION, share=3),
    "translation-loaders": Kind(
        "translation, --amp, --update-freq 2, 2 loader processes", f"{TRANSLATION} --amp --update-freq 2", loaders=2
    ),
    "translation-plateau": Kind(
        "translation, --lr-scheduler reduce_lr_on_plateau",
        TRANSLATION.replace("inverse_sqrt --warmup-updates 5", "reduce_lr_on_plateau --lr-threshold 0.3"), share=1
    ),
    "classification": Kind(
        "classification, plug in", f"{{data}}/classification {UNDERSTANDING} --nlu-task classification --plug in"
    ),
    "tagging": Kind("tagging, plug out, 2 loader processes", f"{{data}}/tagging {UNDERSTANDING} --nlu-task tagging",
                    loaders=2),
    "span": Kind(
        "span, plug in", f"{{data}}/span {UNDERSTANDING} --nlu-task span --plug in --max-length 200"
    ),
    "camlm-workers": Kind("CA-MLM, 2 workers (launch.sh)", CAMLM, share=1, workers=2),
    "translation-workers": Kind(
        "translation, 2 workers (launch.sh), a loader process each", TRANSLATION, share=1, workers=2, loaders=1
    ),
    "preparation": Kind("prepare_root.py", PREPARATION, trains=False),
}  # fmt: skip
