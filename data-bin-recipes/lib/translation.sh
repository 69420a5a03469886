# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Translation: from raw text and a pre-trained model to BLEU. This file sources what it needs.

source "${BASH_SOURCE[0]%/*}/pretraining.sh"
source "${BASH_SOURCE[0]%/*}/downloads.sh"
source "${BASH_SOURCE[0]%/*}/texts.sh"

about src LANG "the language to translate from"
about tgt LANG "the language to translate into"
about keep N "keep this many pieces of the vocabulary, those that the training text needs most; 0: keep all"
about arm "veco|xlm|random" "veco: the whole pre-trained model; xlm: the pre-trained model with new cross-attention (where \
the recipe pre-trains, the model of --objective mlm); random: random weights"
about name NAME "the model's name, which keeps several of one arm apart; without it finetune.sh takes the arm's name"
about pretrained-name NAME "begin with the model that train.sh made with this --name (default: with the one without a name)"
about lr X "the highest learning rate"
about decoder-layers "N|all" "layers of the decoder (see veco convert --help)"
about layer-selection "last|first|I,J,..." "pre-trained layers that the decoder takes (see veco convert --help)"
about tie-self-attention "yes|no" "share the encoder's self-attention with the decoder (see veco convert --help)"
about batch-tokens N "tokens of an update, over all workers"
about max-tokens N "most tokens in a worker's batch"
about save-every N "updates from one checkpoint to the next, of which the last ten are kept; 0: save only the best and the last"
about nodes N "number of machines; give the same command on each (see scripts/launch.sh --help)"
about node-rank I "number of this machine, from 0 (default: with several machines VECO_NODE_RANK or SLURM_NODEID, if set)"
about master HOST:PORT "address of the first machine (see scripts/launch.sh --help)"
about average N "translate with the mean of this many of the last checkpoints; 0: with the last one"
about checkpoint NAME "translate with the file of this name in the model's folder instead"
about lenpen X "length penalty of the search"
about split-compounds "" "cut words at their hyphens before tokenised BLEU is counted, as some papers on WMT14 do"

# begin: set OUT, and SRC and TGT where they are options.
begin() {
    local folder=$RECIPE
    if [[ -v OPTIONS[src] ]]; then
        SRC=${OPTIONS[src]} TGT=${OPTIONS[tgt]}
        folder+=.$SRC-$TGT
    fi
    choose_out "$folder"
}

# batch TOKENS WORKERS LIMIT: set MAX_TOKENS of a worker's batch, at most LIMIT, and UPDATE_FREQ, so that an update has
# TOKENS in all.
batch() {
    UPDATE_FREQ=$((($1 + $2 * $3 - 1) / ($2 * $3)))
    MAX_TOKENS=$(($1 / ($2 * UPDATE_FREQ)))
    ((MAX_TOKENS)) || die "--batch-tokens $1: leaves no token for one of $2 workers"
}

# run_name NAME SEED: print the name of a fine-tuned model's checkpoints and scores.
run_name() { printf 'finetune.%s.s%s' "$1" "$2"; }

# finetune_own_options NAME=DEFAULT... -- "$@": read the options of finetune.sh, in a recipe that pre-trains a veco_tiny.
finetune_own_options() {
    PROGRAM=fairseq-train
    parse_options out= arm=veco pretrained-name= name= seed=1 warmup=50 save-every=0 try "$@"
    in_try updates=15 warmup=5
    require_choice arm veco xlm random
    require_number seed updates warmup save-every
    [[ ${OPTIONS[arm]} != random || -z ${OPTIONS[pretrained-name]} ]] ||
        die "--pretrained-name ${OPTIONS[pretrained-name]} --arm random: random begins with no model: leave one out"
    begin
}

# DECODER_LAYERS is the number of layers of the decoder; a recipe may set it.
DECODER_LAYERS=3

# The task of fairseq-train, and the folder of its data (default: that of SRC and TGT); a recipe may set them.
TASK=translation
DATA=

# finetune_own OPTION...: convert and train, with these options of fairseq-train before the user's own. The arm veco starts
# from the camlm model, xlm from the mlm model with new cross-attention, random from nothing; with --pretrained-name from that
# of this name.
finetune_own() {
    local name=${OPTIONS[name]:-${OPTIONS[arm]}} updates=${OPTIONS[updates]}
    local arm=${OPTIONS[arm]} seed=${OPTIONS[seed]} from=${OPTIONS[pretrained-name]:+.${OPTIONS[pretrained-name]}}
    local data=${DATA:-$OUT/mt.$SRC-$TGT} folder pretrained objective start=() new=() save=()
    require_whole "$data"
    if [[ $arm != random ]]; then
        objective=camlm
        [[ $arm == veco ]] || { objective=mlm && new=(--random-cross-attention --seed "$seed"); }
        pretrained=$OUT/checkpoints/$objective$from/checkpoint_last.pt
        [[ -v GIVEN[pretrained-name] || ! -e $OUT/checkpoints/$objective.$name ]] ||
            say "[fine-tuning, $name] takes $objective, not $objective.$name: for that one give --pretrained-name $name"
        require "$pretrained" "run train.sh --objective $objective${from:+ --name ${from#.}} first"
        tell_unfinished "$pretrained"
        start=(--finetune-from-model "$OUT/converted/$arm$from.s$seed.pt")
        step "conversion, $arm" "${start[1]}" python "$REPOSITORY/scripts/convert_to_seq2seq.py" \
            --checkpoint "$pretrained" --output "${start[1]}" --decoder-layers "$DECODER_LAYERS" \
            --dict "$data/dict.$TGT.txt" "${new[@]}"
    fi
    ((OPTIONS[save-every] == 0)) || save=(--save-interval-updates "${OPTIONS[save-every]}" --keep-interval-updates 10)
    folder=$OUT/checkpoints/$(run_name "$name" "$seed")
    training "fine-tuning, $name" "$folder" fairseq-train "$data" --distributed-world-size 1 \
        --user-dir "$USER_DIR" --task "$TASK" --arch veco_mt_tiny --decoder-layers "$DECODER_LAYERS" "${start[@]}" \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "${OPTIMIZER[@]}" \
        --lr "${OPTIONS[lr]}" --lr-scheduler polynomial_decay --warmup-updates "${OPTIONS[warmup]}" \
        --total-num-update "$updates" --max-update "$updates" --seed "$seed" \
        --batch-size 128 --required-batch-size-multiple 1 \
        "${LOG[@]}" --save-dir "$folder" "${save[@]}" "$@" "${EXTRA[@]}"
}

# The options of a training on several machines; a script that runs on one has none of them.
MACHINES=(nodes=1 node-rank= master=)

# finetune_options NAME=DEFAULT... -- "$@": read the options of finetune.sh; the recipe gives its own settings.
finetune_options() {
    PROGRAM=fairseq-train
    parse_options out= pretrained= arm=veco layer-selection=last name= seed=1 max-tokens=4096 \
        workers=0 "${MACHINES[@]}" try "$@"
    : "${OPTIONS[nodes]:=1}" "${OPTIONS[master]:=${VECO_MASTER:-}}"
    in_try updates=40 warmup=10 lr=1e-3 batch-tokens=1000 max-tokens=1000 save-every=10 decoder-layers=all
    require_choice arm veco xlm random
    require_choice tie-self-attention yes no
    require_positive batch-tokens max-tokens nodes
    # A cluster numbers the machines of trainings that know nothing of each other, too.
    ((OPTIONS[nodes] == 1)) || : "${OPTIONS[node-rank]:=${VECO_NODE_RANK:-${SLURM_NODEID:-0}}}"
    : "${OPTIONS[node-rank]:=0}"
    require_number seed updates warmup save-every workers node-rank
    ((OPTIONS[node-rank] < OPTIONS[nodes])) ||
        die "--node-rank ${OPTIONS[node-rank]}: must be from 0 to $((OPTIONS[nodes] - 1)) (--nodes ${OPTIONS[nodes]})"
    begin
    require_pretrained
}

# finetune_task OPTION...: convert and train, with these options of fairseq-train before the user's own. DATA is the folder of
# the translation data, if it is not OUT/mt.SRC-TGT.
finetune_task() {
    local name=${OPTIONS[name]:-${OPTIONS[arm]}} data=${DATA:-$OUT/mt.$SRC-$TGT}
    local arm=${OPTIONS[arm]} seed=${OPTIONS[seed]} workers nodes=${OPTIONS[nodes]} start=()
    local command conversion model folder shape
    require_whole "$data"
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
    command=(fairseq-train --distributed-world-size 1) # without this it takes all GPUs
    if ((workers * nodes > 1)); then
        command=(bash "$REPOSITORY/scripts/launch.sh" --workers "$workers" --nodes "$nodes" --)
        # These are no options: other machines would make it another training.
        export VECO_NODE_RANK=${OPTIONS[node-rank]} VECO_MASTER=${OPTIONS[master]}
    fi
    command+=("$data" --user-dir "$USER_DIR" "${shape[@]}" "${start[@]}" "${DEVICE[@]}"
        --criterion label_smoothed_cross_entropy --optimizer adam --lr-scheduler polynomial_decay
        --max-tokens "$MAX_TOKENS" --update-freq "$UPDATE_FREQ"
        --lr "${OPTIONS[lr]}" --total-num-update "${OPTIONS[updates]}" --max-update "${OPTIONS[updates]}" --seed "$seed"
        --no-epoch-checkpoints --log-interval 100 --save-dir "$folder" "$@"
        --warmup-updates "${OPTIONS[warmup]}" --save-interval-updates "${OPTIONS[save-every]}"
        --keep-interval-updates 10 "${EXTRA[@]}")
    if ((OPTIONS[node-rank] == 0)); then
        training "fine-tuning, $name" "$folder" "${command[@]}"
    elif is_made "$folder" "$(identity "$folder" "${command[@]}")"; then # the first machine does not train again
        say "[fine-tuning, $name] already there: $folder"
    else
        run "${command[@]}"
    fi
}

# tell_replaced NAME OUTPUT SCORES COMMAND...: say that this step will replace scores of another model or options.
tell_replaced() {
    [[ ! -e $3 ]] || is_made "$2" "$(identity "$2" "${@:4}")" ||
        say "[translation, $1] replaces that of another model or options: to keep its scores, copy $3 now"
}

# evaluate NAME CHECKPOINT: translate the test set with the user's options of fairseq-generate, and write the score to
# OUT/scores/NAME.json; what is there of another --average or other options is replaced, which is told. TEST is the test set's
# name in OUT/raw; OF, such as .de-en, ends the name.
TEST="test" OF=
evaluate() {
    local name=$1$OF checkpoint=$2 generated=$OUT/scores/$1$OF.test.out reference=$OUT/raw/$TEST.$TGT compounds=() command
    require "$checkpoint" "run finetune.sh first"
    require_whole "$reference"
    command=(to_file "{}" fairseq-generate "${DATA:-$OUT/mt.$SRC-$TGT}" --user-dir "$USER_DIR"
        --path "$checkpoint" --gen-subset test --beam 5 --max-len-a 1.5 --max-len-b 20 --batch-size 128
        --remove-bpe sentencepiece --lenpen "${OPTIONS[lenpen]}" "${EXTRA[@]}")
    tell_replaced "$name" "$generated" "$OUT/scores/$name.json" "${command[@]}"
    step "translation, $name" "$generated" "${command[@]}"
    [[ -z ${OPTIONS[split-compounds]:-} ]] || compounds=(--split-compounds)
    python "$REPOSITORY/scripts/score.py" --generate-output "$generated" --reference "$reference" --lang "$TGT" \
        --json "$OUT/scores/$name.json" "${compounds[@]}"
}

# evaluate_options NAME=DEFAULT... -- "$@": read the options of evaluate.sh.
evaluate_options() {
    local word before=
    PROGRAM=fairseq-generate
    parse_options out= name=veco seed=1 checkpoint= lenpen=1.0 split-compounds try "$@"
    require_number seed average
    for word in "${EXTRA[@]}"; do
        [[ $before != --gen-subset ]] || word=--gen-subset=$word
        [[ $word != --gen-subset=* || $word == --gen-subset=test ]] || die "$word: the reference is the test set's: leave it out"
        before=$word
    done
    begin
}

# average RUN COUNT: set CHECKPOINT to the mean of a training's last checkpoints. A short training leaves fewer, or only the
# last one.
average() {
    local run=$1 count=$2 folder=$OUT/checkpoints/$1 saved=()
    saved=("$folder"/checkpoint_[0-9]*_[0-9]*.pt) # the folder is no pattern, whatever its name has
    if [[ -e ${saved[0]} ]]; then
        if ((${#saved[@]} < count)); then
            say "[average, $run] of ${#saved[@]} checkpoints, not $count: finetune.sh has left no more (--save-every, --updates)"
            count=${#saved[@]}
        fi
        CHECKPOINT=$OUT/checkpoints/$run.average$count.pt
        step "average, $run" "$CHECKPOINT" python "$REPOSITORY/scripts/average_checkpoints.py" --inputs "$folder" \
            --num-update-checkpoints "$count" --output "$CHECKPOINT"
    else
        CHECKPOINT=$folder/checkpoint_last.pt
        [[ -e $CHECKPOINT ]] || CHECKPOINT=$folder/checkpoint_best.pt
        say "[average, $run] of no checkpoints: finetune.sh has left only $(basename "$CHECKPOINT") (--save-every, --updates)"
    fi
}

# evaluate_task: translate the test set with the mean of the last --average checkpoints, or with --checkpoint, and print
# both kinds of BLEU.
evaluate_task() {
    local run folder name checkpoint=${OPTIONS[checkpoint]}
    run=$(run_name "${OPTIONS[name]}" "${OPTIONS[seed]}")
    folder=$OUT/checkpoints/$run name=$run
    require "$folder" "run finetune.sh first"
    tell_unfinished "$folder/any"
    [[ -e $folder.done ]] || REMAKE=1 # the last checkpoints of a running training change
    if [[ -n $checkpoint ]] || ((OPTIONS[average] == 0)); then
        CHECKPOINT=$folder/${checkpoint:-checkpoint_last.pt}
        [[ -z $checkpoint ]] || require "$CHECKPOINT" "--checkpoint must be one of: $(cd "$folder" && echo checkpoint*.pt)"
        name+=.$(basename "$CHECKPOINT" .pt)
    else
        average "$run" "${OPTIONS[average]}"
    fi
    evaluate "$name" "$CHECKPOINT"
}
