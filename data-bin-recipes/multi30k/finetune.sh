#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune a translation model on Multi30k.
#
# usage: finetune.sh [--out DIR] [--src LANG] [--tgt LANG] [--arm veco|xlm|random] [--updates N] [--lr X] [--seed N]
#                    [--name NAME] [-- OPTIONS OF fairseq-train]
#
#   --out      the folder that prepare.sh and train.sh filled (default: data-bin/multi30k.SRC-TGT in the repository)
#   --arm      what to start from: the VECO model, the XLM one with new cross-attention, or random weights
#   --name     what to call it, when an arm is trained in more than one way (default: the arm)
#   --updates  227 are one epoch (default: 454)
#   --lr       (default: 4e-3, with which VECO's validation loss is the lowest of 1e-3, 2e-3 and 4e-3; from random
#              weights it is 2e-3)
#
# `-- --save-interval-updates 100` keeps a checkpoint every 100 updates, for a curve.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

parse_options out= src=en tgt=de arm=veco updates=454 lr=4e-3 seed=1 name= -- "$@"
require_choice arm veco xlm random
require_number updates seed
finetune "${OPTIONS[out]:-$REPOSITORY/data-bin/multi30k.${OPTIONS[src]}-${OPTIONS[tgt]}}" \
    "${OPTIONS[src]}" "${OPTIONS[tgt]}" "${OPTIONS[arm]}" "${OPTIONS[name]:-${OPTIONS[arm]}}" \
    "${OPTIONS[updates]}" "${OPTIONS[lr]}" "${OPTIONS[seed]}" "${EXTRA[@]}"
