# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# Translation: from raw text and a pre-trained model to BLEU. It sources all that this needs.

source "$(dirname "${BASH_SOURCE[0]}")/pretraining.sh"
source "$(dirname "${BASH_SOURCE[0]}")/downloads.sh"

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

# begin SRC TGT: sets SRC, TGT and OUT.
begin() {
    SRC=$1 TGT=$2
    OUT=${OPTIONS[out]:-$REPOSITORY/data-bin/$RECIPE}
    VOCABULARY=$OUT/vocabulary
}

# members LANG ARCHIVE NAME ARCHIVE NAME...: these files, one after the other; @ in a NAME stands for LANG.
members() {
    local lang=$1
    shift
    while (($#)); do
        member "$1" "${2//@/$lang}" || return
        shift 2
    done
}

# test_sets LANG NAME...: that side of these sets of sacreBLEU's, which it downloads and checks.
test_sets() {
    local lang=$1 side=src name
    [[ $lang == "$SRC" ]] || side=ref
    shift
    for name; do
        sacrebleu --test-set "$name" --language-pair "$SRC-$TGT" --echo $side || return
    done
}

# raw SPLIT COMMAND ARGUMENT...: OUT/raw/SPLIT.LANG for both languages, from --local or what COMMAND LANG ARGUMENT...
# prints.
raw() {
    local split=$1 make=$2 lang file sides=()
    shift 2
    for lang in "$SRC" "$TGT"; do
        if [[ -n ${OPTIONS[local]} ]]; then
            file=${OPTIONS[local]}/$split.$lang
            [[ -e $file ]] || file=$file.gz
            [[ -e $file ]] || die "${file%.gz}[.gz]: is not there: --local needs {train,valid,test}.{$SRC,$TGT}"
            step "text, $split.$lang" "$OUT/raw/$split.$lang" to_file "{}" gzip -cdf "$file"
        else
            step "text, $split.$lang" "$OUT/raw/$split.$lang" to_file "{}" "$make" "$lang" "$@"
        fi
        sides+=("$(awk 'END { print NR }' "$OUT/raw/$split.$lang")") # wc leaves out a last line without its end
        ((sides[-1])) || die "$OUT/raw/$split.$lang: is empty"
    done
    ((sides[0] == sides[1])) ||
        die "$split: ${sides[0]} lines of $SRC and ${sides[1]} of $TGT: line N must be a translation of line N"
}

# copy_vocabulary FROM TO: a pre-trained model's SentencePiece model and dictionary.
copy_vocabulary() { mkdir -p "$2" && cp -- "$1/sentencepiece.bpe.model" "$1/dict.txt" "$2"; }

# prepare_task: translation data of OUT/raw with the pre-trained model's vocabulary, or with --keep N pieces of it.
prepare_task() {
    local folder file
    folder=$(dirname "$PRETRAINED")
    for file in sentencepiece.bpe.model dict.txt; do
        require "$folder/$file" "pre-training leaves it beside its checkpoints"
    done
    if ((OPTIONS[keep])); then
        step vocabulary "$VOCABULARY" python "$REPOSITORY/scripts/trim_vocab.py" "$OUT/raw/train.$SRC" \
            "$OUT/raw/train.$TGT" --sentencepiece "$folder/sentencepiece.bpe.model" --keep "${OPTIONS[keep]}" \
            --output "{}"
    else
        step vocabulary "$VOCABULARY" copy_vocabulary "$folder" "{}"
    fi
    prepare_translation "$OUT" "$SRC" "$TGT" train valid test
}

# batch TOKENS WORKERS LIMIT: sets MAX_TOKENS of a worker's batch, at most LIMIT, and UPDATE_FREQ, so that an update has
# TOKENS in all.
batch() {
    UPDATE_FREQ=$((($1 + $2 * $3 - 1) / ($2 * $3)))
    MAX_TOKENS=$(($1 / ($2 * UPDATE_FREQ)))
}

# run_name NAME SEED: what the checkpoints and scores of a fine-tuned model are called.
run_name() { printf 'finetune.%s.s%s' "$1" "$2"; }

# finetune OUT SRC TGT ARM NAME UPDATES LR SEED OPTION...
# veco: from the camlm model; xlm: from the mlm model with new cross-attention; random: from nothing.
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
            --checkpoint "$pretrained" --output "${start[1]}" --decoder-layers 3 \
            --dict "$out/mt.$src-$tgt/dict.$tgt.txt" "${new[@]}"
    fi
    folder=$out/checkpoints/$(run_name "$name" "$seed")
    training "fine-tuning, $name" "$folder" fairseq-train "$out/mt.$src-$tgt" --distributed-world-size 1 \
        --user-dir "$USER_DIR" --task translation --arch veco_mt_tiny --decoder-layers 3 "${start[@]}" \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 1.0 --weight-decay 0.01 \
        --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates 50 \
        --total-num-update "$updates" --max-update "$updates" --seed "$seed" \
        --batch-size 128 --required-batch-size-multiple 1 \
        --log-format simple --log-interval 20 --no-epoch-checkpoints --save-dir "$folder" "$@"
}

# finetune_options NAME=DEFAULT... -- "$@": reads finetune.sh's options; the recipe gives the settings that are its own.
finetune_options() {
    parse_options out= pretrained= arm=veco decoder-layers=all layer-selection=last name= seed=1 max-tokens=4096 \
        workers=0 nodes=1 node-rank="${VECO_NODE_RANK:-${SLURM_NODEID:-0}}" master="${VECO_MASTER:-}" "$@"
    require_choice arm veco xlm random
    require_choice tie-self-attention yes no
    require_number seed updates warmup save-every workers node-rank
    require_positive batch-tokens max-tokens nodes
    require_pretrained
}

# finetune_task OPTION...: convert and train; the options of fairseq-train before the user's own.
finetune_task() {
    local arm=${OPTIONS[arm]} seed=${OPTIONS[seed]} name=${OPTIONS[name]:-${OPTIONS[arm]}} data=$OUT/mt.$SRC-$TGT
    local workers nodes=${OPTIONS[nodes]} start=()
    local command conversion model folder shape
    require "$data" "run prepare.sh first"
    choose_device
    workers=$WORKERS
    batch "${OPTIONS[batch-tokens]}" $((workers * nodes)) "${OPTIONS[max-tokens]}"

    model=$OUT/converted/$name.s$seed.pt folder=$OUT/checkpoints/$(run_name "$name" "$seed")
    conversion=(python "$REPOSITORY/scripts/convert_to_seq2seq.py" --checkpoint "$PRETRAINED" --output "$model"
        --decoder-layers "${OPTIONS[decoder-layers]}" --layer-selection "${OPTIONS[layer-selection]}"
        --dict "$data/dict.$TGT.txt" --seed "$seed")
    [[ $arm != xlm ]] || conversion+=(--random-cross-attention)
    [[ ${OPTIONS[tie-self-attention]} != yes ]] || conversion+=(--tie-self-attention)
    if ((OPTIONS[node-rank] == 0)); then
        step "conversion, $name" "$model" "${conversion[@]}"
    else
        await "conversion, $name" "$model" "${conversion[@]}"
    fi
    read -ra shape < <(
        python -c 'import json, sys; print(json.load(open(sys.argv[1]))["finetune_options"])' "$model.json")
    [[ $arm == random ]] || start=(--finetune-from-model "$model")
    command=(fairseq-train --distributed-world-size 1) # else it takes all GPUs
    if ((workers * nodes > 1)); then
        command=(bash "$REPOSITORY/scripts/launch.sh" --workers "$workers" --nodes "$nodes" --)
        # no options, which would make it another training on other machines
        export VECO_NODE_RANK=${OPTIONS[node-rank]} VECO_MASTER=${OPTIONS[master]}
    fi
    command+=("$data" --user-dir "$USER_DIR" "${shape[@]}" "${start[@]}" "${DEVICE[@]}"
        --criterion label_smoothed_cross_entropy --optimizer adam --lr-scheduler polynomial_decay
        --max-tokens "$MAX_TOKENS" --update-freq "$UPDATE_FREQ"
        --lr "${OPTIONS[lr]}" --total-num-update "${OPTIONS[updates]}" --max-update "${OPTIONS[updates]}" --seed "$seed"
        --no-epoch-checkpoints --log-interval 100 --save-dir "$folder" "$@" "${EXTRA[@]}")
    if ((OPTIONS[node-rank] == 0)); then
        training "fine-tuning, $name" "$folder" "${command[@]}"
    elif is_made "$folder" "$(identity "$folder" "${command[@]}")"; then # the first machine would not come
        say "[fine-tuning, $name] already there: $folder"
    else
        run "${command[@]}"
    fi
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

# evaluate_task: the mean of the last --average checkpoints translates the test set; both BLEUs.
evaluate_task() {
    local run folder average
    run=$(run_name "${OPTIONS[name]}" "${OPTIONS[seed]}")
    folder=$OUT/checkpoints/$run average=$OUT/checkpoints/$run.average.pt
    require "$folder" "run finetune.sh first"
    [[ -e $folder.done ]] || REMAKE=1 # while it is trained, its last checkpoints change
    step "average, $run" "$average" python "$REPOSITORY/scripts/average_checkpoints.py" --inputs "$folder" \
        --num-update-checkpoints "${OPTIONS[average]}" --output "$average"
    evaluate "$OUT" "$SRC" "$TGT" test "$run" "$average" "$OUT/raw/test.$TGT" \
        --lenpen "${OPTIONS[lenpen]}" "${EXTRA[@]}"
}
