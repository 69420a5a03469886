#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train a veco_tiny on the training pairs of all languages, with the settings of Multi30k's single pair.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/many.sh"

train_options updates=3600 warmup=100 -- "$@"
choose_out
pretrain "$OUT" "${OPTIONS[objective]}${OPTIONS[name]:+.${OPTIONS[name]}}" "${OPTIONS[updates]}" "${OPTIONS[seed]}" \
    --bitext-batch-size 32 --max-tokens 16384 --bitext-mask-prob 0.5 --bitext-mask-spread 0.5 --lr 2e-3 \
    --warmup-updates "${OPTIONS[warmup]}" --dropout 0 --attention-dropout 0 "${EXTRA[@]}"
