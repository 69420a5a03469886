#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Figures by language of fine-tuned models on the test sets of XQuAD.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

evaluate_options -- "$@"
evaluate_task --answer-metric squad
