#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch XNLI, with the translations of its training set: 392,702 pairs in each of 15 languages.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options hold-out=0 train=train-@.tsv dev=dev-@.tsv test=test-@.tsv langs="ar bg de el en es fr hi ru sw th tr ur vi zh" -- "$@"
archive https://dl.fbaipublicfiles.com/XNLI/XNLI-1.0.zip \
    4ba1d5e1afdb7161f0f23c66dc787802ccfa8a25a3ddd3b165a35e50df346ab1
archive https://dl.fbaipublicfiles.com/XNLI/XNLI-MT-1.0.zip \
    f732517ba2fb1d550e9f3c2aabaef6017c91ee2dcec90e878f138764d224db05
unpacked XNLI-1.0.zip XNLI-MT-1.0.zip

# rows_of LANG FILE: print the rows of a language in a file with all languages.
rows_of() { awk -F '\t' -v lang="$1" 'NR == 1 || $1 == lang' "$2"; }

examples train tsv XNLI-MT-1.0/multinli/multinli.train.@.tsv
examples dev tsv XNLI-1.0/xnli.dev.tsv rows_of @
examples test tsv XNLI-1.0/xnli.test.tsv rows_of @
tidy
