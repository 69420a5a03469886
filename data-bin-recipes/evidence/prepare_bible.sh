#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# The data of languages with little text: verses, as documents and as pairs with English. The books of the test sets and of
# validation are in no training text.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

about local DIR "the folder with bible/{train,valid,test}.LANG (verses, a blank line between chapters), and \
bible_nt_lowres/{train,valid,test}.{en,sw,eu}, the New Testament alone, plain or .gz (needed)"
parse_options out= local= try -- "$@"
choose_out
OPTIONS[set]=bible
comparisons
[[ -n ${OPTIONS[local]} ]] || die "--local is needed: the folder with bible/ and bible_nt_lowres/"

# verses SPLIT LANG OTHER: sets FILES to the text of LANG that has the same verses as that of OTHER.
verses() {
    local folder=bible
    [[ " ${NEW_TESTAMENT[*]} " != *" $2 "* && " ${NEW_TESTAMENT[*]} " != *" $3 "* ]] || folder=bible_nt_lowres
    found "$folder/$1.$2"
}

lines=$(lines_of train) rest=$(lines_of valid)
mono=() mono_valid=() bitext=() bitext_valid=()
for lang in "${LANGS[@]}"; do
    verses train "$lang" "$lang"
    step "documents, train.$lang" "$OUT/raw/train.$lang" to_file "{}" first "$lines" "${FILES[@]}"
    verses valid "$lang" "$lang"
    step "documents, valid.$lang" "$OUT/raw/valid.$lang" to_file "{}" first "$rest" "${FILES[@]}"
    mono+=("$lang=$OUT/raw/train.$lang") mono_valid+=("$lang=$OUT/raw/valid.$lang")
done
for pair in "${PAIRS[@]}"; do
    of_pair "$pair"
    for split in train valid test; do
        verses $split "$TGT" "$SRC"
        other=("${FILES[@]}")
        verses $split "$SRC" "$TGT"
        require_same_blanks "${FILES[@]}" "${other[@]}"
        step "verses, $split.$pair.$SRC" "$OUT/raw/$split.$pair.$SRC" to_file "{}" side "$(lines_of $split)" "${FILES[@]}"
        step "verses, $split.$pair.$TGT" "$OUT/raw/$split.$pair.$TGT" to_file "{}" side "$(lines_of $split)" "${other[@]}"
    done
    bitext+=("$pair=$OUT/raw/train.$pair.$SRC,$OUT/raw/train.$pair.$TGT")
    bitext_valid+=("$pair=$OUT/raw/valid.$pair.$SRC,$OUT/raw/valid.$pair.$TGT")
done
run python "$REPOSITORY/scripts/prepare_root.py" --mono "${mono[@]}" --mono-valid "${mono_valid[@]}" --bitext "${bitext[@]}" \
    --bitext-valid "${bitext_valid[@]}" --valid-lines 0 --vocab-size "$PIECES" --character-coverage 0.9999 --output "$OUT/pretrain"

VOCABULARY=$OUT/vocabulary
step vocabulary "$VOCABULARY" tokens "$OUT/pretrain" "{}" "${LANGS[@]}"
for pair in "${PAIRS[@]}"; do
    of_pair "$pair"
    DATA=$OUT/mt.$pair prepare_translation "train=train.$pair" "valid=valid.$pair"
done
all_pairs "all pairs, for NMT first"

for size in "${SIZES[@]}"; do # such as en-sw.6379
    of_pair "${size%.*}"
    for side in "$SRC" "$TGT"; do
        step "verses, $size.$side" "$OUT/raw/$TEXTS.$size.$side" to_file "{}" first "${size##*.}" "$OUT/raw/train.${size%.*}.$side"
    done
    DATA=$OUT/$TEXTS.$size prepare_translation "train=$TEXTS.$size" "valid=valid.${size%.*}" "test=test.${size%.*}"
done
