# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Translation data: from texts to what fairseq-train reads. To be sourced by translation.sh.

# text SPLIT: set TEXT to the texts of this name, without .LANG: those that clean has made, or those of OUT/raw.
declare -A CLEANED=()
text() { TEXT=$OUT/${CLEANED[$1]:-raw}/$1; }

# prepare_translation SPLIT...: make DATA (default: OUT/mt.SRC-TGT) from the texts of these splits, with the SentencePiece
# model and dictionary of VOCABULARY (default: OUT/pretrain). A split may be NAME=FILE_NAME (train=finetune).
VOCABULARY=
prepare_translation() {
    local vocabulary=${VOCABULARY:-$OUT/pretrain} split prefixes=()
    for split; do
        text "${split#*=}"
        prefixes+=("--${split%%=*}pref" "$TEXT")
    done
    step binarise "${DATA:-$OUT/mt.$SRC-$TGT}" on_all_processors python "$REPOSITORY/scripts/binarize.py" \
        --source-lang "$SRC" --target-lang "$TGT" "${prefixes[@]}" \
        --sentencepiece "$vocabulary/sentencepiece.bpe.model" --dict "$vocabulary/dict.txt" --destdir "{}"
}

# prepare_options -- "$@": read the options of prepare.sh, in a recipe that begins with a pre-trained model. The recipe has
# set SRC and TGT. With --try and without --local the text is generated.
prepare_options() {
    parse_options out= pretrained= local= keep=0 try "$@"
    require_number keep
    begin
    VOCABULARY=$OUT/vocabulary
    require_pretrained
    [[ -z ${OPTIONS[pretrained]} ]] || find_vocabulary # before a long download
    if trying && [[ -z ${OPTIONS[local]} ]]; then
        say "[text] generated instead of downloaded: give --local DIR to try a text of your own"
        OPTIONS[local]=$OUT/made-up TRY_PIECES=400
        step "made-up text" "${OPTIONS[local]}" made_up "{}"
    fi
}

# made_up FOLDER: generate two of the toy corpus's languages, under the names of SRC and TGT.
made_up() {
    local split
    python "$REPOSITORY/data-bin-recipes/toy/generate.py" --output "$1" --words 60 --pairs $TRY_TRAIN --mono 1 \
        --finetune-pairs 1 --valid $TRY_REST --test $TRY_REST || return
    for split in train valid test; do
        mv -- "$1/$split.aa" "$1/$split.$SRC"
        mv -- "$1/$split.bb" "$1/$split.$TGT"
    done
}

# raw SPLIT COMMAND ARGUMENT...: make OUT/raw/SPLIT.LANG for both languages, from --local or from the output of COMMAND
# LANG ARGUMENT...
raw() {
    local split=$1 make=$2 lang from sides=()
    shift 2
    for lang in "$SRC" "$TGT"; do
        from=$OUT/raw/$split.$lang
        if [[ -n ${OPTIONS[local]} ]]; then
            find_text "${OPTIONS[local]}" "$split.$lang" "--local needs {train,valid,test}.{$SRC,$TGT}, plain or .gz"
            from=$FILE
            begin_data
            step "text, $split.$lang" "$OUT/raw/$split.$lang" to_file "{}" first "$(lines_of "$split")" "$FILE"
        else
            begin_data
            step "text, $split.$lang" "$OUT/raw/$split.$lang" to_file "{}" "$make" "$lang" "$@"
        fi
        sides+=("$(awk 'END { print NR }' "$OUT/raw/$split.$lang")") # wc leaves out a last line without its end
        ((sides[-1])) || die "$from: is empty"
    done
    ((sides[0] == sides[1])) ||
        die "$split: ${sides[0]} lines of $SRC and ${sides[1]} of $TGT: line N must be a translation of line N"
}

# copy_vocabulary FROM TO: copy a pre-trained model's SentencePiece model and dictionary.
copy_vocabulary() { make_folder "$2" && cp -- "$1/sentencepiece.bpe.model" "$1/dict.txt" "$2"; }

# find_vocabulary: set FOLDER to the folder of the pre-trained model's vocabulary; with --try, make a small model first.
FOLDER=
find_vocabulary() {
    local file raw=$OUT/raw
    [[ -z $FOLDER ]] || return 0
    small_model --bitext "$SRC-$TGT=$raw/train.$SRC,$raw/train.$TGT"
    FOLDER=$(dirname "$PRETRAINED")
    for file in sentencepiece.bpe.model dict.txt; do
        require "$FOLDER/$file" "pre-training leaves it beside its checkpoints"
    done
}

# clean SPLIT OPTION...: make OUT/clean/SPLIT.LANG from the pairs of OUT/raw with 1 to 250 pieces a side, with further options
# of veco clean.
clean() {
    local split=$1
    shift
    find_vocabulary
    step "clean, $split" "$OUT/clean/$split.json" cleaned "$split" "$OUT/raw/$split.$SRC" "$OUT/raw/$split.$TGT" \
        "$FOLDER/sentencepiece.bpe.model" --min-length 1 --max-length 250 --keep-copies --keep-duplicates "$@"
    CLEANED[$split]=clean
}

# cleaned SPLIT SOURCE TARGET PIECES OPTION...: the work of clean. It names the texts that it writes itself: among the words
# of the step they would make it another one as soon as they are there.
cleaned() {
    on_all_processors python "$REPOSITORY/scripts/clean.py" --source-lang "$SRC" --target-lang "$TGT" --inputs "$2" "$3" \
        --outputs "$OUT/clean/$1.$SRC" "$OUT/clean/$1.$TGT" --report "$OUT/clean/$1.json" --sentencepiece "$4" "${@:5}"
}

# prepare_task: make translation data with the pre-trained model's vocabulary, or with --keep N pieces of it.
prepare_task() {
    find_vocabulary
    if ((OPTIONS[keep])); then
        text train
        step vocabulary "$VOCABULARY" python "$REPOSITORY/scripts/trim_vocab.py" "$TEXT.$SRC" "$TEXT.$TGT" \
            --sentencepiece "$FOLDER/sentencepiece.bpe.model" --keep "${OPTIONS[keep]}" --output "{}"
    else
        step vocabulary "$VOCABULARY" copy_vocabulary "$FOLDER" "{}"
    fi
    prepare_translation train valid test
    end_data
}

# side LINES FILE...: of each the text, or so many lines; the first without its blank lines; a last line without its end
# gets one.
side() {
    local lines=$1 file
    # Without -a it takes text that is not UTF-8 for a binary file, and ends there.
    first "$lines" "$2" | { grep -av $'^\r*$' || die "$2: has no text"; } || return
    for file in "${@:3}"; do
        first "$lines" "$file" || return
    done
}

# require_same_blanks FILE OTHER: end unless the texts, plain or .gz, of which line N of one translates line N of the other, have
# their blank lines at the same places: `side` leaves them out of both.
require_same_blanks() {
    local line
    line=$(awk 'BEGIN { other = ARGV[2]; ARGC = 2 }
        (getline line < other) > 0 && !alone && ($0 ~ /^\r*$/) != (line ~ /^\r*$/) { alone = NR }
        END { if (alone) print alone }' <(first 0 "$1") <(first 0 "$2"))
    [[ -z $line ]] ||
        die "line $line is blank in $1 or $2 alone: line N must be the same sentence in every language, and blank in all or none"
}

# require_text FILE: end unless it is a text, plain or .gz, that can be read as often as one likes, from its beginning to its end.
require_text() {
    [[ $1 != *.xz ]] || die "$1: is packed by xz, which this script does not read: unpack it (xz -dc $1 > FILE)"
    python -c 'import sys
from veco_fairseq.cli import run
from veco_fairseq.files import count_lines, require_file
_, sys.argv[0], path = sys.argv
run(lambda: require_file(path) or count_lines(path) and None)' "$(basename "$0")" "$1" || exit 1
}
