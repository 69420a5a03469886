#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# The data of all comparisons: a pre-training root, the same text for NMT first and for mBART, and Multi30k's captions in
# several sizes, which pre-training does not see.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

about local DIR "the folder with bible/{train,valid}.LANG (verses, a blank line between chapters), \
newstest/{train_2008-2012,valid_2013}.LANG, manythings/train.en-LANG.{en,LANG} and \
multi30k/{train,val,test_2016_flickr}.LANG, plain or .gz (needed)"
parse_options out= local= try -- "$@"
choose_out
comparisons
[[ -n ${OPTIONS[local]} ]] || die "--local is needed: the folder with bible/, newstest/, manythings/ and multi30k/"

# Documents: chapters, and news without marks between articles. Verses and news are also pairs; manythings has more of some.
lines=$(lines_of train) rest=$(lines_of valid)
mono=() mono_valid=() bitext=() bitext_valid=()
for lang in "${LANGS[@]}"; do
    found "bible/train.$lang" "newstest/train_2008-2012.$lang"
    step "documents, train.$lang" "$OUT/raw/train.$lang" to_file "{}" first "$lines" "${FILES[@]}"
    found "bible/valid.$lang"
    step "documents, valid.$lang" "$OUT/raw/valid.$lang" to_file "{}" first "$rest" "${FILES[@]}"
    mono+=("$lang=$OUT/raw/train.$lang") mono_valid+=("$lang=$OUT/raw/valid.$lang")
done
for pair in "${PAIRS[@]}"; do
    of_pair "$pair"
    for name in bible/train newstest/valid_2013; do # of which `side` leaves out the blank lines
        found "$name.$SRC" "$name.$TGT"
        require_same_blanks "${FILES[@]}"
    done
    for side in "$SRC" "$TGT"; do
        files=("bible/train.$side" "newstest/train_2008-2012.$side")
        ! has "${OPTIONS[local]}/manythings" "train.$pair.$SRC" "train.$pair.$TGT" || files+=("manythings/train.$pair.$side")
        found "${files[@]}"
        step "pairs, train.$pair.$side" "$OUT/raw/train.$pair.$side" to_file "{}" side "$lines" "${FILES[@]}"
        found "newstest/valid_2013.$side"
        step "pairs, valid.$pair.$side" "$OUT/raw/valid.$pair.$side" to_file "{}" side "${rest/#0/$VALID}" "${FILES[@]}"
    done
    bitext+=("$pair=$OUT/raw/train.$pair.$SRC,$OUT/raw/train.$pair.$TGT")
    bitext_valid+=("$pair=$OUT/raw/valid.$pair.$SRC,$OUT/raw/valid.$pair.$TGT")
done
run python "$REPOSITORY/scripts/prepare_root.py" --mono "${mono[@]}" --mono-valid "${mono_valid[@]}" --bitext "${bitext[@]}" \
    --bitext-valid "${bitext_valid[@]}" --valid-lines 0 --vocab-size "$PIECES" --character-coverage 0.9999 --output "$OUT/pretrain"

# alone ROOT FOLDER: the root without its pairs.
alone() { mkdir "$2" && cp -rl -- "$1"/{mono,dict.txt,sentencepiece.bpe.model} "$2"; }
step "monolingual root" "$OUT/pretrain.mono" alone "$OUT/pretrain" "{}"

VOCABULARY=$OUT/vocabulary
step vocabulary "$VOCABULARY" tokens "$OUT/pretrain" "{}" "${LANGS[@]}"

for pair in "${PAIRS[@]}"; do
    of_pair "$pair"
    DATA=$OUT/mt.$pair prepare_translation "train=train.$pair" "valid=valid.$pair"
done
all_pairs "all pairs, for NMT first"

# few_pairs: the root with FEW pairs of each language pair beside all of the monolingual text, and these pairs for NMT first.
few_pairs() {
    local pair side bitext=()
    for pair in "${PAIRS[@]}"; do
        of_pair "$pair"
        for side in "$SRC" "$TGT"; do
            found "newstest/train_2008-2012.$side"
            step "few pairs, few.$pair.$side" "$OUT/raw/few.$pair.$side" to_file "{}" first "$FEW" "${FILES[@]}"
        done
        bitext+=("$pair=$OUT/raw/few.$pair.$SRC,$OUT/raw/few.$pair.$TGT")
        DATA=$OUT/mt.few.$pair prepare_translation "train=few.$pair" "valid=valid.$pair"
    done
    step "few pairs, for NMT first" "$OUT/mt.few" together "{}" "${PAIRS[@]/#/"$OUT/mt.few."}"
    run python "$REPOSITORY/scripts/prepare_root.py" --mono "${mono[@]}" --mono-valid "${mono_valid[@]}" --bitext "${bitext[@]}" \
        --bitext-valid "${bitext_valid[@]}" --valid-lines 0 --sentencepiece "$VOCABULARY/sentencepiece.bpe.model" \
        --dict "$OUT/pretrain/dict.txt" --output "$OUT/pretrain.few"
}
trying || few_pairs # --try has no arms with them

# mBART reads every sentence that the others see, as text of one language, where fairseq's multilingual_denoising looks for it.
texts=() texts_valid=()
for lang in "${LANGS[@]}"; do
    files=()
    for pair in "${PAIRS[@]}"; do
        ! has "${OPTIONS[local]}/manythings" "train.$pair.$lang" || files+=("manythings/train.$pair.$lang")
    done
    found "${files[@]}"
    step "sentences, $lang" "$OUT/raw/sentences.$lang" to_file "{}" first "$lines" "$OUT/raw/train.$lang" "${FILES[@]}"
    texts+=("$lang=$OUT/raw/sentences.$lang")
done
run python "$REPOSITORY/scripts/prepare_root.py" --mono "${texts[@]}" --mono-valid "${mono_valid[@]}" --valid-lines 0 \
    --sentencepiece "$VOCABULARY/sentencepiece.bpe.model" --dict "$VOCABULARY/dict.txt" --output "$OUT/denoising"
step "dictionary of mBART" "$OUT/denoising/mono/dict.txt" cp -- "$VOCABULARY/dict.txt" "{}"

# Captions: the first PAIRS of them, and all for validation and test.
for lang in "${LANGS[@]}"; do
    [[ " $SRC ${SIZES[*]}" == *[\ -]$lang[\ .]* ]] || continue
    for name in train val test_2016_flickr; do
        found "multi30k/$name.$lang"
        step "captions, $name.$lang" "$OUT/raw/captions.$name.$lang" to_file "{}" first "$(lines_of $name)" "${FILES[@]}"
    done
done
for size in "${SIZES[@]}"; do # such as en-de.500
    of_pair "${size%.*}"
    for side in "$SRC" "$TGT"; do
        step "captions, $size.$side" "$OUT/raw/captions.$size.$side" to_file "{}" first "${size##*.}" "$OUT/raw/captions.train.$side"
    done
    DATA=$OUT/captions.$size prepare_translation "train=captions.$size" valid=captions.val test=captions.test_2016_flickr
done
