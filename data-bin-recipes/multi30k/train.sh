#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train a veco_tiny on Multi30k's training pairs.
#
# usage: train.sh [--out DIR] [--src LANG] [--tgt LANG] [--objective camlm|mlm] [--updates N] [--seed N]
#                 [-- OPTIONS OF fairseq-train]
#
#   --out        the folder that prepare.sh filled (default: data-bin/multi30k.SRC-TGT in the repository)
#   --objective  camlm: VECO; mlm: the XLM baseline
#   --updates    907 are one epoch (default: 3600)
#
# A model this small does not overfit in four epochs, so that it has no dropout. Many small batches, half of the tokens
# to predict, and more of them on one side of a pair than on the other, make cross-attention learn to look soon
# (bitext_s_loss below bitext_h_loss).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

parse_options out= src=en tgt=de objective=camlm updates=3600 seed=1 -- "$@"
require_choice objective camlm mlm
require_number updates seed
pretrain "${OPTIONS[out]:-$REPOSITORY/data-bin/multi30k.${OPTIONS[src]}-${OPTIONS[tgt]}}" \
    "${OPTIONS[objective]}" "${OPTIONS[updates]}" "${OPTIONS[seed]}" \
    --bitext-batch-size 32 --max-tokens 16384 --bitext-mask-prob 0.5 --bitext-mask-spread 0.5 --lr 2e-3 --dropout 0 --attention-dropout 0 \
    "${EXTRA[@]}"
