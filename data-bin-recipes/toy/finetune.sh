#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune on aa -> bb, and score the test set.
#
# usage: finetune.sh [--out DIR] [--arm veco|xlm|random] [--updates N] [--lr X] [--seed N]
#                    [-- OPTIONS OF fairseq-train]
#
#   --out  the folder that prepare.sh and train.sh filled (default: data-bin/toy in the repository)
#   --arm  what to start from: the VECO model, the XLM one with new cross-attention, or random weights
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

parse_options out="$REPOSITORY/data-bin/toy" arm=veco updates=100 lr=2e-3 seed=1 -- "$@"
require_choice arm veco xlm random
require_number updates seed
out=${OPTIONS[out]} name=$(run_name "${OPTIONS[arm]}" "${OPTIONS[seed]}")
DECODER_LAYERS=2 # as many as train.sh's encoder has
finetune "$out" aa bb "${OPTIONS[arm]}" "${OPTIONS[arm]}" "${OPTIONS[updates]}" "${OPTIONS[lr]}" "${OPTIONS[seed]}" \
    --encoder-layers 2 "${EXTRA[@]}"
evaluate "$out" aa bb test "$name" "$out/checkpoints/$name/checkpoint_last.pt" "$out/raw/test.bb"
