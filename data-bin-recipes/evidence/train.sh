#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train one arm of the comparisons.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

PROGRAM=fairseq-train
parse_options out= set=captions arm=veco seed=1 try -- "$@"
choose_out
comparisons
OPTIONS[pretraining]=${OPTIONS[seed]}
require_arm
[[ -v UPDATES[${OPTIONS[arm]}] ]] || die "--arm ${OPTIONS[arm]}: is not pre-trained"
pretrain_model "${OPTIONS[arm]}" "${OPTIONS[seed]}" "${EXTRA[@]}"
