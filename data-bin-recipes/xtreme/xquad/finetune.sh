#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a pre-trained model on SQuAD, for XQuAD: the paper's grid, of which the best on the dev sets is kept.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

finetune_options -- "$@"
finetune_task --nlu-task span --max-length 384 --stride 128
