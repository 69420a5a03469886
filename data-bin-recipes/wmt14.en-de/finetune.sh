#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a pre-trained model on WMT14 English-German, with the paper's settings (VECO, section 6.1).
#
# usage: finetune.sh [--out DIR] --pretrained FILE [--arm veco|xlm|random] [--decoder-layers N|all]
#                    [--layer-selection last|first|I,J,...] [--tie-self-attention yes|no] [--name NAME] [--seed N]
#                    [--updates N] [--warmup N] [--lr X] [--batch-tokens N] [--max-tokens N] [--save-every N]
#                    [--workers N] [--nodes N --node-rank I --master HOST:PORT] [-- OPTIONS OF fairseq-train]
#
#   --out           the folder that prepare.sh filled (default: data-bin/wmt14.en-de in the repository)
#   --arm           veco: all of the pre-trained model; xlm: without its cross-attention; random: only its shape
#   --decoder-layers, --layer-selection, --tie-self-attention  as of convert_to_seq2seq.py (defaults: all, last, yes)
#   --name          what to call it, when an arm is trained in more than one way (default: the arm)
#   --batch-tokens  of an update over all workers (default: 65536); --max-tokens: of a worker's batch at most (4096)
#   --workers       GPUs on this machine (default: all; with `-- --cpu` one process)
#   --nodes         machines, on each of which the command is run, as of scripts/launch.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

finetune_options updates=100000 warmup=16000 lr=1e-4 batch-tokens=65536 save-every=5000 \
    tie-self-attention=yes -- "$@"
begin en de
# Label smoothing, dropout, clipping and Adam are those of the authors' script; the paper doesn't give them.
finetune_task --label-smoothing 0.2 --dropout 0.3 --attention-dropout 0.1 --clip-norm 0.1 --weight-decay 0.01 \
    --adam-betas '(0.9, 0.999)' --adam-eps 1e-8 \
    --warmup-updates "${OPTIONS[warmup]}" --save-interval-updates "${OPTIONS[save-every]}" --keep-interval-updates 10
