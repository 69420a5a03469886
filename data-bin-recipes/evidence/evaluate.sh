#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Translate the test set once, with the checkpoint, learning rate and dropout that validation prefers, and keep the scores.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

PROGRAM=fairseq-generate
run_options -- "$@"
folder=$OUT/finetuned/$RUN result=$OUT/scores/$RUN
require "$folder/checkpoint_best.pt" "run finetune.sh first"
# translated FILE COMMAND...: run COMMAND with its output in FILE. (The log is no word of the step, which it would make another
# one.)
translated() { logged "$result.log" to_file "$@"; }
command=(translated "{}" fairseq-generate "$OUT/$TEXTS.${OPTIONS[data]}" --user-dir "$USER_DIR"
    --path "$folder/checkpoint_best.pt" "${TASK[@]}" --gen-subset test --beam 5 --max-len-a 1.5 --max-len-b 20 --batch-size 128
    --remove-bpe sentencepiece "${EXTRA[@]}")
tell_replaced "$RUN" "$result.out" "$result.json" "${command[@]}"
step "translation, $RUN" "$result.out" "${command[@]}"
python "$REPOSITORY/scripts/score.py" --generate-output "$result.out" --reference "$OUT/raw/${TEST//@/$SRC-$TGT}.$TGT" \
    --lang "$TGT" --json "$result.json"
[[ -z ${OPTIONS[results]} ]] ||
    python "$REPOSITORY/data-bin-recipes/evidence/results.py" "$OUT" record "$RUN" "${OPTIONS[results]}" --set "${OPTIONS[set]}"
