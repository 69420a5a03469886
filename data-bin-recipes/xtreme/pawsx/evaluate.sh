#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Figures by language of fine-tuned models on the test sets of PAWS-X.
#
# usage: evaluate.sh [--out DIR] [--name NAME] [--seeds "N ..."] [--from DIR] [-- OPTIONS OF evaluate_xtreme.py run]
#
#   --out    the folder of the other scripts (default: data-bin/xtreme/pawsx in the repository)
#   --name   what finetune.sh called it (default: transfer.out)
#   --seeds  all of one name, for mean and standard deviation (default: 1)
#   --from   the folder of another task, whose model to evaluate here (default: --out)
#
# The figures go to scores/NAME.json, what is predicted to predictions/NAME.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

evaluate_options -- "$@"
evaluate_task
