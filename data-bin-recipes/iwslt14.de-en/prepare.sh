#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch IWSLT14 German-English (TED talks, 170,000 pairs), and make its data with a pre-trained model's vocabulary.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

SRC=de TGT=en
prepare_options -- "$@"

ARCHIVE=de-en.tgz
# No SHA-256 of it is published. An MD5 is enough: one can make two files with one MD5, but none with a given MD5.
archive https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/$ARCHIVE 10936dfdf616504ddbd844e91b94ef4a

# talks LANG: the sentences of the training talks, without the lines of metadata, which begin with a tag.
talks() { member $ARCHIVE "de-en/train.tags.de-en.$1" | grep -av '^ *<' | sed 's/^ *//; s/ *$//'; }

# Every 23rd sentence is for validation, as in fairseq's recipe.
train() { talks "$1" | awk 'NR % 23'; }
valid() { talks "$1" | awk 'NR % 23 == 0'; }

# test_talks LANG: the five test sets of fairseq's recipe.
test_talks() {
    local name
    for name in TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012; do
        member $ARCHIVE "de-en/IWSLT14.$name.de-en.$1.xml" |
            sed -n 's/^ *<seg id="[0-9]*"> *\(.*[^ ]\) *<\/seg> *$/\1/p' || return
    done
}

raw train train
raw valid valid
raw test test_talks
prepare_task
