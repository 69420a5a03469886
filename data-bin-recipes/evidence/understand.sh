#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# What a pre-trained model of the comparisons understands: fine-tune it on a task and predict the test sets once, or look for
# translations with it. The recipes of xtreme do the work.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

PROGRAM=fairseq-train
parse_options out= task=xnli arm=veco plug=out seed=1 pretraining=1 results= try -- "$@"
choose_out
comparisons
require_arm
mapfile -t tasks < <(printf '%s\n' "${!TASK_LANGS[@]}" | sort)
require_choice task "${tasks[@]}"
require_choice plug out in
task=${OPTIONS[task]} arm=${OPTIONS[arm]} plug=${OPTIONS[plug]}
[[ $task.$plug != udpos.in ]] || die "--plug in: --task udpos is trained on English alone, without translations: give --task pud"
folder=$OUT/understanding/$task name=$arm.$plug.p${OPTIONS[pretraining]}.s${OPTIONS[seed]}
options=(--out "$folder" ${OPTIONS[try]:+--try})
find_cpu "${EXTRA[@]}"
require "$folder/data" "run prepare_understanding.sh first"
if [[ $arm == random ]]; then
    PRETRAINED=$OUT/pretrain/dict.txt from=random # whose folder has the vocabulary
    require "$PRETRAINED" "run prepare.sh first"
else
    from=pretrained
    pretrained_model "$arm" "${OPTIONS[pretraining]}"
fi

recipe=$REPOSITORY/data-bin-recipes/xtreme
case $task in
tatoeba | flores)
    [[ $arm.$plug != random.* && $plug == out ]] || die "--task $task: takes pre-trained models, plugged out"
    run bash "$recipe/tatoeba/evaluate.sh" "${options[@]}" --pretrained "$PRETRAINED" --name "$name" \
        -- --score "$RETRIEVAL_SCORE" "${CPU[@]}" ;;
*)
    setting=translate-train batch=$NLU_BATCH
    [[ $task != udpos ]] || setting=transfer
    [[ $plug == out ]] || batch=$((NLU_BATCH / 2))
    run bash "$recipe/${task/pud/udpos}/finetune.sh" "${options[@]}" --pretrained "$PRETRAINED" --arm "$from" \
        --arch veco_nlu_tiny --setting "$setting" --plug "$plug" --name "$name" --seeds "${OPTIONS[seed]}" \
        --lrs "$NLU_RATES" --epochs "${EPOCHS[$task]}" --batches "$batch" -- "${EXTRA[@]}"
    run bash "$recipe/${task/pud/udpos}/evaluate.sh" "${options[@]}" --name "$name" --seeds "${OPTIONS[seed]}" \
        -- "${CPU[@]}" ;;
esac
[[ -z ${OPTIONS[results]} ]] ||
    python "$REPOSITORY/data-bin-recipes/evidence/results.py" "$OUT" record "$task/$name" "${OPTIONS[results]}"
