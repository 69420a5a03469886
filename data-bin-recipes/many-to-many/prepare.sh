#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# The data of one model for many directions: a pre-training root of every pair, and translation data whose dictionary has
# a token for each language to translate into.
#
# Pairs of which no direction is trained are left out of pre-training, too.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/many.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../lib/multi30k.sh"

about local DIR "the folder with {train,valid,test}.LANG, plain or .gz, or with Multi30k's {train,val,test_2016_flickr}.LANG, \
instead of a download of Multi30k: line N is the same sentence in every language"
parse_options out= local= langs="en de fr cs" zero-shot="de-fr fr-de" vocab-size=8000 try -- "$@"
in_try vocab-size=$TRY_PIECES
require_number vocab-size
choose_out
many
if [[ -z ${OPTIONS[local]} ]]; then
    for lang in "${LANGS[@]}"; do
        [[ " en de fr cs " == *" $lang "* ]] || die "--langs ${OPTIONS[langs]}: Multi30k has en de fr cs: give --local DIR for $lang"
    done
fi

OTHER_NAMES=", or {train,valid,test}.LANG of other texts"
declare -A OF_MULTI30K=([train]=train [valid]=val [test]=test_2016_flickr)
for split in train valid test; do
    lines=
    for lang in "${LANGS[@]}"; do
        from=$OUT/raw/$split.$lang
        make=(fetch "${OF_MULTI30K[$split]}.$lang" "{}" "$(lines_of $split)")
        if has "${OPTIONS[local]}" "$split.$lang"; then
            find_text "${OPTIONS[local]}" "$split.$lang" ""
            from=$FILE
            make=(to_file "{}" first "$(lines_of $split)" "$FILE")
        elif [[ -n ${OPTIONS[local]} ]]; then
            find_captions "${OF_MULTI30K[$split]}.$lang"
        fi
        begin_data
        step "text, $split.$lang" "$OUT/raw/$split.$lang" "${make[@]}"
        found=$(awk 'END { print NR }' "$OUT/raw/$split.$lang")
        ((found)) || die "$from: is empty"
        [[ ${lines:=$found} == "$found" ]] ||
            die "$split: $lines lines of ${LANGS[0]} and $found of $lang: line N must be the same sentence in all"
    done
done

bitext=() bitext_valid=()
for pair in "${PAIRS[@]}"; do
    of_pair "$pair"
    is_trained "$pair" || continue
    bitext+=("$pair=$OUT/raw/train.$SRC,$OUT/raw/train.$TGT")
    bitext_valid+=("$pair=$OUT/raw/valid.$SRC,$OUT/raw/valid.$TGT")
done
run python "$REPOSITORY/scripts/prepare_root.py" --bitext "${bitext[@]}" --bitext-valid "${bitext_valid[@]}" --valid-lines 0 \
    --vocab-size "${OPTIONS[vocab-size]}" --character-coverage 1 --output "$OUT/pretrain"

VOCABULARY=$OUT/vocabulary
step vocabulary "$VOCABULARY" tokens "$OUT/pretrain" "{}" "${LANGS[@]}"

for pair in "${PAIRS[@]}"; do
    of_pair "$pair"
    splits=(test)
    ! is_trained "$pair" || splits=(train valid test)
    prepare_translation "${splits[@]}"
done
all_pairs "all pairs"
end_data
