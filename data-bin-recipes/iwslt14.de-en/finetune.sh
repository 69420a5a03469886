#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a pre-trained model on IWSLT14 German-English (VECO, Table 5).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=de TGT=en
finetune_options updates=30000 warmup=2000 lr=3e-4 batch-tokens=16384 save-every=500 decoder-layers=all \
    tie-self-attention=no -- "$@"
# The paper does not give its settings; these are the usual ones for a set of this size.
finetune_task --label-smoothing 0.1 --dropout 0.3 --attention-dropout 0.1 --clip-norm 1.0 --weight-decay 0.01 \
    --adam-betas '(0.9, 0.98)' --adam-eps 1e-6
