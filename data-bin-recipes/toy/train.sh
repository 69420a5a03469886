#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train a veco_tiny of two layers on the toy corpus.
#
# To make so few updates enough, half of the bitext's tokens are masked (paper: a quarter), more of them on one side of a
# pair than on the other; there is one language pair, and no dropout. With two layers instead of three, the cross-attention
# learns to look in as many updates and less time.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/pretraining.sh"

train_options updates=500 warmup=40 -- "$@"
choose_out
pretrain "$OUT" "${OPTIONS[objective]}${OPTIONS[name]:+.${OPTIONS[name]}}" "${OPTIONS[updates]}" "${OPTIONS[seed]}" \
    --bitext-pairs aa-bb --bitext-batch-size 32 --mono-batch-size 2 --mono-max-length 32 --max-tokens 4096 \
    --encoder-layers 2 --bitext-mask-prob 0.5 --bitext-mask-spread 0.5 --dropout 0 --attention-dropout 0 --lr 2e-3 \
    --warmup-updates "${OPTIONS[warmup]}" "${EXTRA[@]}"
