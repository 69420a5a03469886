# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# Pre-trained models: to train one, or to begin with one. It sources steps.sh.

source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

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

# require_pretrained: sets PRETRAINED.
require_pretrained() {
    PRETRAINED=${OPTIONS[pretrained]}
    [[ -n $PRETRAINED ]] || die "--pretrained is needed: a checkpoint of pre-training"
    require "$PRETRAINED" "--pretrained must be a checkpoint of pre-training"
}

# choose_device: sets WORKERS (of --workers, by default all GPUs of this machine) and DEVICE, options of fairseq-train.
choose_device() {
    local extra=" ${EXTRA[*]} "
    WORKERS=${OPTIONS[workers]} DEVICE=(--fp16)
    [[ $extra != *" --cpu "* && $extra != *" --amp "* ]] || DEVICE=() # fairseq takes one of the two
    if ((WORKERS == 0)); then
        WORKERS=1
        [[ $extra == *" --cpu "* ]] || WORKERS=$(python -c 'import torch; print(torch.cuda.device_count())')
    fi
    ((WORKERS)) || die "no GPU here: add -- --cpu to train on the processor"
}
