#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch BUCC 2018: two texts of German, French, Russian or Chinese and English each, in which some sentences are
# translations of each other. As in XTREME the sample is the dev set, and the training set the test set.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options dev=@-en.dev test=@-en.test langs="de fr ru zh" -- "$@"
URL=https://comparable.limsi.fr/bucc2018
declare -A DEV=(
    [de]=8e16ba8b02ef8d648b06adfbd6dfb188f43524e18f97b2b12a14a086caac62f3
    [fr]=df9eb3966954e163c9264076f7c9c1eb56d9d8a91855f9d3afbf2c0fdaef0a08
    [ru]=fce3cabc7ee50ddb4b18aa6fb090e2669c8383d2a29fc97eed6ae70fed9a23e5
    [zh]=a3425be5c0320ee131a0927b66c3e29befb3b481ebf1b87257e660e514bc16ac
)
declare -A TEST=(
    [de]=766e0fdebbd1438fb87c21254828eb13c8b997d8fbab002103dd060dcac50c5c
    [fr]=53c0d0e7dd97dc89593a2db25a26c5f0ccdc7113e8451263bb0c80e4c4c7dc30
    [ru]=1895df56e936ca3d4f5b12299ceffe0b7ff4806584c40bdaa3ae1d445f25afa5
    [zh]=3facb71798277c8f44dc78c1f8ae2110f254d0e14799f3508eedd54b4236877a
)
names=()
for lang in $(printf '%s\n' "${!DEV[@]}" | sort); do
    archive $URL/bucc2018-$lang-en.sample-gold.tar.bz2 "${DEV[$lang]}"
    archive $URL/bucc2018-$lang-en.training-gold.tar.bz2 "${TEST[$lang]}"
    names+=("bucc2018-$lang-en.sample-gold.tar.bz2" "bucc2018-$lang-en.training-gold.tar.bz2")
done
unpacked "${names[@]}"

for split in dev test; do
    pattern=${OPTIONS[$split]}
    for side in @ en gold; do
        OPTIONS[$split]=$pattern.$side
        part=sample
        [[ $split == dev ]] || part=training
        examples $split "${side/@/source}" "bucc2018/@-en/@-en.$part.$side"
    done
done
tidy
