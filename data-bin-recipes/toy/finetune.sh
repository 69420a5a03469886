#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune on aa -> bb, and score the test set.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=aa TGT=bb
finetune_own_options updates=100 lr=2e-3 -- "$@"
DECODER_LAYERS=2 # as many as train.sh's encoder has
finetune_own --encoder-layers 2
find_cpu "${EXTRA[@]}"
OPTIONS[lenpen]=1.0 EXTRA=("${CPU[@]}") # fairseq-generate has other options
name=$(run_name "${OPTIONS[name]:-${OPTIONS[arm]}}" "${OPTIONS[seed]}")
evaluate "$name" "$OUT/checkpoints/$name/checkpoint_last.pt"
