#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a pre-trained model on WMT14 English-French, with the settings of the authors' script.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=en TGT=fr
finetune_options updates=100000 warmup=16000 lr=1e-4 batch-tokens=262144 save-every=5000 decoder-layers=6 \
    tie-self-attention=no -- "$@"
finetune_task --label-smoothing 0.2 --dropout 0.1 --attention-dropout 0 --clip-norm 0.1 --weight-decay 0.01 \
    --adam-betas '(0.9, 0.999)' --adam-eps 1e-8 --patience 30
