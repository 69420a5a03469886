#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Translate newstest2014 with the mean of a fine-tuned model's last checkpoints, and score it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=en TGT=fr
evaluate_options average=10 -- "$@"
evaluate_task
