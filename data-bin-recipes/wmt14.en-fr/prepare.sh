#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch WMT14 English-French (41 million pairs), and make its data with a pre-trained model's vocabulary.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=en TGT=fr
prepare_options -- "$@"

# The corpora of WMT14, as files with a checksum; newstest2012, 2013 and 2014 (all 3,003 sentences) are sacreBLEU's.
URL=https://huggingface.co/datasets/wmt
archive $URL/wmt13/resolve/main-zip/training-parallel-europarl-v7.zip \
    5b2d8b32c2396da739b4e731871c597fcc6e75729becd74619d0712eecf7770e
archive $URL/wmt13/resolve/main-zip/training-parallel-commoncrawl.zip \
    5ffe980072ea29adfd84568d099bea366d9f72772b988e670794ae851b4e5627
archive $URL/wmt13/resolve/main-zip/training-parallel-un.zip \
    74f07002e053c81bc7f73b4fdab58e7987e831338748f264cbda82a8b062d2e2
archive $URL/wmt14/resolve/main-zip/training-parallel-nc-v9.zip \
    ce199f93ec56ff480137ba29f0819f9a22e70d88be6d7458f112303d67d623d5
archive $URL/wmt10/resolve/main-zip/training-giga-fren.zip \
    9439f86523e5dff3f923526dbf6c6929da1786c18dbf64436d2b7564b83aaba3

raw train members \
    training-parallel-europarl-v7.zip training/europarl-v7.fr-en.@ \
    training-parallel-commoncrawl.zip commoncrawl.fr-en.@ \
    training-parallel-un.zip un/undoc.2000.fr-en.@ \
    training-parallel-nc-v9.zip training/news-commentary-v9.fr-en.@ \
    training-giga-fren.zip giga-fren.release2.fixed.@.gz
raw valid apostrophes test_sets wmt12 wmt13
raw test to_translate test_sets wmt14/full

# As the authors' script does it: punctuation as Moses' Perl script leaves it; 1 to 250 pieces a side, and a ratio of 1.5.
clean train --punctuation perl --max-ratio 1.5
clean valid --punctuation keep --keep-controls --max-ratio 1.5
prepare_task
