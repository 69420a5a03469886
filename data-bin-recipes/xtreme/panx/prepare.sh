#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch named entities, WikiAnn in its balanced split: 40 languages, up to 20,000 sentences each.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options hold-out=0 train=train-@.tsv dev=dev-@.tsv test=test-@.tsv \
    langs="af ar bg bn de el en es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr ms my nl pt ru sw ta te th tl tr ur vi yo zh" -- "$@"
archive https://s3.amazonaws.com/datasets.huggingface.co/wikiann/1.1.0/panx_dataset.zip \
    164814b64f749ad000988b5ab45050b5116913b3db466ab173008955ddf649a4
unpacked panx_dataset.zip

# split_of SPLIT ARCHIVE: a language's archive has the files train, dev and test.
split_of() { tar -xzOf "$2" --wildcards "*$1"; }

archives=@.tar.gz # an older release has them in a folder
[[ -e $SOURCE/en.tar.gz ]] || archives='*/@.tar.gz'
GOLD=1
for split in train dev test; do
    examples $split tsv "$archives" split_of $split
done
tidy
