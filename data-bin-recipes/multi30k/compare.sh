#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Compare VECO, XLM and random initialisation, all fine-tuned alike, and random
# initialisation trained longer, by as many operations as pre-training took.
#
# The options after `--` go to pre-training. Fine-tuning and evaluation get --cpu, too, and fine-tuning gets fairseq's --amp
# for --autocast bf16.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

about seeds "\"N ...\"" "seeds of fine-tuning"
about long-lr X "learning rate of the longer training from random initialisation; try some first with finetune.sh --name"
PROGRAM=fairseq-train
parse_options out= src=en tgt=de seeds="1 2 3" long-lr=2e-3 -- "$@"
begin
seeds=${OPTIONS[seeds]} long_lr=${OPTIONS[long-lr]}
export VECO_SKIP_SETUP=1
recipe=$REPOSITORY/data-bin-recipes/multi30k
common=(--out "$OUT" --src "$SRC" --tgt "$TGT")
find_cpu "${EXTRA[@]}"
pretraining=("${EXTRA[@]}") device=("${CPU[@]}") generation=("${CPU[@]:+--}" "${CPU[@]}")
[[ " ${EXTRA[*]} " != *" --autocast bf16 "* ]] || device+=(--amp)

for objective in camlm mlm; do
    run bash "$recipe/train.sh" "${common[@]}" --objective $objective -- "${pretraining[@]}"
done
for seed in $seeds; do
    for arm in veco xlm random; do
        run bash "$recipe/finetune.sh" "${common[@]}" --arm $arm --seed "$seed" -- "${device[@]}" \
            --save-interval-updates 100
    done
done
# The longer arm: pre-training's operations on top of fine-tuning's.
first=${seeds%% *}
updates=$(python "$REPOSITORY/scripts/count_operations.py" --equal \
    "$OUT/checkpoints/$(run_name random "$first")/checkpoint_last.pt" "$OUT/checkpoints/camlm/checkpoint_last.pt")
for seed in $seeds; do
    run bash "$recipe/finetune.sh" "${common[@]}" --arm random --name long --seed "$seed" --updates "$updates" \
        --lr "$long_lr" -- "${device[@]}" --save-interval-updates 500
done
for seed in $seeds; do
    for name in veco xlm random long; do
        for checkpoint in "$OUT/checkpoints/$(run_name $name "$seed")"/checkpoint_{[0-9]*,last}.pt; do
            run bash "$recipe/evaluate.sh" "${common[@]}" --name $name --seed "$seed" \
                --checkpoint "$(basename "$checkpoint")" "${generation[@]}" >/dev/null
        done
    done
done
python "$recipe/table.py" "$OUT"
