#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch XQuAD (a test set in 11 languages), and SQuAD 1.1 to train on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options hold-out=0 train=train-@.json dev=dev-@.json test=test-@.json translations= langs="ar de el en es hi ru th tr vi zh" -- "$@"
declare -A CHECKSUM=(
    [ar]=abdabd7afed5c635d99cca0f3f0d0c9d9ed0bc77451e963c2e4e0638c29e486d
    [de]=990b5d746746ed65ed4702ea5f35f99ffa4e2f1c390c07d003642acd937916f9
    [el]=821cf0f88e73fa258fd2f548b19b6ec39f7025059e16f6f9fc8cd797c9c3663e
    [en]=e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29
    [es]=dcbae93ec3a9f4b9e78fd834a171d6f96c1a875e10e15b7530b7e4ef4971e37e
    [hi]=df2cce3532b37e9beb8979704b5c9a4bf874358f105395a298b89427b43b9d24
    [ru]=208d5b1aa154c52b1b5c5eda16281e455e8fd198cdb9af3f469f0d6037d973bf
    [th]=5cdda11d0e1e075f7872abf4e6ae830388ce7f617964d542308e9ae4257e0f43
    [tr]=92179a564774b7696100d144c1e10870d0a966b6fccbdd254a65b9d2ab1971cc
    [vi]=f619a1eb11fb42d3ab0834259e488a65f585447ef6154437bfb7199d85161a04
    [zh]=691d0b3359bc6b8faa8de931dfdfe21d50a65861ae348e32a0d1a0190b0c8835
)
names=()
for lang in $(printf '%s\n' "${!CHECKSUM[@]}" | sort); do
    names+=("xquad.$lang.json")
    archive "https://github.com/google-deepmind/xquad/raw/master/xquad.$lang.json" "${CHECKSUM[$lang]}"
done
squad "${names[@]}"

examples train json 'squad*train.*@.json'
examples dev json squad-dev.@.json
examples test json xquad.@.json
tidy
