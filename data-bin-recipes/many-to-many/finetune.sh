#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fine-tune one translation model for many directions, or for one of them alone with the same settings; 2,266 updates are
# one epoch of the ten directions that are trained.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/many.sh"

TASK=veco_multilingual_translation
finetune_own_options langs="en de fr cs" zero-shot="de-fr fr-de" directions= alpha=0.5 updates=2266 lr=2e-3 -- "$@"
many
DATA=$OUT/mt TGT=${LANGS[0]} # all languages have the same dictionary
[[ -z ${OPTIONS[directions]} ]] || read -ra TRAINED <<<"${OPTIONS[directions]}"
finetune_own --lang-pairs "$(IFS=,; printf '%s' "${TRAINED[*]}")" --alpha "${OPTIONS[alpha]}"
