#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch WMT14 English-German (4.5 million pairs), and make its data with a pre-trained model's vocabulary.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=en TGT=de
prepare_options -- "$@"

# The corpora of WMT14, as files with a checksum; newstest2014 (all 3,003 sentences) is sacreBLEU's.
URL=https://huggingface.co/datasets/wmt
archive $URL/wmt13/resolve/main-zip/training-parallel-europarl-v7.zip \
    5b2d8b32c2396da739b4e731871c597fcc6e75729becd74619d0712eecf7770e
archive $URL/wmt13/resolve/main-zip/training-parallel-commoncrawl.zip \
    5ffe980072ea29adfd84568d099bea366d9f72772b988e670794ae851b4e5627
archive $URL/wmt14/resolve/main-zip/training-parallel-nc-v9.zip \
    ce199f93ec56ff480137ba29f0819f9a22e70d88be6d7458f112303d67d623d5

corpora() {
    members "$1" training-parallel-europarl-v7.zip training/europarl-v7.de-en.@ \
        training-parallel-commoncrawl.zip commoncrawl.de-en.@ \
        training-parallel-nc-v9.zip training/news-commentary-v9.de-en.@
}

# As the authors' script does it: every 100th pair is for validation; punctuation as Moses' Perl script leaves it; 1 to 250
# pieces a side, and any ratio of these.
train() { corpora "$1" | awk 'NR % 100'; }
valid() { corpora "$1" | awk 'NR % 100 == 0'; }

raw train train
raw valid valid
raw test to_translate test_sets wmt14/full
clean train --punctuation perl --max-ratio 250
clean valid --punctuation perl --max-ratio 250
prepare_task
