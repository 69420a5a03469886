#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# A data root of many languages: documents of each, and the translations of each with a pivot language.
#
# usage: prepare.sh [--out DIR] --documents DIR [--captions DIR] [--more "PREFIX ..."] [--langs "de fr ..."]
#                   [--pivot LANG] [--vocab-size N]
#
#   --documents   {train,valid}.LANG[.gz]: line N is the same verse in every language, a blank line between chapters;
#                 monolingual text as it is, bitext without the blank lines
#   --captions    {train,val}.LANG[.gz], as Multi30k's: more bitext, for the languages that it has
#   --more        more bitext to train on: PREFIX.LANG[.gz] for all languages, or PREFIX.PIVOT-LANG.{PIVOT,LANG}[.gz];
#                 what a language has not is left out
#   --out         where everything goes (default: data-bin/multilingual in the repository)
#   --langs       beside the pivot (default: de fr es ru zh cs mi tl)
#   --pivot       (default: en)
#   --vocab-size  (default: 16000)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/steps.sh"

parse_options out= documents= captions= more= langs="de fr es ru zh cs mi tl" pivot=en vocab-size=16000 -- "$@"
require_number vocab-size
out=${OPTIONS[out]:-$REPOSITORY/data-bin/multilingual} pivot=${OPTIONS[pivot]}
[[ -n ${OPTIONS[documents]} ]] || die "--documents is needed: the folder with {train,valid}.LANG"

# text DIR NAME: the text of DIR/NAME or DIR/NAME.gz.
text() {
    if [[ -e $1/$2 ]]; then cat "$1/$2"; else gzip -dc "$1/$2.gz"; fi
}

# has DIR NAME...
has() {
    local folder=$1 name
    shift
    for name; do
        [[ -n $folder && (-e $folder/$name || -e $folder/$name.gz) ]] || return 1
    done
}

# sources LANG OTHER PAIR SPLIT: sets FILES, what of LANG has a translation in OTHER: verses, captions and, to train on,
# more.
sources() {
    local lang=$1 other=$2 pair=$3 split=$4 prefix folder name
    FILES=()
    file "${OPTIONS[documents]}" "$split.$lang"
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
    local path=$1/$2
    [[ -e $path ]] || path=$path.gz
    FILES+=("$path")
}

# side FILE...: the first without its blank lines, and the others; a last line without its end gets one.
side() {
    local file
    gzip -cdf -- "$1" | grep -v '^$' || return
    for file in "${@:2}"; do
        gzip -cdf -- "$file" | sed '$a\' || return
    done
}

for prefix in ${OPTIONS[more]}; do
    found=("$prefix".*)
    require "${found[0]}" "--more must be the beginning of the files' names, before .LANG[.gz]"
done

mono=() mono_valid=() bitext=() bitext_valid=()
for lang in "$pivot" ${OPTIONS[langs]}; do
    for split in train valid; do
        has "${OPTIONS[documents]}" "$split.$lang" || die "${OPTIONS[documents]}/$split.$lang[.gz]: is not there"
        step "documents, $split.$lang" "$out/raw/$split.$lang" to_file "{}" text "${OPTIONS[documents]}" "$split.$lang"
    done
    mono+=("$lang=$out/raw/train.$lang")
    mono_valid+=("$lang=$out/raw/valid.$lang")
    [[ $lang != "$pivot" ]] || continue
    pair=$pivot-$lang
    for split in train valid; do
        sources "$pivot" "$lang" "$pair" $split
        step "pairs, $split.$pair.$pivot" "$out/raw/$split.$pair.$pivot" to_file "{}" side "${FILES[@]}"
        sources "$lang" "$pivot" "$pair" $split
        step "pairs, $split.$pair.$lang" "$out/raw/$split.$pair.$lang" to_file "{}" side "${FILES[@]}"
    done
    bitext+=("$pair=$out/raw/train.$pair.$pivot,$out/raw/train.$pair.$lang")
    bitext_valid+=("$pair=$out/raw/valid.$pair.$pivot,$out/raw/valid.$pair.$lang")
done
python "$REPOSITORY/scripts/prepare_root.py" --mono "${mono[@]}" --bitext "${bitext[@]}" \
    --mono-valid "${mono_valid[@]}" --bitext-valid "${bitext_valid[@]}" --valid-lines 0 \
    --vocab-size "${OPTIONS[vocab-size]}" --character-coverage 0.9998 --output "$out/pretrain"
