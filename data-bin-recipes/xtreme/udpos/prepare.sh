#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch parts of speech, Universal Dependencies 2.5: all treebanks of a language together, as in XTREME.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options hold-out=0 train=train-@.conllu dev=dev-@.conllu test=test-@.conllu \
    langs="af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi yo zh" -- "$@"
archive https://lindat.mff.cuni.cz/repository/xmlui/bitstream/handle/11234/1-3105/ud-treebanks-v2.5.tgz \
    5ff973e44345a5f69b94cc1427158e14e851c967d58773cc2ac5a1d3adaca409
unpacked ud-treebanks-v2.5.tgz

# with_words FILE...: treebanks whose words had to be left out (NYUAD, ESL, FTB, BCCWJ) have _ for every one.
with_words() {
    local file whole=()
    for file; do
        [[ $file == *@(nyuad|esl|ftb|bccwj)-ud-* ]] || whole+=("$file")
    done
    ((${#whole[@]} == 0)) || treebanks "${whole[@]}"
}

GOLD=1
for split in train dev test; do
    examples $split conllu "ud-treebanks-v2.5/*/@_*-ud-$split.conllu" with_words
done
tidy
