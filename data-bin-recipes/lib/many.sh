# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Many directions in one model: the languages, their pairs, and which directions are trained. It sources translation.sh.

source "${BASH_SOURCE[0]%/*}/translation.sh"

about langs "\"LANG ...\"" "the languages, each of which is translated into each other"
about zero-shot "\"SRC-TGT ...\"" "directions that are not trained, and scored all the same"

about directions "\"SRC-TGT ...\"" "these alone (default: all of --langs, but in training those of --zero-shot)"
about alpha X "directions are drawn in proportion to their number of sentences to the power of X"

# many: sets LANGS; PAIRS, each two languages once; DIRECTIONS, both of each pair; TRAINED, those without the zero-shot ones.
many() {
    local direction i j
    in_try langs="en de fr"
    read -ra LANGS <<<"${OPTIONS[langs]}"
    ((${#LANGS[@]} > 1)) || die "--langs ${OPTIONS[langs]}: give two languages or more"
    PAIRS=() DIRECTIONS=() TRAINED=()
    [[ ${OPTIONS[langs]} != *-* ]] || die "--langs ${OPTIONS[langs]}: a code has no hyphen here: take such as pt_BR"
    for ((i = 0; i < ${#LANGS[@]}; i++)); do
        for ((j = i + 1; j < ${#LANGS[@]}; j++)); do
            [[ ${LANGS[i]} != "${LANGS[j]}" ]] || die "--langs ${OPTIONS[langs]}: ${LANGS[i]} is there twice"
            PAIRS+=("${LANGS[i]}-${LANGS[j]}")
            DIRECTIONS+=("${LANGS[i]}-${LANGS[j]}" "${LANGS[j]}-${LANGS[i]}")
        done
    done
    for direction in ${OPTIONS[zero-shot]}; do
        if [[ " ${DIRECTIONS[*]} " != *" $direction "* ]]; then
            [[ ! -v GIVEN[zero-shot] ]] || die "--zero-shot $direction: must be one of: ${DIRECTIONS[*]}"
            OPTIONS[zero-shot]=${OPTIONS[zero-shot]//"$direction"/} # the default, of other languages
        fi
    done
    for direction in "${DIRECTIONS[@]}"; do
        is_zero_shot "$direction" || TRAINED+=("$direction")
    done
    for direction in ${OPTIONS[directions]:-}; do
        [[ " ${DIRECTIONS[*]} " == *" $direction "* ]] ||
            die "--directions $direction: must be one of: ${DIRECTIONS[*]}"
    done
    ((${#TRAINED[@]})) || die "--zero-shot ${OPTIONS[zero-shot]}: leaves nothing to train"
}

# is_zero_shot DIRECTION: whether it is one of --zero-shot.
is_zero_shot() { [[ " ${OPTIONS[zero-shot]} " == *" $1 "* ]]; }

# is_trained PAIR: whether one of its directions is trained.
is_trained() { ! is_zero_shot "$1" || ! is_zero_shot "${1#*-}-${1%-*}"; }

# of_pair PAIR: sets SRC and TGT.
of_pair() { SRC=${1%-*} TGT=${1#*-}; }

# tokens ROOT FOLDER LANG...: pre-training's vocabulary, with a token for each of the languages.
tokens() {
    copy_vocabulary "$1" "$2" && printf '<2%s> 1\n' "${@:3}" >>"$2/dict.txt"
}

# together FOLDER DATA...: the data of all pairs in one folder, without further copies.
together() {
    local data
    make_folder "$1"
    for data in "${@:2}"; do
        cp -fl -- "$data"/*.* "$1" || return
    done
}

# all_pairs NAME: a step that puts the data of PAIRS together in OUT/mt.
all_pairs() { step "$1" "$OUT/mt" together "{}" "${PAIRS[@]/#/"$OUT/mt."}"; }
