#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# A data root of many languages: documents of each, and the translations of each with a pivot language.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

about local DIR "the folder with {train,valid}.LANG, plain or .gz (needed): line N is the same verse in every language, \
with a blank line between chapters; monolingual text as it is, bitext without the blank lines"
about documents DIR "an older name of --local"
about captions DIR "folder of {train,val}.LANG, plain or .gz, such as Multi30k's: more bitext for its languages"
about more "\"PREFIX ...\"" "more bitext to train on: PREFIX.LANG for all languages, or PREFIX.PIVOT-LANG.{PIVOT,LANG}, plain \
or .gz; what a language has not is left out"
about langs "\"LANG ...\"" "all languages but the pivot"
about pivot LANG "the language that is paired with all others"
parse_options out= local= documents= captions= more= langs="de fr es ru zh cs mi tl" pivot=en vocab-size=16000 try -- "$@"
in_try vocab-size=$((4 * TRY_PIECES))
require_number vocab-size
choose_out
out=$OUT pivot=${OPTIONS[pivot]} documents=${OPTIONS[local]:-${OPTIONS[documents]}}
[[ ${OPTIONS[langs]} == *[![:space:]]* ]] || die "--langs is empty: give the languages but the pivot"
[[ " ${OPTIONS[langs]} " != *" $pivot "* ]] || die "--langs ${OPTIONS[langs]}: leave out $pivot, the pivot"
[[ -n $documents ]] || die "--local is needed: the folder with {train,valid}.LANG, plain or .gz"

# sources LANG OTHER PAIR SPLIT: sets FILES, what of LANG has a translation in OTHER: verses, captions and, to train on,
# more.
sources() {
    local lang=$1 other=$2 pair=$3 split=$4 prefix folder name
    FILES=()
    file "$documents" "$split.$lang"
    if has "${OPTIONS[captions]}" "train.$lang" "train.$other"; then
        file "${OPTIONS[captions]}" "${split/valid/val}.$lang"
    fi
    [[ $split == train ]] || return 0
    for prefix in ${OPTIONS[more]}; do
        folder=$(dirname "$prefix") name=$(basename "$prefix")
        if has "$folder" "$name.$pair.$lang" "$name.$pair.$other"; then
            file "$folder" "$name.$pair.$lang"
        elif has "$folder" "$name.$lang" "$name.$other"; then
            file "$folder" "$name.$lang"
        fi
    done
}

# file DIR NAME: one more of FILES.
file() {
    find_text "$1" "$2" "it has the text of another language"
    FILES+=("$FILE")
}

for prefix in ${OPTIONS[more]}; do
    found=("$prefix".*)
    require "${found[0]}" "--more must be the beginning of the files' names, before .LANG[.gz]"
done

mono=() mono_valid=() bitext=() bitext_valid=()
for lang in "$pivot" ${OPTIONS[langs]}; do
    for split in train valid; do
        find_text "$documents" "$split.$lang" "--local needs {train,valid}.LANG, plain or .gz, of the pivot and of --langs"
        step "documents, $split.$lang" "$out/raw/$split.$lang" to_file "{}" first "$(lines_of $split)" "$FILE"
    done
    mono+=("$lang=$out/raw/train.$lang")
    mono_valid+=("$lang=$out/raw/valid.$lang")
    [[ $lang != "$pivot" ]] || continue
    pair=$pivot-$lang
    for split in train valid; do
        require_same_blanks "$out/raw/$split.$pivot" "$out/raw/$split.$lang"
        sources "$pivot" "$lang" "$pair" $split
        step "pairs, $split.$pair.$pivot" "$out/raw/$split.$pair.$pivot" to_file "{}" side "$(lines_of $split)" "${FILES[@]}"
        sources "$lang" "$pivot" "$pair" $split
        step "pairs, $split.$pair.$lang" "$out/raw/$split.$pair.$lang" to_file "{}" side "$(lines_of $split)" "${FILES[@]}"
    done
    bitext+=("$pair=$out/raw/train.$pair.$pivot,$out/raw/train.$pair.$lang")
    bitext_valid+=("$pair=$out/raw/valid.$pair.$pivot,$out/raw/valid.$pair.$lang")
done
run python "$REPOSITORY/scripts/prepare_root.py" --mono "${mono[@]}" --bitext "${bitext[@]}" \
    --mono-valid "${mono_valid[@]}" --bitext-valid "${bitext_valid[@]}" --valid-lines 0 \
    --vocab-size "${OPTIONS[vocab-size]}" --character-coverage 0.9998 --output "$out/pretrain"
