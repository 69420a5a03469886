#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a student with one decoder layer on the translations that a fine-tuned teacher makes of WMT14 English-German's
# sources (Kim and Rush, 2016).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/synthetic.sh"
source "$(dirname "${BASH_SOURCE[0]}")/settings"

distill_options "${DEFAULTS[@]/#decoder-layers=*/decoder-layers=1}" -- "$@"
distill_task "${SETTINGS[@]}"
