#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Translate newstest2014 with the mean of a fine-tuned model's last checkpoints, and score it.
#
# usage: evaluate.sh [--out DIR] [--name veco|xlm|random|...] [--seed N] [--average N] [--lenpen X]
#                    [-- OPTIONS OF fairseq-generate]
#
#   --out      the folder of the other scripts (default: data-bin/wmt14.en-fr in the repository)
#   --name     what finetune.sh called it (default: veco)
#   --average  so many checkpoints (default: 10)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

parse_options out= name=veco seed=1 average=10 lenpen=1.0 -- "$@"
require_number seed average
begin en fr
evaluate_task
