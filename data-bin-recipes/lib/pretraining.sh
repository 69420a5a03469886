# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Pre-trained models: train one, or begin with one. This file sources steps.sh.

source "${BASH_SOURCE[0]%/*}/steps.sh"

about pretrained FILE "a checkpoint of pre-training, with its sentencepiece.bpe.model and dict.txt beside it \
(needed; with --try the recipe makes one)"
about objective "camlm|mlm" "camlm: VECO; mlm: the XLM baseline, the same without the S terms"
about updates N "number of updates"
about warmup N "updates until the learning rate is highest"
about vocab-size N "pieces of the vocabulary"
about workers N "GPUs of this machine to use; 0: all of them, or one process with \`-- --cpu\`"

# train_options NAME=DEFAULT... -- "$@": read the options of train.sh.
train_options() {
    PROGRAM=fairseq-train
    parse_options out= objective=camlm name= seed=1 try "$@"
    in_try updates=20 warmup=5
    require_choice objective camlm mlm
    require_number updates warmup seed
}

PREPARE=prepare.sh # the script that makes the data

# begin_data: from here to `end_data` the data in OUT are not whole: a training would take what is there for all of it, and a new
# test set would be the reference of the old one's translations. Call it when what the options name has been found.
begin_data() { make_folder "$OUT" && : >"$OUT/data.unfinished"; }

# end_data: the data in OUT are whole.
end_data() { rm -f -- "$OUT/data.unfinished"; }

# require_whole PATH [SIGN]: end if prepare.sh has not made PATH, or was interrupted, of which the file SIGN tells.
require_whole() {
    local sign=${2:-$OUT/data.unfinished}
    require "$1" "run $PREPARE first"
    [[ ! -e $sign ]] || die "$(dirname "$sign"): the data are not whole: $PREPARE was interrupted, or runs: let it come to its end"
}

OPTIMIZER=(--optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 1.0 --weight-decay 0.01)
LOG=(--log-format simple --log-interval 20 --no-epoch-checkpoints)
# What a machine that fails costs at most: a pre-training's epoch can take hours.
OFTEN=(--save-interval-updates 500 --keep-interval-updates 1)

# pretrain OUT OBJECTIVE[.NAME] UPDATES SEED OPTION...: train into OUT/checkpoints/OBJECTIVE[.NAME], on ROOT (default:
# OUT/pretrain). camlm: VECO; mlm: XLM; xlme: XLM-E. The options give learning rate and warm-up.
ROOT=
pretrain() {
    local out=$1 name=$2 objective=${2%%.*} updates=$3 seed=$4 root=${ROOT:-$1/pretrain} model
    shift 4
    require_whole "$root/dict.txt" "$root/.progress.json" # which veco prepare has until its end
    model=(--criterion camlm --objective "$objective" --arch veco_tiny)
    [[ $objective != xlme ]] || model=(--criterion replaced_token --arch xlme_tiny)
    training "pre-training, $name" "$out/checkpoints/$name" fairseq-train "$root" --distributed-world-size 1 \
        --user-dir "$USER_DIR" --task camlm "${model[@]}" "${OPTIMIZER[@]}" --lr-scheduler polynomial_decay \
        --total-num-update "$updates" --max-update "$updates" --seed "$seed" "${LOG[@]}" "${OFTEN[@]}" \
        --save-dir "$out/checkpoints/$name" "$@"
}

# Pieces of the vocabulary, and updates, of the model that --try pre-trains.
TRY_PIECES=1000
TRY_UPDATES=40

# find_cpu OPTION...: set CPU to --cpu if it is among these, for a command that takes no other of them, and else to nothing.
find_cpu() {
    CPU=()
    [[ " $* " != *" --cpu "* ]] || CPU=(--cpu)
}

# small_model OPTION...: with --try and without --pretrained, pre-train a tiny VECO on the texts that these options of
# prepare_root.py name.
small_model() {
    local TRAINED_OTHERWISE=${TRAINED_OTHERWISE% or --name} # whatever the name, it is this one
    [[ -z ${OPTIONS[pretrained]} ]] && trying || return 0
    run python "$REPOSITORY/scripts/prepare_root.py" "$@" --valid-lines 0 --vocab-size "$TRY_PIECES" --soft-vocab-limit \
        --character-coverage 0.99 --output "$OUT/pretrain"
    find_cpu "${EXTRA[@]}"
    pretrain "$OUT" camlm "$TRY_UPDATES" 1 --mono-batch-size 8 --bitext-batch-size 16 --max-tokens 2048 \
        --mono-max-length 64 --bitext-max-length 64 --bitext-mask-prob 0.5 --lr 2e-3 --warmup-updates 10 \
        --disable-validation "${CPU[@]}"
}

# require_pretrained: set PRETRAINED to --pretrained or, with --try, to what small_model makes.
require_pretrained() {
    PRETRAINED=${OPTIONS[pretrained]}
    if [[ -z $PRETRAINED ]] && trying; then
        PRETRAINED=$OUT/checkpoints/camlm/checkpoint_last.pt
        return
    fi
    [[ -n $PRETRAINED ]] || die "--pretrained is needed: a checkpoint of pre-training"
    require "$PRETRAINED" "--pretrained must be a checkpoint of pre-training"
    [[ -e ${PRETRAINED%/*}/sentencepiece.bpe.model ]] || PRETRAINED=$(realpath -- "$PRETRAINED") # of a link
    tell_unfinished "$PRETRAINED"
}

# tell_unfinished CHECKPOINT: say so if the recipe's training that has left it was interrupted, or runs.
tell_unfinished() {
    local folder
    folder=${1%/*}
    [[ ! -e $folder.begun || -e $folder.done ]] ||
        say "$folder: the training was interrupted, or runs: what is made of it now is not of the whole training"
}

# choose_device: set WORKERS from --workers (by default all GPUs of this machine), and DEVICE, options of fairseq-train.
choose_device() {
    local extra=" ${EXTRA[*]} " gpus
    WORKERS=${OPTIONS[workers]} DEVICE=(--fp16)
    # With --fp16 beside one of these fairseq trains in fp16 all the same, or ends.
    [[ ! $extra =~ " --"(cpu|amp|tpu|(memory-efficient-)?bf16|autocast[ =]bf16)" " ]] || DEVICE=()
    if [[ $extra == *" --cpu "* ]]; then
        ((WORKERS)) || WORKERS=1
    elif ((WORKERS == 0 || ${#DEVICE[@]})); then # fairseq would blame --fp16, which nobody has given
        gpus=$(python -c 'import torch; print(torch.cuda.device_count())')
        if ((gpus == 0)); then
            trying || die "no GPU here: add -- --cpu to train on the processor"
            WORKERS=1 DEVICE=(--cpu)
        fi
        ((WORKERS)) || WORKERS=$gpus
    fi
}
