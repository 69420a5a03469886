#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Translate the test set in every direction with a fine-tuned model, and score it; the zero-shot directions, too.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/many.sh"

evaluate_options langs="en de fr cs" zero-shot="de-fr fr-de" directions= average=0 -- "$@"
many
DATA=$OUT/mt given=("${EXTRA[@]}")
[[ -z ${OPTIONS[directions]} ]] || read -ra DIRECTIONS <<<"${OPTIONS[directions]}"
for direction in "${DIRECTIONS[@]}"; do
    of_pair "$direction"
    OF=.$direction EXTRA=(--task veco_multilingual_translation -s "$SRC" -t "$TGT" "${given[@]}")
    evaluate_task
done
python "$REPOSITORY/data-bin-recipes/many-to-many/table.py" "$OUT" --zero-shot "${OPTIONS[zero-shot]}"
