#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch Multi30k (image captions, task 1) and make its data: a pre-training root of one pair, and translation data.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../lib/multi30k.sh"

parse_options out= local= src=en tgt=de vocab-size=8000 try -- "$@"
in_try vocab-size=$TRY_PIECES
require_choice src en de fr cs
require_choice tgt en de fr cs
require_number vocab-size
[[ ${OPTIONS[src]} != "${OPTIONS[tgt]}" ]] || die "--src and --tgt are both ${OPTIONS[src]}"
begin

LANGS=("$SRC" "$TGT")
for split in train val test_2016_flickr; do
    for lang in "${LANGS[@]}"; do
        [[ -z ${OPTIONS[local]} ]] || find_captions "$split.$lang"
        begin_data
        step "text, $split.$lang" "$OUT/raw/$split.$lang" fetch "$split.$lang" "{}" "$(lines_of $split)"
    done
done

# Captions are independent of each other, so there are no documents for the monolingual half. The command skips what is
# there already. The text has few different characters, so all of them get a piece.
run python "$REPOSITORY/scripts/prepare_root.py" --bitext "$SRC-$TGT=$OUT/raw/train.$SRC,$OUT/raw/train.$TGT" \
    --bitext-valid "$SRC-$TGT=$OUT/raw/val.$SRC,$OUT/raw/val.$TGT" --valid-lines 0 \
    --vocab-size "${OPTIONS[vocab-size]}" --character-coverage 1 --output "$OUT/pretrain"

prepare_translation train valid=val test=test_2016_flickr
end_data
