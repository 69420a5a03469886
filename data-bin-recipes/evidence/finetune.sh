#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune one arm of the comparisons on pairs, until validation gets no better. Without --lr and --dropout, those that
# validation prefers in the grid of the first seed, of this folder or of --results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

PROGRAM=fairseq-train
run_options -- "$@"
stock_options "${EXTRA[@]}"
data=$OUT/$TEXTS.${OPTIONS[data]} folder=$OUT/finetuned/$RUN every=${EVERY[${OPTIONS[data]##*.}]:-}
require "$data" "run $PREPARE first; --data must be one of: ${SIZES[*]}"
start "${OPTIONS[arm]}" "${OPTIONS[pretraining]}" "${OPTIONS[seed]}"
training "fine-tuning, $RUN" "$folder" logged "$folder/train.log" fairseq-train "$data" --distributed-world-size 1 --user-dir "$USER_DIR" \
    "${TASK[@]}" "${MODEL[@]}" "${START[@]}" "${OPTIMIZER[@]}" \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout "${OPTIONS[dropout]}" \
    --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP" --lr "${OPTIONS[lr]}" --max-update "$MOST_UPDATES" \
    --batch-size 128 --required-batch-size-multiple 1 --seed "${OPTIONS[seed]}" "${LOG[@]}" \
    --validate-interval 100000 --validate-interval-updates "$every" --save-interval 100000 --save-interval-updates "$every" \
    --keep-interval-updates 1 --patience "$PATIENCE" --save-dir "$folder" "${STOCK[@]}"
rm -f -- "$folder"/checkpoint_{last,*_*}.pt # only the best one is translated with, and what has ended does not go on
