# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Understanding: from what a task has to download, or the files of --local, to OUT/data. understanding.sh sources this.

# unpacked ARCHIVE...: set SOURCE to --local, or to the folder that these archives are unpacked into. A name that does not
# begin with / is one of OUT/downloads. From here to `tidy` the data are not whole.
unpacked() {
    local name paths=()
    begin_data
    SOURCE=${OPTIONS[local]:-$OUT/unpacked}
    [[ -z ${OPTIONS[local]} ]] || return 0
    for name; do
        [[ $name == /* ]] || name=$OUT/downloads/$name
        paths+=("$name")
    done
    step unpacking "$SOURCE" unpack "{}" "${paths[@]}"
}

# squad ARCHIVE...: as unpacked, and also with SQuAD 1.1 and the translations of its training set in --translations.
squad() {
    local url=https://rajpurkar.github.io/SQuAD-explorer/dataset translations=()
    archive $url/train-v1.1.json 3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955 squad-train.en.json
    archive $url/dev-v1.1.json 95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9 squad-dev.en.json
    if [[ -n ${OPTIONS[translations]} ]]; then
        translations=("$(realpath "${OPTIONS[translations]}")"/squad.translate.train.en-*.json)
        [[ -e ${translations[0]} ]] || die "${OPTIONS[translations]}: has no squad.translate.train.en-LANG.json"
    fi
    unpacked squad-train.en.json squad-dev.en.json "$@" "${translations[@]}"
}

# matching PATTERN LANG: set FILES to the files in SOURCE that match this pattern, in which @ stands for the language.
matching() {
    local pattern=${1//@/$2}
    mapfile -t FILES < <(cd "$SOURCE" && { compgen -G "$pattern" || :; compgen -G "$pattern.gz" || :; } | LC_ALL=C sort | awk '
        { plain = $0; sub(/\.gz$/, "", plain) }
        !seen[plain]++') # the plain one of two, which sort puts first
    FILES=("${FILES[@]/#/"$SOURCE/"}") # in quotes: bash 5.2 takes an & for what was replaced
}

# treebanks FILE...: print them, plain or .gz, with a blank line between two, which the last sentence of a treebank may lack.
treebanks() {
    first 0 "$1" || return
    shift
    while (($#)); do
        echo
        first 0 "$1" || return
        shift
    done
}

# examples SPLIT SUFFIX PATTERN [COMMAND...]: make OUT/data/SPLIT-LANG.SUFFIX for each language that has such files in
# SOURCE, from what COMMAND prints of them. Files of --local are taken as they are, with the pattern of --SPLIT. With
# --hold-out N the last N training examples are the dev set. Where GOLD is set, the downloaded training sets of the other
# languages are no translations of the English one, which --setting translate-train would take them for: they are left out.
examples() {
    local split=$1 suffix=$2 pattern=$3 held=0 lang whole part english= without=() found=() lines=() advice
    shift 3
    if [[ -n ${OPTIONS[local]} ]]; then
        pattern=${OPTIONS[$split]}
        [[ $pattern == *@* || ${#LANGS[@]} == 1 ]] ||
            die "--$split $pattern: has no @ for the language: put one in, or give --langs LANG"
        set --
    elif [[ -n ${GOLD:-} && $split == train ]]; then
        english=1
    fi
    if (($# == 0)); then
        set -- first 0
        [[ $suffix != conllu ]] || set -- treebanks
    fi
    if ((${OPTIONS[hold-out]:-0})); then
        [[ $split != dev ]] || return 0
        [[ $split != train ]] || held=${OPTIONS[hold-out]}
    fi
    for lang in "${LANGS[@]}"; do
        [[ -z $english || $lang == en ]] || ((held)) || continue
        matching "$pattern" "$lang"
        if ((${#FILES[@]} == 0)); then
            without+=("$lang")
            continue
        fi
        [[ $suffix == conllu || ${#FILES[@]} == 1 ]] ||
            die "${FILES[*]}: are several files of one language: --$split must match only one"
        found+=("$lang") part=$OUT/data/$split-$lang.$suffix whole=$part
        ((held == 0)) || whole=$OUT/raw/$split-$lang.$suffix
        if trying && [[ $suffix == @(tsv|conllu|json) ]]; then
            step "$split set, $lang" "$OUT/whole/$split-$lang.$suffix" to_file "{}" "${@//@/$lang}" "${FILES[@]}"
            step "some of the $split set, $lang" "$whole" to_file "{}" \
                some "$OUT/whole/$split-$lang.$suffix" --first $(($(lines_of "$split") + held))
        else
            step "$split set, $lang" "$whole" to_file "{}" "${@//@/$lang}" "${FILES[@]}"
            [[ -z ${OPTIONS[local]} || -s $whole ]] || die "${FILES[*]}: has no text"
        fi
        if ((held)); then
            [[ -n $english && $lang != en ]] ||
                step "what is left to train on, $lang" "$part" to_file "{}" some "$whole" --but-last "$held"
            step "dev set, $lang" "$OUT/data/dev-$lang.$suffix" to_file "{}" some "$whole" --last "$held"
            MADE+=("dev-$lang.$suffix")
            lines+=("$(wc -l <"$whole")")
        fi
        [[ -n $english && $lang != en ]] || MADE+=("$split-$lang.$suffix")
    done
    advice="give --$split PATTERN for other names"
    [[ -n ${OPTIONS[local]} ]] || advice="add a language that has one to --langs" # the names are the download's
    [[ $split != dev || ! -v OPTIONS[hold-out] ]] || advice+=", or --hold-out N, which takes it from the training set"
    [[ -n $english && " ${LANGS[*]} " != *" en "* ]] || ((${#found[@]})) ||
        die "$SOURCE: has no $split set: no file ${pattern}[.gz], with a language for @ (${LANGS[*]}): $advice"
    ((${#without[@]} == 0)) || say "no $split set for ${without[*]}"
    [[ -n $english ]] || (($(printf '%s\n' "${lines[@]}" | sort -u | wc -l) < 2)) ||
        say "the training sets differ in length, so their rows are not translations of each other: use --plug out"
}

# tidy: remove what an earlier call with other options has left in OUT/data, which is whole now.
tidy() {
    local file name
    for file in "$OUT"/data/*.done; do
        name=${file##*/} && name=${name%.done}
        [[ " ${MADE[*]} " == *" $name "* ]] || rm -f -- "$OUT/data/$name" "$file"
    done
    end_data
}
