#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Count the operations of a pre-training, and keep them with its updates and seconds.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

parse_options out= arm=veco pretraining=1 results= try -- "$@"
choose_out
comparisons
OPTIONS[seed]=1
require_arm
pretrained_model "${OPTIONS[arm]}" "${OPTIONS[pretraining]}"
results=${OPTIONS[results]:-$OUT/results.jsonl} name=$(pretrained_folder "$ORIGIN" "${OPTIONS[pretraining]}")
run python "$REPOSITORY/data-bin-recipes/evidence/results.py" "$OUT" record "cost/$name" "$results"
