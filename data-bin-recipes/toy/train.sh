#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train a veco_tiny of two layers on the toy corpus.
#
# usage: train.sh [--out DIR] [--objective camlm|mlm] [--updates N] [--seed N] [-- OPTIONS OF fairseq-train]
#
#   --out        the folder that prepare.sh filled (default: data-bin/toy in the repository)
#   --objective  camlm: VECO; mlm: the XLM baseline
# So few updates must do that half of the bitext's tokens are predicted (paper: a quarter), and more of them on one side
# of a pair than on the other, of one pair of languages, without dropout. With two layers instead of three the
# cross-attention learns to look in the same updates and less time.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

parse_options out="$REPOSITORY/data-bin/toy" objective=camlm updates=500 seed=1 -- "$@"
require_choice objective camlm mlm
require_number updates seed
pretrain "${OPTIONS[out]}" "${OPTIONS[objective]}" "${OPTIONS[updates]}" "${OPTIONS[seed]}" \
    --bitext-pairs aa-bb --bitext-batch-size 32 --mono-batch-size 2 --mono-max-length 32 --max-tokens 4096 \
    --encoder-layers 2 --bitext-mask-prob 0.5 --bitext-mask-spread 0.5 --dropout 0 --attention-dropout 0 \
    --lr 2e-3 --warmup-updates 40 "${EXTRA[@]}"
