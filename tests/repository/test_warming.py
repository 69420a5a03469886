# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The tests' own composition of fairseq's options, against hydra's."""

import hydra.experimental
import pytest
from fairseq import options
from fairseq.dataclass import utils
from omegaconf import OmegaConf
from support.warming import compose

ADAM = "--optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-06"
COMMANDS = {
    "training": [
        f"--task camlm --criterion camlm --arch veco_tiny {ADAM} --lr 0.001 --max-update 7 --cpu --save-dir a=b,[c] --seed 3",
        "--task camlm --criterion replaced_token --arch xlme_tiny --optimizer adam --lr 1,0.5 --update-freq 2,3 --amp",
        "--task veco_nlu --criterion veco_nlu --arch veco_nlu_tiny --optimizer adam --patience 4 --fp16-scale-tolerance 0.25",
        "--task translation --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --arch veco_mt_tiny --eval-bleu "
        '--eval-bleu-args {"beam":2,"max_len_a":1.5} --optimizer adam --lr-scheduler polynomial_decay --total-num-update 9',
        "--task veco_multilingual_translation --lang-pairs a-b,b-a --arch transformer --optimizer sgd --momentum 0.5 --fp16",
        "--task masked_lm --criterion masked_lm --arch roberta_base --mask-prob 0.25 --ddp-backend legacy_ddp --tokens-per-sample 3",
    ],
    "generation": [
        "--task translation --path a.pt --beam 3 --lenpen 1.5 --remove-bpe sentencepiece --scoring sacrebleu --sampling",
        "--task translation --path a.pt:b.pt --gen-subset test --prefix-size 1 --match-source-len --nbest 2 --bpe sentencepiece "
        "--sentencepiece-model m",
    ],
}


@pytest.mark.parametrize("kind, command", [(kind, command) for kind, commands in COMMANDS.items() for command in commands])
def test_the_configuration_is_hydras_own(monkeypatch, kind, command):
    parser = getattr(options, f"get_{kind}_parser")()
    args = options.parse_args_and_arch(parser, ["my data", *command.split()])
    ours = [utils.convert_namespace_to_omegaconf(args) for _ in range(2)]
    assert utils.compose is compose
    monkeypatch.setattr(utils, "compose", hydra.experimental.compose)
    hydras = utils.convert_namespace_to_omegaconf(args)
    for one in ours:
        assert one == hydras and OmegaConf.get_type(one) is OmegaConf.get_type(hydras)
        assert repr(one) == repr(hydras)
    monkeypatch.undo()
    args.seed += 1
    assert utils.convert_namespace_to_omegaconf(args).common.seed == hydras.common.seed + 1
