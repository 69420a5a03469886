#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train a veco_tiny on Multi30k's training pairs.
#
# usage: train.sh [--out DIR] [--src LANG] [--tgt LANG] [--objective camlm|mlm] [--updates N] [--seed N]
#                 [-- OPTIONS OF fairseq-train]
#
#   --out        the folder that prepare.sh filled (default: data-bin/multi30k.SRC-TGT in the repository)
#   --objective  camlm: VECO; mlm: the XLM baseline
#   --updates    227 are one epoch (default: 681)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

parse_options out= src=en tgt=de objective=camlm updates=681 seed=1 -- "$@"
require_choice objective camlm mlm
require_number updates seed
pretrain "${OPTIONS[out]:-$REPOSITORY/data-bin/multi30k.${OPTIONS[src]}-${OPTIONS[tgt]}}" \
    "${OPTIONS[objective]}" "${OPTIONS[updates]}" "${OPTIONS[seed]}" \
    --bitext-batch-size 128 --max-tokens 16384 "${EXTRA[@]}"
