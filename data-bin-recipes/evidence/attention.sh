#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Draw where a pre-trained model of the comparisons looks in a translation: pictures/attention.ARM.sN.png in --out.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

parse_options out= arm=veco pretraining=1 try -- "$@"
choose_out
comparisons
OPTIONS[seed]=1
require_arm
pretrained_model "${OPTIONS[arm]}" "${OPTIONS[pretraining]}"
of=cross
[[ ${OPTIONS[arm]} != xlm* ]] || of=self # which has no cross-attention
make_folder "$OUT/pictures"
python "$REPOSITORY/scripts/plot_attention.py" "$PRETRAINED" --attention "$of" --layer "$ATTENTION_LAYER" \
    --source "$ATTENTION_SOURCE" --target "$ATTENTION_TARGET" \
    --output "$OUT/pictures/attention.${OPTIONS[arm]}.s${OPTIONS[pretraining]}.png"
