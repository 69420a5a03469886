#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch PAWS-X, with the translations of its training set: 49,401 pairs in each of 7 languages.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options hold-out=0 train=train-@.tsv dev=dev-@.tsv test=test-@.tsv langs="de en es fr ja ko zh" -- "$@"
archive https://storage.googleapis.com/paws/pawsx/x-final.tar.gz \
    4146db499101d66e68ae4c8ed3cf9dadecd625f44b7d8cf3d4a0fe93afc4fd9f
unpacked x-final.tar.gz

# whole_rows FILE: print the rows that have all four columns and a translation (NS stands for none).
whole_rows() { awk -F '\t' 'NF == 4 && $2 != "NS" && $3 != "NS"' "$1"; }

examples train tsv 'x-final/@/*train.tsv' whole_rows
examples dev tsv x-final/@/dev_2k.tsv whole_rows
examples test tsv x-final/@/test_2k.tsv whole_rows
tidy
