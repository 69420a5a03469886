# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# What the recipes share; to be sourced, in bash 4.4 or newer, after `set -euo pipefail`. It sets REPOSITORY
# and RECIPE (the name of the recipe's folder), and puts the commands of .venv first on PATH.
# VECO_SKIP_SETUP=1 leaves the installation as it is.

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RECIPE=$(basename "$(cd "$(dirname "$0")" && pwd)")
USER_DIR=$REPOSITORY/veco_fairseq
export PYTHONPATH="$REPOSITORY${PYTHONPATH:+:$PYTHONPATH}"

say() { printf '%s\n' "$*"; }

# die MESSAGE: end with one line on standard error.
die() {
    printf '%s: error: %s\n' "$RECIPE/$(basename "$0")" "$*" >&2
    exit 1
}

# parse_options NAME=DEFAULT... -- "$@"
# Fills OPTIONS[NAME] from `--NAME VALUE` arguments, and EXTRA with what stands after a `--` of the user's.
# --help prints the comment at the head of the calling script.
parse_options() {
    declare -gA OPTIONS=()
    declare -ga EXTRA=()
    local names=()
    while [[ $1 != -- ]]; do
        OPTIONS[${1%%=*}]=${1#*=}
        names+=("--${1%%=*}")
        shift
    done
    shift
    while (($#)); do
        case $1 in
        --) EXTRA=("${@:2}"); break ;;
        -h | --help)
            awk 'NR > 3 && !/^#/ { exit } NR > 3 { sub(/^# ?/, ""); print }' "$0"
            exit 0 ;;
        --*)
            [[ -v OPTIONS[${1#--}] ]] || die "$1: no such option (there are ${names[*]})"
            (($# > 1)) || die "$1: needs a value"
            OPTIONS[${1#--}]=$2
            shift 2 ;;
        *) die "$1: stands alone, where an option is expected (there are ${names[*]})" ;;
        esac
    done
}

# require_number NAME...: these options must be whole numbers.
require_number() {
    local name
    for name; do
        [[ ${OPTIONS[$name]} =~ ^[0-9]+$ ]] || die "--$name ${OPTIONS[$name]}: must be a whole number"
    done
}

# require_positive NAME...: these must be whole numbers from 1 on.
require_positive() {
    local name
    require_number "$@"
    for name; do
        [[ ${OPTIONS[$name]} == *[1-9]* ]] || die "--$name ${OPTIONS[$name]}: must be 1 or more"
    done
}

# require_choice NAME CHOICE...: this option must be one of the choices.
require_choice() {
    local name=$1 choice
    shift
    for choice; do
        [[ ${OPTIONS[$name]} == "$choice" ]] && return
    done
    die "--$name ${OPTIONS[$name]}: must be one of: $*"
}

# require PATH MESSAGE: end if there is no such file or folder.
require() { [[ -e $1 ]] || die "$1: is not there: $2"; }

# identity OUTPUT COMMAND...: the words of a command, and a checksum of each that is a file, was made by a step or is a
# prefix of files in a step's folder, but for its own output.
identity() {
    local output=$1 word file files
    shift
    printf '%q ' "$@"
    for word; do
        [[ $word != "$output" && $word != "$output"/* ]] || continue
        for file in "$word" "$word.done" "$word/preparation.json"; do
            if [[ -f $file ]]; then
                cksum <"$file" | tr '\n' ' '
                continue 2
            fi
        done
        files=("$word".*)
        [[ ! -f ${word%/*}.done || -e $word || ! -f ${files[0]} ]] || cat -- "${files[@]}" | cksum | tr '\n' ' '
    done
}

# run COMMAND...: while it is a program, SIGTERM goes on to it (a training saves), and then ends the script with 143.
run() {
    local child code=0 terminated=
    [[ $(type -t "$1") == file ]] || { "$@"; return; }
    (trap - INT && exec "$@") & # in the background it would ignore Ctrl-C
    child=$!
    trap 'terminated=1; kill "$child" 2>/dev/null || :' TERM
    wait "$child" || code=$?
    while [[ -n $terminated ]] && kill -0 "$child" 2>/dev/null; do # the signal has ended only the wait
        wait "$child" || :
    done
    trap - TERM
    [[ -z $terminated ]] || exit 143
    return $code
}

# is_made OUTPUT IDENTITY: whether a step has made it of just this.
is_made() { [[ -e $1 && -f $1.done && $(<"$1.done") == "$2" ]]; }

# step NAME OUTPUT COMMAND...
# Run COMMAND to make OUTPUT (a file or a folder), unless it is there and was made by the same command from the
# same files. `{}` in COMMAND stands for a temporary name, which becomes OUTPUT at the end; without `{}` COMMAND
# writes OUTPUT itself, and can be interrupted and started again. After a step that was run, all later steps of
# the script run too.
REMAKE=
step() {
    local name=$1 output=$2 started=$SECONDS word words=() made_from
    shift 2
    made_from=$(identity "$output" "$@")
    if [[ -z $REMAKE ]] && is_made "$output" "$made_from"; then
        say "[$name] already there: $output"
        return
    fi
    REMAKE=1
    say "[$name] makes $output"
    mkdir -p "$(dirname "$output")"
    rm -rf -- "$output.done" "$output.partial"
    for word; do
        words+=("${word//'{}'/"$output.partial"}")
    done
    run "${words[@]}" || die "$name failed (exit code $?): see the lines above"
    if [[ $* == *'{}'* ]]; then
        rm -rf -- "$output"
        mv -- "$output.partial" "$output"
    fi
    [[ -e $output ]] || die "$name ended without making $output"
    printf '%s' "$made_from" >"$output.done"
    say "[$name] done in $((SECONDS - started)) s"
}

# await NAME OUTPUT COMMAND...
# Wait until the first machine has run this step; all machines share the folder.
AWAIT_SECONDS=600
await() {
    local name=$1 output=$2 started made_from
    shift 2
    made_from=$(identity "$output" "$@")
    started=$SECONDS
    say "[$name] waits for the first machine to make $output"
    until is_made "$output" "$made_from"; do
        ((SECONDS - started < AWAIT_SECONDS)) ||
            die "$name: the first machine has not made $output after $AWAIT_SECONDS s: see what it says, and start again"
        sleep 1
    done
}

# same_training FOLDER COMMAND...: refuse to go on in a folder of checkpoints with other options or other data, which
# would mix two experiments.
same_training() {
    local folder=$1 begun trained
    shift
    begun=$(identity "$folder" "$@")
    for trained in "$folder"/checkpoint_*.pt "$folder"/*/{checkpoint_*.pt,score}; do
        if [[ -e $trained && -f $folder.begun && $(<"$folder.begun") != "$begun" ]]; then
            die "$folder: was trained with other options or data: remove it, or choose another --out or --name"
        fi
    done
    mkdir -p "$folder"
    printf '%s' "$begun" >"$folder.begun"
}

# training NAME FOLDER COMMAND...
# A step that trains into FOLDER and resumes from its last checkpoint.
training() {
    local name=$1 folder=$2
    shift 2
    same_training "$folder" "$@"
    REMAKE= step "$name" "$folder" "$@"
}

# to_file FILE COMMAND...: run COMMAND with its standard output in FILE.
to_file() {
    local file=$1
    shift
    run "$@" >"$file"
}

# prepare_translation OUT SRC TGT SPLIT...: OUT/mt.SRC-TGT from the raw OUT/raw/SPLIT.{SRC,TGT}[.gz], with the
# SentencePiece model and dictionary of VOCABULARY (default: OUT/pretrain); a split may be NAME=FILE_NAME
# (train=finetune).
prepare_translation() {
    local out=$1 src=$2 tgt=$3 vocabulary=${VOCABULARY:-$1/pretrain} split lang file inputs=() outputs=() prefixes=()
    shift 3
    for split; do
        for lang in "$src" "$tgt"; do
            file=$out/raw/${split#*=}.$lang
            [[ -e $file ]] || file=$file.gz
            inputs+=("$file")
            outputs+=("{}/${split%%=*}.$lang")
        done
        prefixes+=("--${split%%=*}pref" "$out/pieces.$src-$tgt/${split%%=*}")
    done
    step pieces "$out/pieces.$src-$tgt" python "$REPOSITORY/scripts/encode.py" \
        --sentencepiece "$vocabulary/sentencepiece.bpe.model" --inputs "${inputs[@]}" --outputs "${outputs[@]}"
    step binarise "$out/mt.$src-$tgt" on_all_processors fairseq-preprocess -s "$src" -t "$tgt" "${prefixes[@]}" \
        --srcdict "$vocabulary/dict.txt" --tgtdict "$vocabulary/dict.txt" --destdir "{}"
}

# on_all_processors COMMAND...: with their number, which is no part of what is made, as --workers.
on_all_processors() { run "$@" --workers "$(nproc)"; }

# pretrain OUT OBJECTIVE[.NAME] UPDATES SEED OPTION...: checkpoints in OUT/checkpoints/OBJECTIVE[.NAME].
# camlm: VECO; mlm: XLM; xlme: XLM-E.
pretrain() {
    local out=$1 name=$2 objective=${2%%.*} updates=$3 seed=$4 model
    shift 4
    require "$out/pretrain/dict.txt" "run prepare.sh first"
    model=(--criterion camlm --objective "$objective" --arch veco_tiny)
    [[ $objective != xlme ]] || model=(--criterion replaced_token --arch xlme_tiny)
    training "pre-training, $name" "$out/checkpoints/$name" fairseq-train "$out/pretrain" --distributed-world-size 1 \
        --user-dir "$USER_DIR" --task camlm "${model[@]}" \
        --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 1.0 --weight-decay 0.01 \
        --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates 100 \
        --total-num-update "$updates" --max-update "$updates" --seed "$seed" \
        --log-format simple --log-interval 20 --no-epoch-checkpoints \
        --save-dir "$out/checkpoints/$name" "$@"
}

# run_name NAME SEED: what the checkpoints and scores of a fine-tuned model are called.
run_name() { printf 'finetune.%s.s%s' "$1" "$2"; }

# finetune OUT SRC TGT ARM NAME UPDATES LR SEED OPTION...
# veco: from the camlm model; xlm: from the mlm model with new cross-attention; random: from nothing.
# DECODER_LAYERS is the number of the decoder's layers; a recipe may set it.
DECODER_LAYERS=3
finetune() {
    local out=$1 src=$2 tgt=$3 arm=$4 name=$5 updates=$6 lr=$7 seed=$8 folder pretrained objective start=() new=()
    shift 8
    require "$out/mt.$src-$tgt" "run prepare.sh first"
    if [[ $arm != random ]]; then
        objective=camlm
        [[ $arm == veco ]] || { objective=mlm && new=(--random-cross-attention --seed "$seed"); }
        pretrained=$out/checkpoints/$objective/checkpoint_last.pt
        require "$pretrained" "run train.sh --objective $objective first"
        start=(--finetune-from-model "$out/converted/$arm.s$seed.pt")
        step "conversion, $arm" "${start[1]}" python "$REPOSITORY/scripts/convert_to_seq2seq.py" \
            --checkpoint "$pretrained" --output "${start[1]}" --decoder-layers "$DECODER_LAYERS" \
            --dict "$out/mt.$src-$tgt/dict.$tgt.txt" "${new[@]}"
    fi
    folder=$out/checkpoints/$(run_name "$name" "$seed")
    training "fine-tuning, $name" "$folder" fairseq-train "$out/mt.$src-$tgt" --distributed-world-size 1 \
        --user-dir "$USER_DIR" --task translation --arch veco_mt_tiny --decoder-layers "$DECODER_LAYERS" "${start[@]}" \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 1.0 --weight-decay 0.01 \
        --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates 50 \
        --total-num-update "$updates" --max-update "$updates" --seed "$seed" \
        --batch-size 128 --required-batch-size-multiple 1 \
        --log-format simple --log-interval 20 --no-epoch-checkpoints --save-dir "$folder" "$@"
}

# evaluate OUT SRC TGT SPLIT NAME CHECKPOINT REFERENCE OPTION...: translate, with further options of fairseq-generate,
# and score into OUT/scores/NAME.json.
evaluate() {
    local out=$1 src=$2 tgt=$3 split=$4 name=$5 checkpoint=$6 reference=$7 generated=$1/scores/$5.$4.out
    shift 7
    require "$checkpoint" "run finetune.sh first"
    require "$reference" "run prepare.sh first"
    step "translation, $name" "$generated" to_file "{}" fairseq-generate "$out/mt.$src-$tgt" --user-dir "$USER_DIR" \
        --path "$checkpoint" --gen-subset "$split" --beam 5 --max-len-a 1.5 --max-len-b 20 --batch-size 128 \
        --remove-bpe sentencepiece "$@"
    python "$REPOSITORY/scripts/score.py" --generate-output "$generated" --reference "$reference" --lang "$tgt" \
        --json "$out/scores/$name.json"
}

if [[ -z ${VECO_SKIP_SETUP:-} && -f $REPOSITORY/scripts/setup.sh ]]; then
    bash "$REPOSITORY/scripts/setup.sh"
fi
if [[ -d $REPOSITORY/.venv/bin ]]; then
    PATH=$REPOSITORY/.venv/bin:$PATH
fi
