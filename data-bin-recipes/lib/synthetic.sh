# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Translations as training data: back-translation (Sennrich et al., 2016) and sequence-level distillation (Kim and Rush,
# 2016). This file sources what it needs.

source "${BASH_SOURCE[0]%/*}/translation.sh"

about monolingual FILE "text in the target language, one sentence a line, plain or .gz"
about topk K "draw each piece of a synthetic source from the K likeliest ones; 0: search for the best source with a beam of 5"
about tag TEXT "what every synthetic source begins with, so that the model can tell it from a real one"
about repeat N "how often the real pairs are there, beside the synthetic ones"
about teacher NAME "the --name of the fine-tuned model whose translations the student learns (default: what --arm says)"
about name NAME "the name of the model that is made, which keeps several apart (default: backtranslated, or distilled)"
PART=100000 # lines that are translated in one step: what an interruption can cost

# translate NAME CHECKPOINT FILE OUTPUT OPTION...: make OUTPUT from the text of FILE, part by part, with these options of
# translate.py. Translations of other options stay, and the script ends, where STUDENT was trained with them: this costs no time.
translate() {
    local name=$1 checkpoint=$2 file=$3 output=$4 lines start parts=() command
    shift 4
    find_cpu "${EXTRA[@]}" "${DEVICE[@]}"
    lines=$(awk 'END { print NR }' "$file")
    ((lines)) || die "$file: is empty"
    for ((start = 0; start < lines; start += PART)); do
        parts+=("$output.$((start / PART))")
        command=(to_file "{}" translate_part "$file" $start "$checkpoint"
            --sentencepiece "$OUT/vocabulary/sentencepiece.bpe.model" --data "$OUT/mt.$SRC-$TGT" "$@" "${CPU[@]}")
        if [[ -e ${parts[-1]}.done ]] && has_checkpoints "$STUDENT" &&
            ! is_made "${parts[-1]}" "$(identity "${parts[-1]}" "${command[@]}")"; then
            die "$STUDENT: $TRAINED_OTHERWISE"
        fi
        step "$name, line $((start + 1)) of $lines" "${parts[-1]}" "${command[@]}"
    done
    step "$name" "$output" to_file "{}" cat "${parts[@]}"
}

# translate_part FILE START OPTION...: print the translations of the part of FILE after this line.
translate_part() {
    local file=$1 start=$2
    shift 2
    INPUT=/dev/stdin run python "$REPOSITORY/scripts/translate.py" "$@" \
        < <(awk -v start="$start" -v count=$PART 'NR > start + count { exit } NR > start' "$file")
}

# with_text FILE OTHER: print the lines of FILE that have text in both files, of which line N of one translates line N of the
# other: not those of blank lines, and not those whose translation came out empty.
with_text() {
    awk 'BEGIN { other = ARGV[2]; ARGC = 2 }
        { if ((getline line < other) < 1) exit }
        /[^ \t\r]/ && line ~ /[^ \t\r]/' "$1" "$2"
}

# pairs_with_text FROM TO: make the texts of the pairs that have text on both sides, TO.LANG, of FROM.LANG.
pairs_with_text() {
    step "pairs with text, $SRC" "$2.$SRC" to_file "{}" with_text "$1.$SRC" "$1.$TGT"
    step "pairs with text, $TGT" "$2.$TGT" to_file "{}" with_text "$1.$TGT" "$1.$SRC"
}

# joined TIMES REAL SYNTHETIC [TAG]: print the lines of REAL, so many times, and those of SYNTHETIC, with TAG before each.
joined() {
    local time tag=${4:+$4 }
    for ((time = 0; time < $1; time++)); do
        cat -- "$2" || return
    done
    awk -v tag="${tag//\\/\\\\}" '{ print tag $0 }' "$3"
}

# synthetic_folder NAME: set folder to that of the translations of --name and --seed, and STUDENT to that of the model which is
# trained with them.
synthetic_folder() {
    STUDENT=$OUT/checkpoints/$(run_name "${OPTIONS[name]:-$1}" "${OPTIONS[seed]}")
    folder=$OUT/$1${OPTIONS[name]:+.${OPTIONS[name]}}
    [[ ${OPTIONS[seed]} == 1 ]] || folder+=.s${OPTIONS[seed]}
}

# synthetic_data FOLDER: translation data in FOLDER/mt, of FOLDER/train and of the validation and test sets that there are.
synthetic_data() {
    local split prefixes=(--trainpref "$1/train")
    for split in valid test; do
        text_there $split
        prefixes+=("--${split}pref" "$TEXT")
    done
    DATA=$1/mt
    step "binarise, $(basename "$1")" "$DATA" on_all_processors python "$REPOSITORY/scripts/binarize.py" \
        --source-lang "$SRC" --target-lang "$TGT" "${prefixes[@]}" \
        --sentencepiece "$OUT/vocabulary/sentencepiece.bpe.model" --dict "$OUT/vocabulary/dict.txt" --destdir "{}"
}

# text_there SPLIT: set TEXT as text does, by what prepare.sh has left.
text_there() {
    [[ ! -e $OUT/clean/$1.$SRC ]] || CLEANED[$1]=clean
    text "$1"
    require "$TEXT.$SRC" "run prepare.sh first"
}

# backtranslate_options NAME=DEFAULT... -- "$@": read the options of backtranslate.sh; the defaults are finetune.sh's.
backtranslate_options() {
    local MACHINES=() # several would all translate
    finetune_options monolingual= topk=10 tag='<BT>' repeat=1 average=10 "$@"
    require_number topk
    require_positive repeat average
    [[ -n ${OPTIONS[monolingual]} ]] || die "--monolingual is missing: give a text in $TGT"
    require "${OPTIONS[monolingual]}" "give a text in $TGT"
    require_text "${OPTIONS[monolingual]}" # before a long training
    [[ -n $(gzip -cdf -- "${OPTIONS[monolingual]}" 2>/dev/null | head -c 1000 | tr -d '[:space:]') ]] ||
        die "${OPTIONS[monolingual]}: begins with no text: give one sentence a line"
}

# backtranslate_task OPTION...: fine-tune a model of the other direction, translate --monolingual with it, and fine-tune on real and
# synthetic pairs together. OPTION... are the recipe's options of fairseq-train.
backtranslate_task() {
    local folder name=${OPTIONS[name]:-backtranslated} search=(--beam 5)
    ((OPTIONS[topk] == 0)) || search=(--beam 1 --sampling --sampling-topk "${OPTIONS[topk]}" --seed "${OPTIONS[seed]}")
    DATA=$OUT/mt.$SRC-$TGT
    synthetic_folder backtranslated
    OPTIONS[name]=$name.reverse
    finetune_task -s "$TGT" -t "$SRC" "$@"
    average "$(run_name "${OPTIONS[name]}" "${OPTIONS[seed]}")" "${OPTIONS[average]}"
    REMAKE='' step "monolingual text" "$folder/mono.$TGT" to_file "{}" first "$(lines_of valid)" "${OPTIONS[monolingual]}"
    translate "back-translation" "$CHECKPOINT" "$folder/mono.$TGT" "$folder/mono.$SRC" "${search[@]}"
    pairs_with_text "$folder/mono" "$folder/pairs"
    text_there train
    step "training text, $SRC" "$folder/train.$SRC" to_file "{}" joined "${OPTIONS[repeat]}" "$TEXT.$SRC" "$folder/pairs.$SRC" \
        "${OPTIONS[tag]}"
    step "training text, $TGT" "$folder/train.$TGT" to_file "{}" joined "${OPTIONS[repeat]}" "$TEXT.$TGT" "$folder/pairs.$TGT"
    synthetic_data "$folder"
    OPTIONS[name]=$name
    finetune_task "$@"
}

# distill_options NAME=DEFAULT... -- "$@": read the options of distill.sh; the defaults are finetune.sh's, but for the depth.
distill_options() {
    local MACHINES=()
    finetune_options teacher= average=10 "$@"
    [[ -v GIVEN[decoder-layers] ]] || OPTIONS[decoder-layers]=1 # with --try, too
    require_positive average
}

# distill_task OPTION...: translate the sources of the training set with the mean of the teacher's last checkpoints, and
# fine-tune a student with fewer decoder layers on these translations. OPTION... are the recipe's options of fairseq-train.
distill_task() {
    local folder teacher
    synthetic_folder distilled
    teacher=$(run_name "${OPTIONS[teacher]:-${OPTIONS[arm]}}" "${OPTIONS[seed]}")
    require "$OUT/checkpoints/$teacher" "run finetune.sh first, or give --teacher NAME"
    tell_unfinished "$OUT/checkpoints/$teacher/any"
    require_whole "$OUT/mt.$SRC-$TGT"
    choose_device # before the long translation
    # The last checkpoints of a running training change; the translation knows their mean by its checksum.
    [[ -e $OUT/checkpoints/$teacher.done ]] || rm -f -- "$OUT/checkpoints/$teacher.average"*.pt.done
    REMAKE='' average "$teacher" "${OPTIONS[average]}"
    text_there train
    REMAKE='' step "sources, $SRC" "$folder/taught.$SRC" to_file "{}" first "$(lines_of valid)" "$TEXT.$SRC"
    translate "distillation" "$CHECKPOINT" "$folder/taught.$SRC" "$folder/taught.$TGT" --beam 5
    pairs_with_text "$folder/taught" "$folder/train"
    synthetic_data "$folder"
    OPTIONS[name]=${OPTIONS[name]:-distilled}
    finetune_task "$@"
}
