#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch Tatoeba: up to 1,000 sentences in each of 36 languages with their translations into English.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options \
    langs="afr ara ben bul cmn deu ell est eus fin fra heb hin hun ind ita jav jpn kat kaz kor mal mar nld pes por rus spa swh tam tel tgl tha tur urd vie" -- "$@"
# The files of one commit never change; they are not checked otherwise.
URL=https://raw.githubusercontent.com/facebookresearch/LASER/fec5c7d63daa2bea9d127e8252b10e87278586c0/data/tatoeba/v1
names=()
for lang in "${LANGS[@]}"; do
    for side in "$lang" eng; do
        names+=("tatoeba.$lang-eng.$side")
        archive "$URL/tatoeba.$lang-eng.$side" any
    done
done
unpacked "${names[@]}"

for side in @ eng; do
    OPTIONS[test]=tatoeba.@-eng.$side
    examples test "${side/@/source}" "tatoeba.@-eng.$side"
done
tidy
