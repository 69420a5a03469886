#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Translate the test set again with a fine-tuned model, with other checkpoints or options, and score it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=aa TGT=bb
evaluate_options average=0 -- "$@"
evaluate_task
