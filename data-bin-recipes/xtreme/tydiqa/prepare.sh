#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch TyDiQA-GoldP: training sets and, as test sets, its dev sets of 9 languages.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options hold-out=0 train=train-@.json dev=dev-@.json test=test-@.json langs="ar bn en fi id ko ru sw te" -- "$@"
archive https://storage.googleapis.com/tydiqa/v1.1/tydiqa-goldp-v1.1-train.json \
    cefc8e09ff2548d9b10a678d3a6bbbe5bc036be543f92418819ea676c97be23b
archive https://storage.googleapis.com/tydiqa/v1.1/tydiqa-goldp-v1.1-dev.json \
    b286e0f34bc7f52259359989716f369b160565bd12ad8f3a3e311f9b0dbad1c0
unpacked tydiqa-goldp-v1.1-train.json tydiqa-goldp-v1.1-dev.json

# questions_of LANG FILE: print a language's questions, whose ids begin with its name.
declare -A NAME=([ar]=arabic [bn]=bengali [en]=english [fi]=finnish [id]=indonesian [ko]=korean [ru]=russian
    [sw]=swahili [te]=telugu)
questions_of() { some "$2" --ids "${NAME[$1]}-"; }

GOLD=1
[[ -n ${OPTIONS[local]} ]] || ((OPTIONS[hold-out])) || OPTIONS[hold-out]=369
examples train json tydiqa-goldp-v1.1-train.json questions_of @
examples dev json none
examples test json tydiqa-goldp-v1.1-dev.json questions_of @
tidy
