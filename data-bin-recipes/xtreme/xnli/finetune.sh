#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a pre-trained model on XNLI: the paper's grid, of which the best on the dev sets is kept.
#
# usage: finetune.sh [--out DIR] --pretrained FILE [--arch veco_nlu_SIZE] [--arm pretrained|random]
#                    [--setting transfer|translate-train] [--plug out|in] [--name NAME] [--seeds "N ..."]
#                    [--lrs "X ..."] [--epochs "N ..."] [--batches "N ..."] [--workers N] [-- OPTIONS OF fairseq-train]
#
#   --out      the folder that prepare.sh filled (default: data-bin/xtreme/xnli in the repository)
#   --arch     of the pre-trained model's size (default: veco_nlu_base)
#   --arm      random: only its vocabulary
#   --setting  transfer: train on English; translate-train: on all languages
#   --plug     in: predict a sentence from [H; S], with its translation; needs translate-train
#   --name     what to call it (default: SETTING.PLUG, or random.SETTING.PLUG)
#   --lrs, --epochs, --batches  the grid (defaults: 5e-6 8e-6 1e-5 2e-5 3e-5, of translate-train 5e-6 6e-6 7e-6 8e-6
#              9e-6; 3 5 10; 16 32 64); a batch has so many examples, or with --plug in so many pairs of translations
#   --workers  GPUs on this machine that share a batch (default: all; with `-- --cpu` one process)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

finetune_options -- "$@"
finetune_task --nlu-task classification --max-length 128
