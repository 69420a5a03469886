#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train a veco_tiny on Multi30k's training pairs; 907 updates are one epoch.
#
# A model this small does not overfit in four epochs, so it has no dropout. Cross-attention learns to look soon
# (bitext_s_loss below bitext_h_loss) with many small batches, and with half of the tokens masked, more of them on one side
# of a pair than on the other.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

train_options src=en tgt=de updates=3600 warmup=100 -- "$@"
begin
pretrain "$OUT" "${OPTIONS[objective]}${OPTIONS[name]:+.${OPTIONS[name]}}" "${OPTIONS[updates]}" "${OPTIONS[seed]}" \
    --bitext-batch-size 32 --max-tokens 16384 --bitext-mask-prob 0.5 --bitext-mask-spread 0.5 --lr 2e-3 \
    --warmup-updates "${OPTIONS[warmup]}" --dropout 0 --attention-dropout 0 "${EXTRA[@]}"
