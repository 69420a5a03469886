#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a pre-trained model on WMT14 English-French, with the settings of the authors' script.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"
source "$(dirname "${BASH_SOURCE[0]}")/settings"

finetune_options "${DEFAULTS[@]}" -- "$@"
finetune_task "${SETTINGS[@]}"
