#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune on IWSLT14 German-English and on monolingual text with its back-translations (Sennrich et al., 2016): a model of the
# other direction is fine-tuned first, and translates the text.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/synthetic.sh"
source "$(dirname "${BASH_SOURCE[0]}")/settings"

backtranslate_options "${DEFAULTS[@]}" -- "$@"
backtranslate_task "${SETTINGS[@]}"
